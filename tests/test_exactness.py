"""Every method against worked cases, an independent loop, and tables of differences."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kinspace.losses
import kinspace.miners
import kinspace.numerics
import kinspace.regularizers
import loops
from batches import DEGENERATE_BATCHES, Batch, random_batch
from gradients import Result, disagreement, evaluate
from kinspace import distances
from kinspace.distances import euclidean_distances, squared_distances
from kinspace.losses import n_pair
from methods import METHODS, Method
from reference_cases import Case, mapped_cases, read
from tables import TABLES, lengths, squares

PACKAGES = {
    "losses": kinspace.losses,
    "regularizers": kinspace.regularizers,
    "numerics": kinspace.numerics,
    "miners": kinspace.miners,
}

# --- the worked cases ----------------------------------------------------------------------------

CASES = mapped_cases()
DTYPES = [torch.float64, torch.float32]


def function_of(case: Case) -> Callable[..., Tensor]:
    return getattr(PACKAGES[case.module], case.function)  # type: ignore[no-any-return]


def expected_warning(case: Case) -> contextlib.AbstractContextManager[object]:
    if case.function == "power_spread" and case.options["power"] <= 1:
        return pytest.warns(UserWarning, match="collapses")
    return contextlib.nullcontext()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "loss"], ids=lambda case: case.id)
def test_reproduces_the_value_and_the_gradients_of_a_worked_case(
    case: Case, dtype: torch.dtype
) -> None:
    with expected_warning(case):
        found = evaluate(function_of(case), case.tensors, case.options, dtype=dtype)
    assert case.loss is not None
    exact = dtype == torch.float64
    loose = 1e-3 if case.function == "nra_loss" else 1e-4
    problem = disagreement(
        found,
        Result(case.loss, case.grads),
        value=1e-9 if exact else 1e-5,
        gradient=1e-6 if exact else loose,
        value_floor=1e-15 if exact else 1e-7,  # ncm__000 is 1e-9, rounded at 1e-16
        gradient_floor=0.0 if exact else 1e-7,
    )
    assert problem is None, problem


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "output"], ids=lambda case: case.id)
def test_reproduces_the_output_of_a_worked_case(case: Case, dtype: torch.dtype) -> None:
    tensors = [t.to(dtype) if t.is_floating_point() else t for t in case.tensors.values()]
    options = dict(case.options)
    anchor = options.pop("anchor", None)  # the miner gives all anchors at once, one row each
    output = function_of(case)(*tensors, **options)
    output = output if anchor is None else output[anchor]
    assert case.output is not None
    rtol, atol = (1e-9, 1e-14) if dtype == torch.float64 else (1e-5, 1e-6)
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), case.output, rtol=rtol, atol=atol)


@pytest.mark.parametrize("stem", ["ncm__000", "ncm__001"])
def test_ncm_of_a_linear_map_has_the_gradient_of_the_worked_case(stem: str) -> None:
    """Of Eq. 9, where the means are those of the raw inputs and the map is what is learnt."""
    _, arrays = read(stem)
    weight = arrays["in_W"].requires_grad_()
    mapped = arrays["in_X"] @ weight.T, arrays["in_y"], arrays["in_means"] @ weight.T
    loss = kinspace.losses.ncm_loss(*mapped)
    (gradient,) = torch.autograd.grad(loss, weight)
    expected = Result(arrays["loss"].item(), {"weight": arrays["grad_W"]})
    problem = disagreement(Result(loss.item(), {"weight": gradient}), expected)
    assert problem is None, problem


# --- hundreds of further cases, against the loops ------------------------------------------------

SCALES = [0.3, 1.0, 3.0, 0.01, 20.0]


def further_batch(seed: int) -> Batch:
    """2 to 5 classes of 2 or 3, in 2 to 6 dimensions; every other batch lacks its last samples."""
    batch = random_batch(
        seed,
        classes=2 + seed % 4,
        per_class=2 + seed // 2 % 2,
        dim=2 + seed % 5,
        scale=SCALES[seed % 5],
        separation=[0.5, 2.0, 0.0][seed % 3],
    )
    kept = len(batch.labels) - (seed % 2) * (1 + seed % 3)
    return Batch(batch.embeddings[:kept], batch.labels[:kept])


FURTHER_BATCHES = {f"seed {seed}": further_batch(seed) for seed in range(12)}
METHODS_WITH_OPTIONS = [
    pytest.param(method, options, id=f"{method.name}{number}-{options}")
    for number, method in enumerate(METHODS)
    for options in method.options
]


@pytest.mark.parametrize(("method", "options"), METHODS_WITH_OPTIONS)
def test_agrees_with_the_loop(method: Method, options: dict[str, Any]) -> None:
    problems = []
    for seed, (name, batch) in enumerate([*FURTHER_BATCHES.items(), *DEGENERATE_BATCHES.items()]):
        arguments = method.arguments(batch, seed)
        found = evaluate(method.function, arguments, options)
        expected = evaluate(getattr(loops, method.name), arguments, options)
        scale = batch.embeddings.abs().max().item() or 1.0
        floor = 1e-12 * max(1.0, scale, 1.0 / scale)
        problem = disagreement(found, expected, gradient_floor=floor)
        if problem is not None:
            problems.append(f"{name}: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", ["virtual_points", "update_centers"])
def test_agrees_with_the_loop_in_every_entry(name: str) -> None:
    for seed, batch in enumerate([*FURTHER_BATCHES.values(), *DEGENERATE_BATCHES.values()]):
        centers = batch.embeddings.new_empty(8, batch.embeddings.shape[1]).normal_()
        given = [batch.embeddings, batch.labels, centers]
        given = given if name == "virtual_points" else [centers, *given[:2]]
        found = getattr(kinspace.losses, name)(*given)
        expected = getattr(loops, name)(*given)
        torch.testing.assert_close(
            found, expected, rtol=1e-9, atol=1e-12, msg=lambda text, seed=seed: f"{seed}: {text}"
        )


# --- larger batches, over the limit of what distances.py does by differences ---------------------

PER_CLASS, DIM = 12, 64


def large(scale: float = 0.1, separation: float = 1.0) -> Batch:
    return random_batch(
        1, classes=8, per_class=PER_CLASS, dim=DIM, scale=scale, separation=separation
    )


def large_batches() -> dict[str, Batch]:
    plain = large()
    duplicated = plain.embeddings.clone()
    duplicated[5:20] = duplicated[30:45]
    duplicated[50] = duplicated[51] = duplicated[52]
    return {
        "plain": plain,
        "tight": large(scale=1e-5, separation=1e4),  # noise of 1e-4 around means of length near 1
        "duplicated": Batch(duplicated, plain.labels),
        "offset": Batch(plain.embeddings + 100.0, plain.labels),
        "tight and offset": Batch(large(1e-3, 1e2).embeddings + 100.0, plain.labels),
    }


LARGE_BATCHES = large_batches()
LARGE_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("contrastive_loss", {}),
    ("contrastive_loss", {"reduction": "sum"}),
    ("triplet_loss", {}),
    ("triplet_loss", {"squared": False, "reduction": "sum", "margin": 0.2}),
    ("triplet_loss", {"reduction": "mean_active", "margin": 0.1}),
    ("triplet_loss", {"mining": "semi_hard"}),
    ("triplet_loss", {"mining": "batch_hard", "squared": False}),
    ("lifted_structure_loss", {}),
    ("nca_loss", {}),
    ("nra_loss", {}),
    ("nra_loss", {"alpha": 1.0, "detach_range": True}),
    ("magnet_loss", {}),
    ("magnet_loss", {"sharpness": 4.0, "alpha": 7.18}),
    ("cluster_nca_loss", {}),
    ("ncm_loss", {}),
    ("hyperspherical_energy", {}),
    ("hyperspherical_energy", {"power": 2.0}),
    ("uniform_spread", {}),
    ("entropy", {"bandwidth": 0.5}),
]
LARGE_IDS = [f"{name}-{options}" for name, options in LARGE_CALLS]
METHOD_OF = {method.name: method for method in METHODS}
# A unit vector rounds at 6e-8 in float32: of a chord of 1e-4 only three digits are left, whoever
# computes it. These methods are held to the tolerance of float32 on the other batches.
ON_UNIT_VECTORS = {"hyperspherical_energy", "uniform_spread"}


@pytest.mark.parametrize(("name", "options"), LARGE_CALLS, ids=LARGE_IDS)
def test_a_table_of_differences_agrees_with_the_loop(name: str, options: dict[str, Any]) -> None:
    """The larger oracle is itself held against the smaller one."""
    batch = random_batch(3, classes=3, per_class=4, dim=5)
    if name in ("magnet_loss", "cluster_nca_loss"):
        batch = random_batch(3, classes=8, per_class=2, dim=5)  # the table wants all clusters
    arguments = METHOD_OF[name].arguments(batch, 0)
    problem = disagreement(
        evaluate(TABLES[name], arguments, options),
        evaluate(getattr(loops, name), arguments, options),
    )
    assert problem is None, problem


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "options"), LARGE_CALLS, ids=LARGE_IDS)
def test_agrees_with_a_table_of_differences_on_large_batches(
    name: str, options: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "SMALL", 0)  # Magnet's table of means is under the limit
    method = METHOD_OF[name]
    exact = dtype == torch.float64
    problems = []
    for number, (kind, batch) in enumerate(LARGE_BATCHES.items()):
        if "tight" in kind and name in ON_UNIT_VECTORS and not exact:
            continue
        # rounded first: the test is about the arithmetic, not about the input's last digit
        rounded = Batch(batch.embeddings.to(dtype).double(), batch.labels)
        arguments = method.arguments(rounded, number)
        problem = disagreement(
            evaluate(method.function, arguments, options, dtype=dtype),
            evaluate(TABLES[name], arguments, options),
            value=1e-9 if exact else 1e-5,
            gradient=1e-6 if exact else (1e-3 if name == "nra_loss" else 1e-4),
            value_floor=1e-12 if exact else 1e-7,
            gradient_floor=1e-12 if exact else 1e-7,
        )
        if problem is not None:
            problems.append(f"{kind}: {problem}")
    assert not problems, "\n".join(problems)


# --- the distances themselves --------------------------------------------------------------------

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
    assert len(x) * len(inputs[-1]) * x.shape[1] > distances.SMALL
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
    monkeypatch.setattr(distances, "SMALL", 0)
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


@pytest.mark.parametrize("limit", [0, 2**18], ids=["product", "differences"])
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=["far", "close"])
@pytest.mark.parametrize("kind", ["squared", "euclidean", "cross"])
def test_the_pull_of_distances_is_their_gradient(
    kind: str, spread: float, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "SMALL", limit)
    x = random_batch(2, classes=2, per_class=4, dim=3, scale=spread, separation=1 / spread)
    inputs = [x.embeddings, x.embeddings[::2] + spread] if kind == "cross" else [x.embeddings]
    if kind == "cross":
        found, pull = distances.cross_distances_with_pull(*inputs)
    else:
        found, pull = distances.distances_with_pull(*inputs, root=kind == "euclidean")
    function = euclidean_distances if kind == "euclidean" else squared_distances
    expected, wanted = slopes(function, inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    gradients = pull(weights)
    for got, want in zip([gradients] if len(inputs) == 1 else gradients, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12 * spread)


@pytest.mark.parametrize("limit", [0, 100], ids=["table", "one by one"])
def test_listed_distances_and_their_pull_are_those_of_differences(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "LISTED", limit)
    x = random_batch(3, classes=3, per_class=3, dim=40).embeddings.requires_grad_()
    # a pair in both orders, a pair twice, a sample with itself
    first, second = torch.tensor([0, 1, 4, 4, 7]), torch.tensor([1, 0, 8, 8, 7])
    weights = torch.linspace(-1, 2, len(first), dtype=x.dtype)
    expected = torch.linalg.vector_norm(x[first] - x[second], dim=1)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), x)
    found, pull = distances.listed_distances_with_pull(x.detach(), first, second)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(pull(weights), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("per_class", [1, 2, 3])
def test_n_pair_on_a_symmetric_table_is_n_pair_with_shifted_exponents(
    per_class: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = random_batch(5, classes=4, per_class=per_class, dim=6)
    arguments = {"embeddings": batch.embeddings, "labels": batch.labels}
    monkeypatch.setattr(n_pair, "MODERATE", 0.0)
    expected = evaluate(n_pair.n_pair_loss, arguments)
    monkeypatch.setattr(n_pair, "MODERATE", math.inf)
    found = evaluate(n_pair.n_pair_loss, arguments)
    problem = disagreement(found, expected, value=1e-12, gradient=1e-12)
    assert problem is None, problem


@pytest.mark.parametrize("limit", [0, 2**18], ids=["product", "differences"])
def test_identical_rows_are_at_distance_zero_with_no_gradient(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "SMALL", limit)
    row = torch.randn(1, 16) * 1e3
    for x in (row.repeat(5, 1), torch.zeros(5, 16)):
        leaf = x.clone().requires_grad_()
        for found in (euclidean_distances(leaf), euclidean_distances(leaf, x)):
            assert found.eq(0).all()
            (gradient,) = torch.autograd.grad(found.sum(), leaf)
            assert gradient.eq(0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_the_product_form_holds_at_any_scale(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "SMALL", 0)
    x = random_batch(4, classes=4, per_class=4, dim=8, scale=scale).embeddings
    torch.testing.assert_close(euclidean_distances(x), lengths(x), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_that_overflow_are_the_largest_number(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    points = torch.tensor([[-largest], [largest], [0.0]], dtype=dtype)
    found, tops = distances.finite_distances(points)(torch.arange(3))
    assert found.isfinite().all()
    assert found[0, 1] == tops.max() == largest
