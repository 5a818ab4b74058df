"""Losses run in float32 or better, whatever the model runs in."""

import pytest
import torch
from torch import Tensor

from kinspace._core.precision import full_precision, upcast_half


@full_precision
def product(x: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
    """A product of matrices."""
    return (x @ y) * scale


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_full_precision_leaves_autocast_outside(half: torch.dtype) -> None:
    x, y = torch.randn(2, 5, 5)
    expected = x @ y
    with torch.autocast("cpu", dtype=half):
        assert (x @ y).dtype == half
        assert torch.equal(product(x, y), expected)
        assert (x @ y).dtype == half  # it is on again after


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_full_precision_raises_half_precision_arguments(half: torch.dtype) -> None:
    x = torch.randn(5, 5).to(half).requires_grad_()
    found = product(x, torch.eye(5), scale=2.0)
    assert found.dtype == torch.float32
    assert torch.equal(found, 2 * x.float())
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert slope.dtype == half
    assert product(torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)).dtype == (
        torch.float64
    )


def test_full_precision_keeps_the_name_and_the_docstring() -> None:
    assert product.__name__ == "product"
    assert product.__doc__ == "A product of matrices."


def test_only_half_precision_tensors_are_upcast() -> None:
    for half in (torch.float16, torch.bfloat16):
        assert upcast_half(torch.ones(2, dtype=half)).dtype == torch.float32
    for other in (torch.ones(2), torch.ones(2).double(), torch.ones(2).long(), "mean", None, 3):
        assert upcast_half(other) is other
