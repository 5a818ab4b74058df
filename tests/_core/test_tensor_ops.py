"""Operations that losses share: tracing, precision, reduction, log-sum-exp, the k-th largest."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import loops
from gradients import check_derivatives, normal
from kinspace._core.tensor_ops import (
    full_precision,
    is_traced,
    kth_largest,
    log1p_sum_exp,
    log_sum_exp,
    reduce,
    upcast_half,
    zero_with_grad,
)

X = torch.ones(3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own jvp
def test_values_can_be_read_in_eager_mode_and_while_differentiating() -> None:
    found = []

    def note(x: Tensor) -> Tensor:
        found.append(is_traced(x))
        return x.sum()

    note(X)
    note(X.clone().requires_grad_()).backward()
    torch.func.grad(note)(X)
    torch.func.jvp(note, (X,), (X,))
    assert found == [False] * 4


def test_values_cannot_be_read_in_vmap_at_any_depth() -> None:
    found = []

    def note(x: Tensor) -> Tensor:
        found.append(is_traced(x))
        return x.sum()

    torch.func.vmap(note)(X[None])
    torch.func.vmap(torch.func.grad(note))(X[None])
    torch.func.grad(lambda x: torch.func.vmap(note)(x[None]).sum())(X)
    assert found == [True] * 3


def test_values_cannot_be_read_in_a_compiled_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: x + 1 if is_traced(x) else x - 1, fullgraph=True, backend="eager"
    )
    assert torch.equal(compiled(X), X + 1)


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


VALUES = torch.tensor([2.0, -math.inf, 5.0, 5.0, -math.inf, 1.0])
DESCENDING = [5.0, 5.0, 2.0, 1.0, -math.inf, -math.inf]


@pytest.mark.parametrize("k", range(1, 7))
def test_counts_from_the_largest(k: int) -> None:
    assert kth_largest(VALUES, torch.tensor(k)) == DESCENDING[k - 1]


def test_beyond_the_end_it_is_the_smallest() -> None:
    assert kth_largest(torch.tensor([2.0, 1.0]), torch.tensor(9)) == 1


def test_is_the_same_where_values_cannot_be_read() -> None:
    asked = torch.arange(1, 10)
    found = torch.func.vmap(kth_largest, in_dims=(None, 0))(VALUES, asked)
    assert found.tolist() == [*DESCENDING, *[-math.inf] * 3]
    compiled = torch.compile(kth_largest, fullgraph=True, backend="aot_eager")
    assert compiled(VALUES, torch.tensor(3)) == 2
