"""The skewed means: against their loops, at their limits, with finite derivatives."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import loops
from gradients import check_derivatives, normal
from kinspace.numerics import k_skewed_mean, log_exp_mean, power_mean

SHARPNESSES = [-math.inf, -40.0, -1.0, -1e-9, 0.0, 1e-9, 0.3, 2.0, 100.0, math.inf]
numbers = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=6)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(numbers, st.sampled_from(SHARPNESSES))
def test_log_exp_mean_agrees_with_the_loop(values: list[float], sharpness: float) -> None:
    torch.testing.assert_close(
        log_exp_mean(tensor(values), sharpness),
        # the loop loses its digits as the sharpness goes to 0, where the mean is the plain one
        loops.log_exp_mean(tensor(values), 0.0 if abs(sharpness) < 1e-6 else sharpness),
        rtol=1e-7 if abs(sharpness) < 1e-6 else 1e-10,
        atol=0.0,
    )


@given(numbers, st.sampled_from(SHARPNESSES))
def test_power_mean_agrees_with_the_loop(values: list[float], power: float) -> None:
    torch.testing.assert_close(
        power_mean(tensor(values), power),
        loops.power_mean(tensor(values), 0.0 if abs(power) < 1e-6 else power),
        rtol=1e-7 if abs(power) < 1e-6 else 1e-10,
        atol=0.0,
    )


@given(numbers, st.data())
def test_k_skewed_mean_agrees_with_the_loop(values: list[float], data: st.DataObject) -> None:
    count = len(values)
    k = data.draw(st.integers(-count, count).filter(bool))
    found = k_skewed_mean(tensor(values), k)
    torch.testing.assert_close(found, loops.k_skewed_mean(tensor(values), k), rtol=1e-12, atol=0.0)


MEANS = [partial(log_exp_mean, sharpness=s) for s in (-3.0, 0.0, 1e-7, 5.0)] + [
    partial(power_mean, power=p) for p in (-2.0, 0.0, 0.5, 4.0)
]


@pytest.mark.parametrize("mean", MEANS, ids=lambda mean: f"{mean.func.__name__}-{mean.keywords}")
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_mean_runs_along_a_dimension_and_has_derivatives(
    mean: Callable[..., Tensor], dim: int
) -> None:
    values = (torch.rand(3, 4, dtype=torch.float64) + 0.2).requires_grad_()
    lines = values.unbind(1 - dim if dim >= 0 else 0)
    expected = torch.stack([mean(line) for line in lines])
    torch.testing.assert_close(mean(values, dim=dim), expected, rtol=1e-14, atol=0.0)
    check_derivatives(lambda x: mean(x, dim=dim), values)


def test_k_skewed_mean_runs_along_the_last_dimension() -> None:
    values = normal(3, 4)
    expected = torch.stack([k_skewed_mean(row, 2) for row in values])
    torch.testing.assert_close(k_skewed_mean(values, 2), expected)
    assert torch.autograd.gradcheck(lambda x: k_skewed_mean(x, -3), [values])


@pytest.mark.parametrize("power", [-2.0, 0.0, 0.5, 1.0, 4.0])
def test_power_mean_of_zeros_is_finite_with_a_finite_gradient(power: float) -> None:
    for entries in ([0.0, 1.0, 4.0], [0.0, 0.0], [0.0]):
        values = tensor(entries).requires_grad_()
        found = power_mean(values, power)
        (slope,) = torch.autograd.grad(found, values)
        assert slope.isfinite().all()
        if power <= 0 or not any(entries):
            assert found == 0


@pytest.mark.parametrize("size", [1e-30, 1e30])
@pytest.mark.parametrize("parameter", [-1e6, -8.0, 8.0, 1e6, 1e300])
def test_a_mean_is_finite_at_the_extremes(size: float, parameter: float) -> None:
    values = (tensor([1.0, 2.0, 3.0]) * size).requires_grad_()
    for mean in (log_exp_mean, power_mean):
        found = mean(values, parameter)
        (slope,) = torch.autograd.grad(found, values)
        assert size <= found.item() <= 3 * size * (1 + 1e-12)
        assert slope.isfinite().all()


@pytest.mark.parametrize("k", [0, 4, -4, 1.0, True, None])
def test_k_out_of_range_is_an_error_that_says_so(k: int) -> None:
    with pytest.raises(ValueError, match=rf"^k: expected .*3, got {k!r}"):
        k_skewed_mean(torch.ones(3), k)


def test_a_parameter_that_is_nan_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^sharpness: expected a number, got nan"):
        log_exp_mean(torch.ones(3), math.nan)
    with pytest.raises(ValueError, match=r"^power: expected a number, got nan"):
        power_mean(torch.ones(3), math.nan)


def test_negative_values_have_no_power_mean() -> None:
    with pytest.raises(ValueError, match=r"^values: expected 0 or more, got -0\.5"):
        power_mean(torch.tensor([1.0, -0.5]), 2.0)


@pytest.mark.parametrize("wrong", [torch.zeros(0), torch.ones(3, dtype=torch.int64), [1.0]])
def test_means_take_a_tensor_of_floats_that_is_not_empty(wrong: Tensor) -> None:
    for mean in (k_skewed_mean, log_exp_mean, power_mean):
        with pytest.raises(ValueError, match=r"^values: expected a non-empty floating point"):
            mean(wrong, 1)
