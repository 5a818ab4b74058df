"""Logarithms of sums of exponentials: derivatives, extremes, rows of which nothing is kept."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import loops
from gradients import check_derivatives, normal
from kinspace._core.logsumexp import log1p_sum_exp, log_sum_exp

MASK = torch.tensor([[True, False, True, True], [False, True, False, False], [True] * 4])
FUNCTIONS = [log_sum_exp, log1p_sum_exp]
EVERY_FUNCTION = pytest.mark.parametrize("function", FUNCTIONS)
EVERY_MASK = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])


@EVERY_MASK
@EVERY_FUNCTION
def test_a_log_sum_has_first_and_second_derivatives(
    function: Callable[..., Tensor], mask: Tensor | None
) -> None:
    check_derivatives(lambda x: function(x, mask), normal(3, 4, scale=3.0))


@EVERY_MASK
def test_log_sum_exp_is_that_of_torch(mask: Tensor | None) -> None:
    x = normal(3, 4, scale=10.0)
    filled = x if mask is None else torch.where(mask, x, -math.inf)
    torch.testing.assert_close(log_sum_exp(x, mask), filled.logsumexp(1), rtol=1e-13, atol=0.0)


def test_a_log_sum_leaves_its_logits_as_they_are() -> None:
    x = normal(3, 4)
    before = x.detach().clone()
    for function in FUNCTIONS:
        for mask in (None, MASK):
            function(x, mask).sum().backward()
            assert torch.equal(x.detach(), before)


def test_log1p_sum_exp_has_one_more_zero() -> None:
    x = normal(3, 4, scale=10.0)
    expected = [loops.log1p_sum_exp(list(row[kept])) for row, kept in zip(x, MASK, strict=True)]
    found = log1p_sum_exp(x, MASK)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-13, atol=0.0)


def test_nothing_kept_gives_the_lowest_number_or_zero_and_no_gradient() -> None:
    x = normal(2, 3)
    mask = torch.tensor([[False] * 3, [True] * 3])
    assert log_sum_exp(x, mask)[0] == torch.finfo(torch.float64).min
    assert log1p_sum_exp(x, mask)[0] == 0
    for function in FUNCTIONS:
        (slope,) = torch.autograd.grad(function(x, mask).sum(), x, create_graph=True)
        assert slope[0].eq(0).all()
        assert slope[1].gt(0).all()
        (curvature,) = torch.autograd.grad(slope.square().sum(), x)
        assert curvature.isfinite().all()


def test_added_to_any_usual_number_nothing_kept_stays_below_a_hinge() -> None:
    nothing = log_sum_exp(torch.zeros(1, 2), torch.zeros(1, 2).bool())
    assert (nothing + 1e30).relu() == 0


def test_what_the_mask_leaves_out_may_be_anything_finite() -> None:
    x = torch.tensor([[1e300, 0.0, -1e300]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False, True, False]])
    for function in FUNCTIONS:
        found = function(x, mask)
        (slope,) = torch.autograd.grad(found, x)
        assert found.isfinite().all()
        assert slope[0, [0, 2]].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", [0.0, 1.0, 100.0, 1e4, 1e30])
@EVERY_FUNCTION
def test_a_log_sum_is_finite_at_the_extremes(
    function: Callable[..., Tensor], size: float, dtype: torch.dtype
) -> None:
    x = torch.tensor([[size, size, size], [-size] * 3, [size, 0.0, -size]], dtype=dtype)
    x.requires_grad_()
    found = function(x)
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert found.isfinite().all()
    assert slope.isfinite().all()
    # the weights of a softmax; their last digits go with those of the sum
    assert slope.min() >= 0
    assert slope.max() <= 1


@pytest.mark.parametrize("logit", [-30.0, -100.0, -700.0])
def test_log1p_sum_exp_keeps_the_digits_of_a_tiny_sum(logit: float) -> None:
    found = log1p_sum_exp(torch.tensor([[logit, logit]], dtype=torch.float64))
    expected = math.log1p(2 * math.exp(logit))
    # as many digits as the logit itself has: its last one is a share of the sum
    assert math.isclose(found.item(), expected, rel_tol=abs(logit) * torch.finfo(found.dtype).eps)


@pytest.mark.parametrize("logit", [1e-8, 1e-3, 0.5, 3.0, 40.0, 800.0])
def test_log1p_sum_exp_is_the_softplus_of_one_logit(logit: float) -> None:
    for signed in (logit, -logit):
        found = log1p_sum_exp(torch.tensor([[signed]], dtype=torch.float64)).item()
        expected = max(signed, 0.0) + math.log1p(math.exp(-abs(signed)))
        assert math.isclose(found, expected, rel_tol=1e-14)
