"""Lengths, directions, distances and groups of dimensions, and their derivatives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import loops
from batches import LARGE_BATCHES, random_batch
from gradients import check_derivatives, normal
from kinspace._core import vectors
from kinspace._core.vectors import (
    euclidean_distances,
    fill_diagonal,
    group_sizes,
    norms,
    off_diagonal,
    paired_distances,
    safe_sqrt,
    squared_distances,
    unit,
    unit_groups,
)
from kinspace.losses import BIER, HDC, bier_loss, hdc_loss
from kinspace.regularizers import Divergence, divergence
from tables import lengths, squares


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


DTYPES = [torch.float64, torch.float32]
Distances = Callable[..., Tensor]
OF_BOTH_KINDS = pytest.mark.parametrize(
    ("ours", "table"),
    [(squared_distances, squares), (euclidean_distances, lengths)],
    ids=["squared", "euclidean"],
)


def slopes(function: Distances, inputs: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The distances, and the gradients of a weighted sum of them that favors no pair."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    found = function(*leaves)
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    return found.detach(), list(torch.autograd.grad((found * weights).sum(), leaves))


@pytest.mark.parametrize("kind", LARGE_BATCHES)
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@OF_BOTH_KINDS
def test_distances_are_exact_however_close_the_rows(
    ours: Distances, table: Distances, kind: str, cross: bool, dtype: torch.dtype
) -> None:
    x = LARGE_BATCHES[kind].embeddings.to(dtype)
    inputs = [x, x[torch.arange(0, 96, 2)]] if cross else [x]  # every other row is in both
    assert len(x) * len(inputs[-1]) * x.shape[1] > vectors.FEW_NUMBERS
    found, gradients = slopes(ours, inputs)
    expected, wanted = slopes(table, [tensor.double() for tensor in inputs])
    exact = dtype == torch.float64
    torch.testing.assert_close(found.double(), expected, rtol=1e-9 if exact else 1e-5, atol=0.0)
    for gradient, want in zip(gradients, wanted, strict=True):
        gap = (gradient.double() - want).abs().max()
        assert gap <= (1e-9 if exact else 1e-5) * want.abs().max()


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=["far", "close"])
@OF_BOTH_KINDS
def test_the_product_form_has_first_and_second_derivatives(
    ours: Distances,
    table: Distances,
    spread: float,
    cross: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)
    batch = random_batch(2, classes=2, per_class=3, dim=3, scale=spread, separation=1 / spread)
    x = batch.embeddings[:4].requires_grad_()
    y = batch.embeddings[4:].detach().requires_grad_()
    inputs = (x, y) if cross else (x,)
    eps = 1e-3 * spread

    # The distance of a row to itself has no slope to compare with: off the diagonal only.
    def call(*tensors: Tensor) -> Tensor:
        found = ours(*tensors)
        return found if cross else found[~torch.eye(len(found), dtype=torch.bool)]

    tolerance = {"eps": eps, "rtol": 1e-4, "atol": 1e-6 / spread}
    assert torch.autograd.gradcheck(call, inputs, **tolerance)
    assert torch.autograd.gradgradcheck(call, inputs, **tolerance)


def test_paired_distances_are_those_of_the_table() -> None:
    x = random_batch(3, classes=3, per_class=3, dim=40).embeddings.requires_grad_()
    # a pair in both orders, a pair twice, a sample with itself; then more pairs than the table has
    first, second = torch.tensor([0, 1, 4, 4, 7]), torch.tensor([1, 0, 8, 8, 7])
    for times in (1, 20):
        pairs = first.repeat(times), second.repeat(times)
        weights = torch.linspace(-1, 2, len(pairs[0]), dtype=x.dtype)
        expected = torch.linalg.vector_norm(x[pairs[0]] - x[pairs[1]], dim=1)
        found = paired_distances(x, *pairs)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
        (wanted,) = torch.autograd.grad((expected * weights).sum(), x)
        (gradient,) = torch.autograd.grad((found * weights).sum(), x)
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-12)


def test_many_close_pairs_are_computed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)
    monkeypatch.setattr(vectors, "MANY_NUMBERS", 0)
    x = LARGE_BATCHES["tight"].embeddings.float()
    for inputs in ([x], [x, x[::2]]):
        found, gradients = slopes(euclidean_distances, inputs)
        expected, wanted = slopes(lengths, [tensor.double() for tensor in inputs])
        assert found.dtype == gradients[0].dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0.0)
        for gradient, want in zip(gradients, wanted, strict=True):
            assert (gradient.double() - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize("limit", [0, 2**18], ids=["product", "differences"])
def test_identical_rows_are_at_distance_zero_with_no_gradient(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", limit)
    row = torch.randn(1, 16) * 1e3
    for x in (row.repeat(5, 1), torch.zeros(5, 16)):
        leaf = x.clone().requires_grad_()
        for found in (euclidean_distances(leaf), euclidean_distances(leaf, x)):
            assert found.eq(0).all()
            (gradient,) = torch.autograd.grad(found.sum(), leaf)
            assert gradient.eq(0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_the_product_form_holds_at_any_scale(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)
    x = random_batch(4, classes=4, per_class=4, dim=8, scale=scale).embeddings
    torch.testing.assert_close(euclidean_distances(x), lengths(x), rtol=1e-12, atol=0.0)


def test_listed_pairs_may_have_any_shape() -> None:
    x = random_batch(3, classes=3, per_class=3, dim=5).embeddings
    first, second = torch.tensor([[0, 1], [4, 7]]), torch.tensor([[2, 1], [8, 0]])
    expected = torch.linalg.vector_norm(x[first] - x[second], dim=2)
    for times in (1, 40):  # one by one, and by a table of all pairs
        found = paired_distances(x, first.repeat(times, 1), second.repeat(times, 1))
        torch.testing.assert_close(found, expected.repeat(times, 1), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("limit", [0, 2**18], ids=["product", "differences"])
def test_distances_of_half_precision_rows_are_those_of_float32(
    limit: int, half: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", limit)
    x = random_batch(5, dim=16).embeddings.to(half)
    expected = euclidean_distances(x.float())
    assert torch.equal(euclidean_distances(x), expected)
    with torch.autocast("cpu", dtype=half):
        assert torch.equal(euclidean_distances(x.float()), expected)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@OF_BOTH_KINDS
def test_traced_distances_are_those_of_eager(
    ours: Distances, table: Distances, cross: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)  # tracing takes the differences all the same
    x, y = random_batch(6, dim=8).embeddings, random_batch(7, dim=8).embeddings
    given = (x, y) if cross else (x,)
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*given), table(*given), rtol=1e-12, atol=0.0)
    stacked = torch.func.vmap(ours)(*(torch.stack([each, 2 * each]) for each in given))
    expected = torch.stack([table(*given), table(*(2 * each for each in given))])
    torch.testing.assert_close(stacked, expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("limit", [0, 2**18], ids=["product", "differences"])
def test_a_row_that_is_not_finite_is_not_hidden(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", limit)
    x = random_batch(8, dim=8).embeddings
    x[3, 2] = torch.nan
    found = squared_distances(x)
    others = torch.arange(len(x)) != 3
    assert found[3, others].isnan().all()
    assert found[others, 3].isnan().all()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_off_diagonal_leaves_out_the_diagonal(size: int) -> None:
    matrix = torch.randn(size, size)
    found = off_diagonal(matrix)
    assert found.shape == (size, size - 1)
    for i in range(size):
        assert found[i].tolist() == [matrix[i, j].item() for j in range(size) if j != i]


def test_a_filled_diagonal_has_no_gradient_and_leaves_the_matrix_as_it_is() -> None:
    matrix = torch.randn(3, 3, requires_grad=True)
    before = matrix.detach().clone()
    found = fill_diagonal(matrix, 7.0)
    assert found.diagonal().tolist() == [7.0] * 3
    (gradient,) = torch.autograd.grad(found.sum(), matrix)
    assert torch.equal(gradient, 1 - torch.eye(3))
    assert torch.equal(matrix.detach(), before)


SIZES = (1, 3, 2)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 19])
@pytest.mark.parametrize("groups", [1, 2, 3, 8])
def test_a_number_shares_the_dimensions_out_evenly(groups: int, dim: int) -> None:
    sizes = group_sizes(groups, dim)
    assert sum(sizes) == dim
    assert len(sizes) == min(groups, dim)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_a_zero_group_stays_zero_with_a_finite_gradient() -> None:
    x = torch.tensor([[0.0, 0.0, 3.0], [1.0, 0.0, 0.0]], requires_grad=True)
    found = unit_groups(x, [2, 1])
    found.sum().backward()
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, half], [half, 0.0, 0.0]]))
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_losses_on_groups_of_given_sizes_agree_with_the_loops() -> None:
    x, labels = random_batch(4, classes=4, per_class=4, dim=6)
    found: list[tuple[Tensor, Tensor, Tensor]] = [
        (
            bier_loss(x, labels, groups=SIZES),
            BIER(groups=SIZES)(x, labels),
            loops.bier_loss(x, labels, groups=SIZES),
        ),
        (
            hdc_loss(x, labels, groups=SIZES),
            HDC(groups=SIZES)(x, labels),
            loops.hdc_loss(x, labels, groups=SIZES),
        ),
        (
            divergence(x, groups=SIZES),
            Divergence(groups=SIZES)(x, labels),
            loops.divergence(x, groups=SIZES),
        ),
    ]
    for by_function, by_module, expected in found:
        assert torch.equal(by_module, by_function)
        torch.testing.assert_close(by_function, expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("module", [BIER, HDC, Divergence])
@pytest.mark.parametrize("groups", [0, -1, True, 2.0, "3", [], [2, 0, 1], [1.0, 2, 3]])
def test_wrong_groups_are_named(module: type, groups: object) -> None:
    with pytest.raises(ValueError, match=r"^groups: expected"):
        module(groups=groups)
