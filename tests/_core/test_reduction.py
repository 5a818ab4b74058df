"""From one value a sample to the value of a loss, and the zero of nothing to compare."""

import pytest
import torch

from kinspace._core.reduction import reduce, zero_with_grad

TERMS = torch.tensor([1.0, 2.0, 6.0])


def test_terms_are_averaged_summed_or_left_as_they_are() -> None:
    assert reduce(TERMS, "mean") == 3
    assert reduce(TERMS, "sum") == 9
    assert reduce(TERMS, "none") is TERMS


@pytest.mark.parametrize("count", [2, torch.tensor(2)], ids=["number", "tensor"])
def test_a_mean_divides_by_the_count_it_is_given(count: int | torch.Tensor) -> None:
    assert reduce(TERMS, "mean", count) == 4.5
    assert reduce(TERMS, "sum", count) == 9


@pytest.mark.parametrize("count", [0, torch.tensor(0)], ids=["number", "tensor"])
def test_a_mean_over_nothing_is_zero(count: int | torch.Tensor) -> None:
    assert reduce(torch.zeros(3), "mean", count) == 0


def test_a_zero_with_a_gradient_is_connected_to_every_tensor() -> None:
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(4, requires_grad=True)
    zero = zero_with_grad(x, y)
    assert zero.shape == ()
    assert zero == 0
    for slope, leaf in zip(torch.autograd.grad(zero, [x, y]), [x, y], strict=True):
        assert torch.equal(slope, torch.zeros_like(leaf))


def test_a_zero_with_a_gradient_stays_zero_where_the_values_overflow() -> None:
    x = torch.full((3, 2), 3e38, requires_grad=True)
    assert zero_with_grad(x) == 0
    assert torch.autograd.grad(zero_with_grad(x), x)[0].eq(0).all()
