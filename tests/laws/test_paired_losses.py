"""Losses of two tables with a row for each sample: against loops, and the laws of all losses."""

import inspect
import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kinspace.losses
import loops
from gradients import disagreement, evaluate
from kinspace.losses import PAIRED_LOSSES, InfoNCE, Matryoshka, ProxyAnchor, SigmoidPair, SupCon
from loops import log1p_sum_exp, mean_of

Views = dict[str, Tensor]


def two_views(seed: int, *, rows: int = 6, dim: int = 4, other: int | None = None) -> Views:
    """A table, and one that is near to it; or of another dimension."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, other or dim, generator=generator, dtype=torch.float64)
    return {"first": first, "second": noise if other else first + 0.7 * noise}


# --- the loops -----------------------------------------------------------------------------------


def info_nce_loss(
    x: Tensor, y: Tensor, temperature: float = 0.07, symmetric: bool = False
) -> Tensor:
    def one_way(queries: list[Tensor], keys: list[Tensor]) -> Tensor:
        terms = []
        for i, query in enumerate(queries):
            logits = [loops.dot(query, key) / temperature for key in keys]
            terms.append(loops.own_against_others(logits, i, logits[i]))
        return mean_of(terms, loops.zero_with_grad(x, y))

    queries, keys = loops.units(x), loops.units(y)
    forth = one_way(queries, keys)
    return (forth + one_way(keys, queries)) / 2 if symmetric else forth


def sigmoid_pair_loss(x: Tensor, y: Tensor, scale: float = 10.0, bias: float = -10.0) -> Tensor:
    total = loops.zero_with_grad(x, y)
    for i, query in enumerate(loops.units(x)):
        for j, key in enumerate(loops.units(y)):
            logit = scale * loops.dot(query, key) + bias
            total = total + log1p_sum_exp([-logit if i == j else logit])
    return total / len(x)


def vicreg_loss(
    x: Tensor,
    y: Tensor,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    eps: float = 1e-4,
) -> Tensor:
    rows, dim = x.shape
    apart = sum(loops.squared_distance(a, b) for a, b in zip(x, y, strict=True)) / (rows * dim)
    total = invariance * apart
    for view in (x, y):
        columns = [column - column.mean() for column in view.T]
        for k, first in enumerate(columns):
            for other, second in enumerate(columns):
                shared = loops.dot(first, second) / max(1, rows - 1)
                if k == other:
                    total = total + variance * loops.hinge(1 - (shared + eps).sqrt()) / dim / 2
                else:
                    total = total + covariance * shared**2 / dim
    return total


def barlow_twins_loss(x: Tensor, y: Tensor, redundancy: float = 5e-3) -> Tensor:
    total = loops.zero_with_grad(x, y)
    for k, first in enumerate(x.T):
        for other, second in enumerate(y.T):
            shared = loops.dot(loops.unit(first - first.mean()), loops.unit(second - second.mean()))
            total = total + ((1 - shared) ** 2 if k == other else redundancy * shared**2)
    return total


def huber(difference: Tensor) -> Tensor:
    size = abs(difference.item())
    return difference**2 / 2 if size < 1 else difference.abs() - 0.5


def relational_distance_loss(x: Tensor, teacher: Tensor) -> Tensor:
    zero, teacher = loops.zero_with_grad(x, teacher), teacher.detach()
    pairs = list(permutations(range(len(x)), 2))

    def relative(table: Tensor) -> list[Tensor]:
        distances = [loops.distance(table[i], table[j]) for i, j in pairs]
        mean = mean_of(distances, zero)
        return distances if mean.item() == 0 else [d / mean for d in distances]

    both = zip(relative(x), relative(teacher), strict=True)
    return mean_of([huber(a - b) for a, b in both], zero)


def relational_angle_loss(x: Tensor, teacher: Tensor) -> Tensor:
    def cosine(table: Tensor, i: int, j: int, k: int) -> Tensor:
        return loops.dot(loops.unit(table[i] - table[j]), loops.unit(table[k] - table[j]))

    zero, teacher = loops.zero_with_grad(x, teacher), teacher.detach()
    corners = permutations(range(len(x)), 3)
    return mean_of([huber(cosine(x, *c) - cosine(teacher, *c)) for c in corners], zero)


LOOPS: dict[str, Callable[..., Tensor]] = {
    "barlow_twins": barlow_twins_loss,
    "info_nce": info_nce_loss,
    "relational_angle": relational_angle_loss,
    "relational_distance": relational_distance_loss,
    "sigmoid_pair": sigmoid_pair_loss,
    "vicreg": vicreg_loss,
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "barlow_twins": [{}, {"redundancy": 0.5}],
    "info_nce": [{}, {"temperature": 0.5}, {"symmetric": True}],
    "sigmoid_pair": [{}, {"scale": 3.0, "bias": 0.5}],
    "vicreg": [{}, {"invariance": 1.0, "variance": 2.0, "covariance": 3.0, "eps": 0.1}],
}
CALLS = [(name, options) for name in LOOPS for options in OPTIONS.get(name, [{}])]
EVERY_CALL = pytest.mark.parametrize(("name", "options"), CALLS)
EVERY_LOSS = pytest.mark.parametrize("name", LOOPS)
TABLES = {"negatives"}  # given with the views, no option of the module
TO_TEACHERS = {"relational_angle", "relational_distance"}
COSINE = {"info_nce", "sigmoid_pair"}


def function_of(name: str) -> Callable[..., Tensor]:
    return getattr(kinspace.losses, f"{name}_loss")  # type: ignore[no-any-return]


def batches(name: str) -> dict[str, Views]:
    found = {f"seed {seed}": two_views(seed, rows=4 + seed, dim=3 + seed) for seed in range(3)}
    if name in TO_TEACHERS:
        found["another dimension"] = two_views(3, other=7)
    x = two_views(4)["first"]
    found["zero rows"] = {"first": x * (torch.arange(6) > 1)[:, None], "second": x}
    found["one row"] = two_views(5, rows=1)
    found["two rows"] = two_views(5, rows=2)
    found["all zero"] = {"first": torch.zeros_like(x), "second": torch.zeros_like(x)}
    found["equal rows"] = {"first": torch.ones_like(x), "second": x}
    found["the same"] = {"first": x, "second": x.clone()}
    return found


def test_every_loss_has_a_loop() -> None:
    assert set(LOOPS) == set(PAIRED_LOSSES)
    for name, options in OPTIONS.items():
        known = inspect.signature(function_of(name)).parameters
        tried = {key for each in options for key in each} | {"reduction", *TABLES}
        assert {key for key, p in known.items() if p.kind is p.KEYWORD_ONLY} <= tried


@EVERY_CALL
def test_agrees_with_the_loop(name: str, options: dict[str, Any]) -> None:
    problems = []
    for kind, views in batches(name).items():
        found = evaluate(function_of(name), views, options)
        problem = disagreement(found, evaluate(LOOPS[name], views, options), gradient_floor=1e-11)
        if problem is not None:
            problems.append(f"{kind}: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@EVERY_CALL
def test_is_finite_on_degenerate_views(name: str, options: dict[str, Any], scale: float) -> None:
    for kind, views in batches(name).items():
        given = {key: scale * value for key, value in views.items()}
        for dtype in (torch.float32, torch.float64):
            found = evaluate(function_of(name), given, options, dtype=dtype)
            assert math.isfinite(found.value), kind
            assert all(slope.isfinite().all() for slope in found.gradients.values()), kind


@EVERY_CALL
def test_derivatives_are_those_of_finite_differences(name: str, options: dict[str, Any]) -> None:
    first, second = (view.requires_grad_() for view in two_views(1, rows=4, dim=3).values())
    fixed = name in TO_TEACHERS

    def call(x: Tensor, y: Tensor = second) -> Tensor:
        return function_of(name)(x, y, **options)

    leaves = [first] if fixed else [first, second]
    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves)


@EVERY_LOSS
def test_one_compiled_graph_and_torch_func_give_the_same(name: str) -> None:
    views = two_views(1)
    expected = evaluate(function_of(name), views)
    torch._dynamo.reset()
    compiled = torch.compile(function_of(name), fullgraph=True, backend="aot_eager", dynamic=False)
    assert disagreement(evaluate(compiled, views), expected, gradient=1e-9) is None
    found = torch.func.grad(function_of(name))(*views.values())
    torch.testing.assert_close(found, expected.gradients["first"])
    stack = torch.stack([two_views(seed)["first"] for seed in range(3)])
    batched = torch.func.vmap(lambda x: function_of(name)(x, views["second"]))(stack)
    alone = torch.stack([function_of(name)(x, views["second"]) for x in stack])
    torch.testing.assert_close(batched, alone)


@EVERY_LOSS
def test_half_precision_and_autocast_give_the_result_of_float32(name: str) -> None:
    first, second = two_views(1).values()
    for half in (torch.float16, torch.bfloat16):
        x, y = first.to(half), second.to(half)
        expected = function_of(name)(x.float(), y.float())
        with torch.autocast("cpu", dtype=half):
            found = function_of(name)(x, y)
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)


@EVERY_LOSS
def test_embeddings_that_are_no_numbers_give_a_loss_that_is_none(name: str) -> None:
    first, second = two_views(1).values()
    for which in range(2):
        views = [first.clone(), second.clone()]
        views[which][2, 1] = math.nan
        assert not function_of(name)(*views).isfinite()


@EVERY_LOSS
def test_ignores_the_order_of_the_rows(name: str) -> None:
    first, second = two_views(1).values()
    order = torch.randperm(len(first))
    found = function_of(name)(first[order], second[order])
    torch.testing.assert_close(found, function_of(name)(first, second))


@pytest.mark.parametrize("name", sorted(COSINE))
def test_a_cosine_loss_ignores_lengths_and_takes_any_reduction(name: str) -> None:
    first, second = two_views(1).values()
    lengths = torch.linspace(0.5, 2.0, len(first), dtype=torch.float64)[:, None]
    mean = function_of(name)(first, second)
    torch.testing.assert_close(function_of(name)(lengths * first, second * 3), mean)
    terms = function_of(name)(first, second, reduction="none")
    assert terms.shape == (len(first),)
    torch.testing.assert_close(terms.mean(), mean)
    torch.testing.assert_close(function_of(name)(first, second, reduction="sum"), terms.sum())


@EVERY_LOSS
def test_a_module_gives_what_its_function_gives(name: str) -> None:
    views = two_views(1)
    module, function = PAIRED_LOSSES[name](), function_of(name)
    assert torch.equal(module(*views.values()), function(*views.values()))
    mine = inspect.signature(PAIRED_LOSSES[name]).parameters
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in TABLES:
            assert mine[parameter.name].default == parameter.default


@pytest.mark.parametrize("kind", [InfoNCE, SigmoidPair])
def test_numbers_may_be_learnt(kind: type[nn.Module]) -> None:
    names = {InfoNCE: ["temperature"], SigmoidPair: ["scale", "bias"]}[kind]
    learnt = {name: nn.Parameter(torch.tensor(0.5, dtype=torch.float64)) for name in names}
    module = kind(**learnt)
    module(*two_views(1).values()).backward()
    assert [name for name, p in module.named_parameters() if p.grad is not None] == names


@EVERY_LOSS
def test_wrong_tables_and_options_are_named_with_what_came(name: str) -> None:
    function = function_of(name)
    first, second = two_views(1).values()
    names = list(inspect.signature(function).parameters)[:2]
    for wrong, which, came in [
        ((first[0], second), 0, r"\(4,\)"),
        ((first.long(), second), 0, "int64"),
        ((first, second.long()), 1, "int64"),
        ((first[:0], second[:0]), 0, r"\(0, 4\)"),
        ((first, second[:-1]), 1, r"\(5, 4\)"),
    ]:
        with pytest.raises(ValueError, match=rf"^{names[which]}: expected .*{came}"):
            function(*wrong)
    if name not in TO_TEACHERS:
        with pytest.raises(ValueError, match=rf"^{names[1]}: expected 4 columns .*\(6, 3\)"):
            function(first, second[:, :3])
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.default, float):
            for value in (math.nan, math.inf, "1"):
                with pytest.raises(ValueError, match=rf"^{parameter.name}: expected"):
                    function(first, second, **{parameter.name: value})


# --- Matryoshka ----------------------------------------------------------------------------------


def test_matryoshka_is_the_weighted_mean_over_leading_dimensions() -> None:
    x, labels = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    found = Matryoshka(SupCon(), dims=(2, 3, 6), weights=(1, 2, 5))(x, labels)
    parts = [SupCon()(x[:, :dim], labels) for dim in (2, 3, 6)]
    torch.testing.assert_close(found, (parts[0] + 2 * parts[1] + 5 * parts[2]) / 8)
    terms = Matryoshka(SupCon(reduction="none"), dims=(2, 6))(x, labels)
    assert terms.shape == (8,)


def test_matryoshka_holds_a_module_for_each_number_of_dimensions() -> None:
    x, labels = torch.randn(8, 6), torch.arange(8) % 3
    criterion = Matryoshka([ProxyAnchor(3, 2), ProxyAnchor(3, 6)], dims=(2, 6), normalize=True)
    criterion(x, labels).backward()
    assert [tuple(p.shape) for p in criterion.parameters()] == [(3, 2), (3, 6)]
    assert all(p.grad is not None for p in criterion.parameters())


def test_matryoshka_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"^loss: expected one, or one for each of 3"):
        Matryoshka([SupCon(), SupCon()], dims=(2, 3, 4))
    with pytest.raises(ValueError, match=r"^weights: expected 2"):
        Matryoshka(SupCon(), dims=(2, 3), weights=(1.0,))
    with pytest.raises(ValueError, match=r"^embeddings: expected a matrix of at least 6 columns"):
        Matryoshka(SupCon(), dims=(2, 6))(torch.randn(3, 4), torch.arange(3))


def test_further_negatives_stand_in_the_sum_of_each_query() -> None:
    x, y = two_views(3).values()
    more = two_views(4)["first"]
    given = {"x": x, "y": y, "more": more}
    own = range(len(x))

    def call(x: Tensor, y: Tensor, more: Tensor, symmetric: bool = False) -> Tensor:
        return InfoNCE(temperature=0.5, symmetric=symmetric)(x, y, negatives=more)  # type: ignore[no-any-return]

    def loop(x: Tensor, y: Tensor, more: Tensor) -> Tensor:
        keys = [*loops.units(y), *loops.units(more)]
        logits = [[loops.dot(q, key) / 0.5 for key in keys] for q in loops.units(x)]
        return mean_of(
            [loops.own_against_others(logits[i], i, logits[i][i]) for i in own], x.sum() * 0
        )

    assert disagreement(evaluate(call, given), evaluate(loop, given)) is None
    back = 2 * info_nce_loss(x, y, 0.5, symmetric=True) - info_nce_loss(x, y, 0.5)
    found = call(x, y, more, symmetric=True)
    torch.testing.assert_close(found, (loop(x, y, more) + back) / 2)
    with pytest.raises(ValueError, match=r"^negatives: expected 4 columns"):
        InfoNCE()(x, y, negatives=more[:, :2])


def test_two_views_of_each_picture_are_labels_of_their_numbers() -> None:
    """NT-Xent on both views is the loss of SimCLR, each view a query among all others."""
    x, y = two_views(3).values()
    views = torch.cat([x, y])
    found = kinspace.losses.nt_xent_loss(views, torch.arange(6).repeat(2), temperature=0.5)
    logits = [[loops.dot(a, b) / 0.5 for b in loops.units(views)] for a in loops.units(views)]
    terms = []
    for i, row in enumerate(logits):
        others = torch.stack([logit for j, logit in enumerate(row) if j != i])
        terms.append(others.logsumexp(0) - row[(i + 6) % 12])
    torch.testing.assert_close(found, torch.stack(terms).mean())
