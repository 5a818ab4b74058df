"""The stable building blocks: derivatives, extremes, empty rows; and the skewed means."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import loops
from kinspace.numerics import (
    full_precision,
    k_skewed_mean,
    log1p_sum_exp,
    log_exp_mean,
    log_sum_exp,
    power_mean,
    safe_sqrt,
    unit,
    zero_of,
)
from kinspace.slopes import exponentials_, polar, unit_with_pull, with_slopes

MASK = torch.tensor([[True, False, True, True], [False, True, False, False], [True] * 4])
SUMS = pytest.mark.parametrize("function", [log_sum_exp, log1p_sum_exp])


def normal(*shape: int, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def check_derivatives(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert torch.autograd.gradcheck(function, [x])
    assert torch.autograd.gradgradcheck(function, [x])


# --- log sum exp ---------------------------------------------------------------------------------


KEPT = {
    "all": {},
    "masked": {"mask": MASK},
    "without": {"without": torch.tensor([[1, 1], [3, 0], [2, 3]])},
    "masked and without": {"mask": MASK, "without": torch.tensor([[0], [0], [0]])},
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@SUMS
def test_a_log_sum_has_first_and_second_derivatives(
    function: Callable[..., Tensor], kept: dict[str, Tensor]
) -> None:
    check_derivatives(lambda x: function(x, **kept), normal(3, 4, scale=3.0))


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_log_sum_exp_is_that_of_torch(kept: dict[str, Tensor]) -> None:
    x = normal(3, 4, scale=10.0)
    filled = torch.where(kept.get("mask", torch.ones_like(x).bool()), x, -math.inf)
    filled = filled.scatter(1, kept["without"], -math.inf) if "without" in kept else filled
    found = log_sum_exp(x, **kept)
    torch.testing.assert_close(found, filled.logsumexp(1), rtol=1e-13, atol=0.0)


def test_a_log_sum_leaves_its_logits_as_they_are() -> None:
    x = normal(3, 4)
    before = x.detach().clone()
    for function in (log_sum_exp, log1p_sum_exp):
        for kept in KEPT.values():
            function(x, **kept).sum().backward()
            assert torch.equal(x.detach(), before)


def test_log1p_sum_exp_has_one_more_zero() -> None:
    x = normal(3, 4, scale=10.0)
    expected = [loops.log1p_sum_exp(list(row[kept])) for row, kept in zip(x, MASK, strict=True)]
    found = log1p_sum_exp(x, MASK)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-13, atol=0.0)


def test_nothing_kept_gives_the_empty_sum_and_no_gradient() -> None:
    x = normal(2, 3)
    mask = torch.tensor([[False] * 3, [True] * 3])
    assert log_sum_exp(x, mask)[0] == -math.inf
    assert log1p_sum_exp(x, mask)[0] == 0
    for function in (log_sum_exp, log1p_sum_exp):
        (slope,) = torch.autograd.grad(function(x, mask).sum(), x)
        assert slope[0].eq(0).all()
        assert slope[1].gt(0).all()


def test_what_the_mask_leaves_out_may_be_anything_finite() -> None:
    x = torch.tensor([[1e300, 0.0, -1e300]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False, True, False]])
    for function in (log_sum_exp, log1p_sum_exp):
        found = function(x, mask)
        (slope,) = torch.autograd.grad(found, x)
        assert found.isfinite().all()
        assert slope[0, [0, 2]].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", [0.0, 1.0, 100.0, 1e4, 1e30])
@SUMS
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
    assert math.isclose(found.item(), math.log1p(2 * math.exp(logit)), rel_tol=1e-14)


@pytest.mark.parametrize("logit", [1e-8, 1e-3, 0.5, 3.0, 40.0, 800.0])
def test_log1p_sum_exp_is_the_softplus_of_one_logit(logit: float) -> None:
    for signed in (logit, -logit):
        found = log1p_sum_exp(torch.tensor([[signed]], dtype=torch.float64)).item()
        expected = max(signed, 0.0) + math.log1p(math.exp(-abs(signed)))
        assert math.isclose(found, expected, rel_tol=1e-14)


# --- roots, unit vectors, zeros ------------------------------------------------------------------


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


def test_zero_of_is_a_zero_connected_to_every_tensor() -> None:
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(4, requires_grad=True)
    zero = zero_of(x, y)
    assert zero.shape == ()
    assert zero == 0
    for slope, leaf in zip(torch.autograd.grad(zero, [x, y]), [x, y], strict=True):
        assert torch.equal(slope, torch.zeros_like(leaf))


def test_zero_of_stays_zero_where_the_values_overflow() -> None:
    x = torch.full((3, 2), 3e38, requires_grad=True)
    assert zero_of(x) == 0
    assert torch.autograd.grad(zero_of(x), x)[0].eq(0).all()


# --- gradients made beside the value -------------------------------------------------------------


def sum_of_squares(x: Tensor, made: list[str], name: str = "x") -> tuple[Tensor, tuple]:
    """The value, and for `with_slopes` the tensor and its slope, which notes that it was made."""

    def slope() -> Tensor:
        assert not torch.is_grad_enabled()
        made.append(name)
        return 2 * x

    return x.detach().square().sum(), (x, slope)


def test_a_value_gets_the_slopes_it_is_given() -> None:
    x, y = normal(3, 4), normal(5)
    made: list[str] = []
    first, by_x = sum_of_squares(x, made)
    second, by_y = sum_of_squares(y, made, "y")
    value = with_slopes(first + second, by_x, by_y)
    found = torch.autograd.grad(3 * value, [x, y])
    assert value == (x.square().sum() + y.square().sum())
    assert torch.equal(found[0], 6 * x)
    assert torch.equal(found[1], 6 * y)
    assert made == ["x", "y"]


def test_a_slope_is_made_only_where_it_is_wanted() -> None:
    x, fixed = normal(3), torch.ones(2, dtype=torch.float64)
    made: list[str] = []
    value, by_x = sum_of_squares(x, made)
    _, by_fixed = sum_of_squares(fixed, made, "fixed")
    with torch.no_grad():
        assert not with_slopes(value, by_x).requires_grad
    assert not with_slopes(value, by_fixed).requires_grad
    assert made == []
    with_slopes(value, by_fixed, by_x).backward()
    assert made == ["x"]


def test_a_given_slope_serves_several_backward_passes() -> None:
    x = normal(3)
    value = with_slopes(*sum_of_squares(x, []))
    value.backward(retain_graph=True)
    value.backward()
    assert torch.equal(x.grad, 4 * x.detach())


def test_a_given_slope_has_no_derivative_and_says_so() -> None:
    x = normal(3)
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        torch.autograd.grad(with_slopes(*sum_of_squares(x, [])), x, create_graph=True)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("plus_one", [False, True])
def test_exponentials_are_a_softmax_with_its_log_sum(
    kept: dict[str, Tensor], plus_one: bool
) -> None:
    x = normal(3, 4, scale=10.0)
    total = (log1p_sum_exp if plus_one else log_sum_exp)(x, **kept)
    (expected,) = torch.autograd.grad(total.sum(), x)
    logits = torch.where(kept.get("mask", torch.ones_like(x).bool()), x.detach(), -math.inf)
    logits = logits.scatter(1, kept["without"], -math.inf) if "without" in kept else logits
    sums, logs = exponentials_(logits, plus_one=plus_one)
    torch.testing.assert_close(logs[:, 0], total.detach(), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(logits / sums, expected, rtol=1e-12, atol=0.0)


def test_exponentials_of_nothing_sum_to_one_to_divide_by() -> None:
    logits = torch.full((2, 3), -math.inf)
    sums, logs = exponentials_(logits)
    assert sums.eq(1).all()
    assert logs.eq(-math.inf).all()
    assert logits.eq(0).all()
    sums, logs = exponentials_(torch.full((2, 3), -math.inf), plus_one=True)
    assert sums.eq(1).all()
    assert logs.eq(0).all()


def test_the_pull_of_unit_is_its_gradient() -> None:
    x, grad = normal(4, 3), torch.randn(4, 3, dtype=torch.float64)
    x.data[1] = 0
    found, pull = unit_with_pull(x)
    (expected,) = torch.autograd.grad(unit(x), x, grad)
    assert torch.equal(found, unit(x).detach())
    torch.testing.assert_close(pull(grad), expected, rtol=1e-14, atol=0.0)


def test_polar_gives_lengths_directions_and_divisors() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    lengths, directions, divisors = polar(x)
    assert lengths.tolist() == [[5.0], [0.0]]
    assert torch.equal(directions, unit(x))
    assert divisors.tolist() == [[5.0], [math.inf]]


# --- full precision ------------------------------------------------------------------------------


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


# --- the skewed means ----------------------------------------------------------------------------

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
