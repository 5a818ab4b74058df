"""Roots, lengths and directions: derivatives also at 0, finite at any scale."""

import math

import pytest
import torch

from gradients import check_derivatives, normal
from kinspace._core.normalization import norms, safe_sqrt, unit, zero_to_inf


def test_safe_sqrt_has_first_and_second_derivatives() -> None:
    check_derivatives(safe_sqrt, (torch.rand(6, dtype=torch.float64) + 0.1).requires_grad_())


def test_safe_sqrt_has_slope_zero_at_zero() -> None:
    x = torch.tensor([0.0, 1e-300, 4.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(safe_sqrt(x).sum(), x, create_graph=True)
    assert slope.tolist() == [0.0, pytest.approx(5e149), 0.25]
    (curvature,) = torch.autograd.grad(slope[[0, 2]].sum(), x)
    assert curvature.tolist() == [0.0, 0.0, pytest.approx(-1 / 32)]


def test_unit_has_first_and_second_derivatives() -> None:
    check_derivatives(unit, normal(3, 4))
    check_derivatives(unit, normal(2, 3, 2, scale=10.0))


def test_unit_of_zero_is_zero_with_no_gradient() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    found = unit(x)
    assert found[0].eq(0).all()
    (slope,) = torch.autograd.grad((found * torch.tensor([[1.0, 2.0]])).sum(), x, create_graph=True)
    assert slope[0].eq(0).all()
    (second,) = torch.autograd.grad(slope.square().sum(), x)
    assert second.isfinite().all()
    assert second[0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("exponent", [-30, -18, -6, 0, 6, 18, 30])
def test_unit_is_finite_at_any_scale(exponent: int, dtype: torch.dtype) -> None:
    x = (torch.randn(5, 8, dtype=dtype) * 10.0**exponent).requires_grad_()
    found = unit(x)
    (slope,) = torch.autograd.grad((found * torch.arange(8)).sum(), x)
    assert found.isfinite().all()
    assert slope.isfinite().all()
    if abs(exponent) <= 18:  # beyond it squares leave the range of float32
        torch.testing.assert_close(found.norm(dim=1), torch.ones(5, dtype=dtype))


def test_norms_have_first_and_second_derivatives_and_none_at_zero() -> None:
    check_derivatives(norms, normal(3, 4))
    x = torch.zeros(2, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(norms(x).sum(), x, create_graph=True)
    assert slope.eq(0).all()
    (second,) = torch.autograd.grad(slope.square().sum(), x)
    assert second.eq(0).all()


def test_lengths_to_divide_by_are_infinite_where_dividing_would_overflow() -> None:
    tiny = torch.finfo(torch.float32).tiny
    found = zero_to_inf(torch.tensor([0.0, tiny, 2 * tiny, 1.0]))
    assert found.tolist() == [math.inf, math.inf, 2 * tiny, 1.0]
