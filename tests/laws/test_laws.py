"""Laws that hold for every loss and every regularizer, as function and as module.

Named sets cover both registries: a method that is added without being covered fails here.
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import kinspace.losses
import kinspace.numerics
import kinspace.regularizers
import loops
from batches import DEGENERATE_BATCHES, NUM_CLASSES, Batch, random_batch, random_centers
from gradients import Result, disagreement, evaluate
from kinspace.losses import LOSSES, PAIRED_LOSSES
from kinspace.regularizers import REGULARIZERS
from methods import (
    EVERY_METHOD,
    METHODS,
    Arguments,
    Method,
    every,
    is_compared,
    is_reduction,
    reduces_samples,
)
from modules import EVERY_MODULE, MODULES, REGISTRIES, required

PACKAGES = {"losses": kinspace.losses, "regularizers": kinspace.regularizers}

# Public functions that are no method of their own, and so not in METHODS: the reason each.
NOT_METHODS = {
    "rank_statistics": "a report on a batch, without gradient",
    **dict.fromkeys(
        (f"{name}_loss" for name in PAIRED_LOSSES), "two tables of samples: test_paired_losses.py"
    ),
    "update_centers": "moves centers; no value to minimize",
    "virtual_points": "gives points; almn_loss is the loss on them",
    "sample_centers": "draws indices",
}

# Public modules that are no method of their own, and so in no registry.
NOT_REGISTERED = {"CenterSample", "ClassCenters", "CrossBatchMemory", "Matryoshka", "VirtualPoints"}
NOT_REGISTERED |= {kind.__name__ for kind in PAIRED_LOSSES.values()}

# The positive is the next sample of the class in batch order: the order is part of these methods.
ORDERED = {"n_pair_loss", "angular_loss", "n_pair", "angular"}


def by_order(method: Method, options: dict[str, Any]) -> bool:
    """Disjoint triplets too: threes of a class, in batch order."""
    return method.name in ORDERED or options.get("mining") == "disjoint"


# Its negatives are drawn at random, by a seed: another order is another draw.
DRAWN = {"margin"}


# --- what is covered -----------------------------------------------------------------------------


def public_functions(package: str) -> set[str]:
    return {
        name
        for name in PACKAGES[package].__all__
        if inspect.isfunction(getattr(PACKAGES[package], name))
    }


def test_every_module_of_the_registries_is_in_the_table() -> None:
    assert set(LOSSES).isdisjoint(REGULARIZERS)
    assert set(MODULES) == set(LOSSES) | set(REGULARIZERS)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_module_is_registered(package: str) -> None:
    public = {
        name for name in PACKAGES[package].__all__ if inspect.isclass(vars(PACKAGES[package])[name])
    }
    registered = {kind.__name__ for kind in REGISTRIES.values()}
    missing = public - NOT_REGISTERED - registered
    assert not missing, f"src/kinspace/{package}/__init__.py: expected {missing} in the registry"


def test_every_file_of_a_loss_is_registered() -> None:
    files = [file.name for file in pkgutil.iter_modules(kinspace.losses.__path__)]
    modules = {name: importlib.import_module(f"kinspace.losses.{name}") for name in files}
    missing = {name for name in files if hasattr(modules[name], f"{name}_loss")}
    missing -= {*LOSSES, *PAIRED_LOSSES}
    assert not missing, f"src/kinspace/losses/__init__.py: expected {missing} in LOSSES"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_is_in_the_table_of_methods(package: str) -> None:
    tried = {method.name for method in METHODS if method.package == package}
    missing = public_functions(package) - set(NOT_METHODS) - tried
    assert not missing, (
        f"tests/support/methods.py: expected rows for {missing}, whose signatures do not say how"
        " they are called; or, if they are no methods, an entry in NOT_METHODS of this file"
    )


def test_the_list_of_functions_that_are_no_methods_is_not_stale() -> None:
    public = public_functions("losses") | public_functions("regularizers")
    assert set(NOT_METHODS) <= public
    assert set(NOT_METHODS).isdisjoint(method.name for method in METHODS)


@EVERY_METHOD
def test_every_method_has_a_loop_with_the_same_signature(method: Method) -> None:
    def bare(function: Callable[..., Tensor]) -> list[inspect.Parameter]:
        return [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in inspect.signature(function).parameters.values()
            if not (is_reduction(parameter) and reduces_samples(function))  # has laws of its own
            and not is_compared(parameter)  # test_references.py
        ]

    assert bare(method.function) == bare(method.loop)


@EVERY_METHOD
def test_every_option_of_a_method_is_tried(method: Method) -> None:
    options = {
        parameter.name
        for parameter in inspect.signature(method.function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        and not (is_reduction(parameter) and reduces_samples(method.function))
        and not is_compared(parameter)
    }
    tried = {
        name for other in METHODS if other.name == method.name for o in other.options for name in o
    }
    assert options == tried, "tests/support/methods.py: expected every option in a row"


# --- finite and connected, on anything finite ----------------------------------------------------


def named_batches() -> Iterator[tuple[str, Batch]]:
    yield "random", random_batch(0)
    yield from DEGENERATE_BATCHES.items()


def is_finite(result: Result) -> bool:
    return math.isfinite(result.value) and all(
        bool(gradient.isfinite().all()) for gradient in result.gradients.values()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@EVERY_METHOD
def test_is_finite_on_degenerate_batches(method: Method, dtype: torch.dtype) -> None:
    # in float64 every option meets these batches in test_exactness.py
    for options in method.options if dtype == torch.float32 else [{}]:
        for name, batch in named_batches():
            found = evaluate(method.function, method.arguments(batch, 0), options, dtype=dtype)
            assert is_finite(found), (name, options, found.value)


def on_embeddings(
    method: Method,
    options: dict[str, Any],
    batch: Batch,
    dtype: torch.dtype,
    *,
    autocast: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Value, and the gradient of the embeddings (or centers); all else is in float32.

    Only the forward pass runs under autocast, as torch asks for.
    """
    leaf = batch.embeddings.to(dtype, copy=True).requires_grad_()
    arguments = {
        name: leaf
        if tensor is batch.embeddings
        else tensor.float()
        if tensor.is_floating_point()
        else tensor
        for name, tensor in method.arguments(batch, 0).items()
    }
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        value = method.function(*arguments.values(), **options)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


HALVES = pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
# 1e6 is no float16, and slopes of 1e6 at embeddings of 1e-6 are none either.
BEYOND_FLOAT16 = {"tiny_scale", "huge_scale"}


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "plain"])
@HALVES
@EVERY_METHOD
def test_half_precision_embeddings_give_the_result_of_float32(
    method: Method, half: torch.dtype, autocast: bool
) -> None:
    largest = torch.finfo(half).max / 2
    for name, batch in named_batches():
        rounded = batch.embeddings.clamp(-largest, largest).to(half).double()
        batch = Batch(rounded, batch.labels)
        value, gradient = on_embeddings(method, {}, batch, torch.float32)
        cast = half if autocast else None
        found, slope = on_embeddings(method, {}, batch, half, autocast=cast)
        assert found.dtype == torch.float32
        assert slope.dtype == half
        assert torch.equal(found, value), name
        assert torch.equal(slope, gradient.to(half)), name
        if half == torch.bfloat16 or name not in BEYOND_FLOAT16:
            assert slope.isfinite().all(), name


@HALVES
@EVERY_METHOD
def test_autocast_does_not_change_the_result_on_float32_embeddings(
    method: Method, half: torch.dtype
) -> None:
    for options in method.options:
        for name in ("scattered_labels", "some_zero_rows", "tiny_scale", "huge_scale"):
            batch = DEGENERATE_BATCHES[name]
            value, gradient = on_embeddings(method, options, batch, torch.float32)
            found, slope = on_embeddings(method, options, batch, torch.float32, autocast=half)
            assert torch.equal(found, value), (name, options)
            assert torch.equal(slope, gradient), (name, options)
            assert slope.isfinite().all(), (name, options)


def called(module: nn.Module, embeddings: Tensor, labels: Tensor) -> Tensor:
    return module(embeddings, labels)  # type: ignore[no-any-return]


def built(name: str, batch: Batch, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name].build(NUM_CLASSES, batch.embeddings.shape[1]).to(dtype)


def step(
    module: nn.Module,
    batch: Batch,
    dtype: torch.dtype = torch.float64,
    *,
    autocast: torch.dtype | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """One call in training: the value, and the gradients of the embeddings and all parameters."""
    leaf = batch.embeddings.to(dtype, copy=True).requires_grad_()
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        value = called(module, leaf, batch.labels)
    assert value.shape == ()
    leaves = {"embeddings": leaf, **dict(module.named_parameters())}
    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    return value.detach(), {
        key: torch.zeros_like(leaves[key]) if slope is None else slope
        for key, slope in zip(leaves, found, strict=True)
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@EVERY_MODULE
def test_a_module_is_finite_on_degenerate_batches(name: str, dtype: torch.dtype) -> None:
    for kind, batch in named_batches():
        module = built(name, batch, dtype)
        for _ in range(2):  # the second call meets the state the first one left
            value, gradients = step(module, batch, dtype)
            assert value.isfinite(), kind
            assert value.dtype == dtype
            assert all(slope.isfinite().all() for slope in gradients.values()), kind
        assert all(state.isfinite().all() for state in module.state_dict().values()), kind


@HALVES
@EVERY_MODULE
def test_a_module_is_finite_on_half_precision_embeddings_under_autocast(
    name: str, half: torch.dtype
) -> None:
    largest = torch.finfo(half).max / 2
    for kind, batch in named_batches():
        module = built(name, batch, torch.float32)
        rounded = Batch(batch.embeddings.clamp(-largest, largest).to(half), batch.labels)
        value, gradients = step(module, rounded, half, autocast=half)
        assert value.isfinite(), kind
        assert value.dtype == torch.float32
        if half == torch.bfloat16 or kind not in BEYOND_FLOAT16:
            assert all(slope.isfinite().all() for slope in gradients.values()), kind
        assert all(state.isfinite().all() for state in module.state_dict().values()), kind


@HALVES
@EVERY_MODULE
def test_autocast_does_not_change_the_result_of_a_module(
    name: str, half: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The matrix products behind the distances included, which autocast would run in half."""
    monkeypatch.setattr("kinspace._core.vectors.FEW_NUMBERS", 0)
    batch = random_batch(2, classes=4, per_class=4, dim=8)
    value, gradients = step(built(name, batch, torch.float32), batch, torch.float32)
    module = built(name, batch, torch.float32)
    found, slopes = step(module, batch, torch.float32, autocast=half)
    assert torch.equal(found, value)
    for key, slope in slopes.items():
        assert torch.equal(slope, gradients[key]), key


# --- what is not finite is not hidden ------------------------------------------------------------


def finite_values(call: Callable[[Tensor], Tensor], embeddings: Tensor) -> list[str]:
    """Where a call makes a finite number of NaN; an error hides nothing."""
    once = embeddings.clone()
    once[2, 1] = math.nan
    found = []
    for name, spoilt in {"everywhere": math.nan * embeddings, "once": once}.items():
        try:
            value = call(spoilt)
        except RuntimeError:
            continue
        if value.isfinite():
            found.append(f"NaN {name} gives {value.item()}")
    return found


@EVERY_METHOD
def test_embeddings_that_are_no_numbers_give_a_loss_that_is_none(method: Method) -> None:
    """Training stops at a loss that is not finite: one that hid NaN would spoil the weights."""
    batch = random_batch(1, classes=4, per_class=4)
    first, *rest = method.arguments(batch, 0).values()
    assert first is batch.embeddings
    for options in method.options:
        call = partial(lambda options, x: method.function(x, *rest, **options), options)
        assert not finite_values(call, first), options


@EVERY_MODULE
def test_a_module_hides_no_embeddings_that_are_no_numbers(name: str) -> None:
    batch = random_batch(1, classes=4, per_class=4)
    module = built(name, batch)
    assert not finite_values(lambda x: called(module, x, batch.labels), batch.embeddings)


# --- order and names -----------------------------------------------------------------------------


def reordered(arguments: Arguments, order: Tensor, batch: int) -> Arguments:
    """The same batch, its samples in another order."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    found = {}
    for name, tensor in arguments.items():
        if name == "triplets":
            found[name] = place[tensor]
        elif name in ("embeddings", "labels", "clusters") or (name == "centers" and batch == 0):
            found[name] = tensor[order]
        else:
            found[name] = tensor
    return found


@every([method for method in METHODS if method.name not in ORDERED])
def test_ignores_the_order_of_the_batch(method: Method) -> None:
    for seed in range(4):
        batch = random_batch(seed, classes=4, per_class=3)
        order = torch.randperm(len(batch.labels))
        arguments = method.arguments(batch, seed)
        rows = 0 if "embeddings" not in arguments else len(batch.labels)
        for options in method.options:
            if by_order(method, options):
                continue
            expected = evaluate(method.function, arguments, options)
            found = evaluate(method.function, reordered(arguments, order, rows), options)
            moved = {
                name: slope[order] if name == "embeddings" or rows == 0 else slope
                for name, slope in expected.gradients.items()
            }
            problem = disagreement(found, Result(expected.value, moved), gradient=1e-9)
            assert problem is None, (options, problem)


@pytest.mark.parametrize("name", sorted(set(MODULES) - ORDERED - DRAWN))
def test_a_module_ignores_the_order_of_the_batch(name: str) -> None:
    batch = random_batch(1)
    order = torch.randperm(len(batch.labels))
    other = Batch(batch.embeddings[order], batch.labels[order])
    first, second = built(name, batch), built(name, batch)
    for _ in range(2):
        value, gradients = step(first, batch)
        found, slopes = step(second, other)
        torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-12)
        gradients["embeddings"] = gradients["embeddings"][order]
        torch.testing.assert_close(slopes, gradients, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(second.state_dict(), first.state_dict(), rtol=1e-9, atol=1e-12)


def test_the_samples_that_follow_in_a_class_are_what_makes_the_order_matter() -> None:
    """So that by_order says it of no method of which it is not true."""
    embeddings, labels = random_batch(1, classes=3, per_class=4)
    orders = [torch.randperm(len(labels)) for _ in range(5)]
    for method in METHODS:
        for options in method.options:
            if by_order(method, options):
                values = [
                    method.function(embeddings[order], labels[order], **options) for order in orders
                ]
                assert max(values) - min(values) > 1e-3


NAMES = torch.tensor([5, 0, 7, 1, 3, 2, 6, 4])  # what class z is called from now on


@every([method for method in METHODS if "labels" in method.arguments(random_batch(0), 0)])
def test_ignores_what_the_classes_are_called(method: Method) -> None:
    """The rows of centers, proxies and targets follow the names of their classes."""
    per_class = {"centers", "means", "proxies", "weight", "bias", "targets", "original"}
    per_class |= {"spreads", "log_variances", "output"}
    batch = random_batch(3, classes=6)
    arguments = method.arguments(batch, 0)
    renamed = {**arguments, "labels": NAMES[arguments["labels"]]}
    for name in per_class & set(arguments):
        renamed[name] = torch.empty_like(arguments[name]).index_copy(0, NAMES, arguments[name])
    for options in method.options:
        value = method.function(*arguments.values(), **options)
        found = method.function(*renamed.values(), **options)
        torch.testing.assert_close(found, value, rtol=1e-12, atol=1e-12)
        if not per_class & set(arguments):  # then any numbers will do
            renamed["labels"] = arguments["labels"] * 10**15 + 3
            found = method.function(*renamed.values(), **options)
            torch.testing.assert_close(found, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["magnet_loss", "cluster_nca_loss"])
def test_ignores_what_the_clusters_and_their_classes_are_called(name: str) -> None:
    method = next(method for method in METHODS if method.name == name)
    embeddings, clusters, cluster_labels = method.arguments(random_batch(3), 0).values()
    value = method.function(embeddings, clusters, cluster_labels)
    order = torch.randperm(len(cluster_labels))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    found = method.function(embeddings, place[clusters], cluster_labels[order] * 1000 + 7)
    torch.testing.assert_close(found, value, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if not module.per_class])
def test_a_module_without_classes_takes_any_labels(name: str) -> None:
    batch = random_batch(3)
    value = called(built(name, batch), *batch)
    found = called(built(name, batch), batch.embeddings, batch.labels * 10**15 + 3)
    torch.testing.assert_close(found, value, rtol=1e-12, atol=1e-12)


INTEGERS = [torch.int32, torch.int16, torch.int8, torch.uint8]


@EVERY_METHOD
def test_takes_labels_of_any_integer_type(method: Method) -> None:
    arguments = method.arguments(random_batch(4), 0)
    value = method.function(*arguments.values())
    for dtype in INTEGERS:
        cast = [t if t.is_floating_point() else t.to(dtype) for t in arguments.values()]
        assert torch.equal(method.function(*cast), value)


@EVERY_MODULE
def test_a_module_takes_labels_of_any_integer_type(name: str) -> None:
    batch = random_batch(4)
    value = called(built(name, batch), *batch)
    for dtype in INTEGERS:
        found = called(built(name, batch), batch.embeddings, batch.labels.to(dtype))
        assert torch.equal(found, value)


# --- errors --------------------------------------------------------------------------------------

LABELS = ["labels", "clusters"]  # one integer a sample
TABLES = ["centers", "means", "proxies", "weight"]  # one row a class, of the embeddings' dimension
VECTORS = ["targets", "original", "bias", "spreads"]  # one entry a class


def wrong_arguments(method: Method) -> Iterator[tuple[str, Arguments, str, str]]:
    """What is wrong, the arguments, the name of the wrong one, and what came."""
    good = method.arguments(random_batch(5), 0)
    rows = "embeddings" if "embeddings" in good else "centers"
    x = good[rows]
    yield "a vector", {**good, rows: x[0]}, rows, "(4,)"
    yield "three dimensions", {**good, rows: x[None]}, rows, "(1, 12, 4)"
    yield "whole numbers", {**good, rows: x.long()}, rows, "int64"
    yield (
        "no rows",
        {k: v[:0] if v.ndim and len(v) == len(x) else v for k, v in good.items()},
        rows,
        "(0, 4)",
    )
    yield "no columns", {**good, rows: x[:, :0]}, rows, "(12, 0)"
    yield "no tensor", {**good, rows: x.tolist()}, rows, "list"
    for name in [name for name in LABELS if name in good]:
        y = good[name]
        yield "too few labels", {**good, name: y[:-1]}, name, "(11,)"
        yield "a column of labels", {**good, name: y[:, None]}, name, "(12, 1)"
        yield "float labels", {**good, name: y.float()}, name, "float32"
        yield "bool labels", {**good, name: y > 0}, name, "bool"
        yield "negative labels", {**good, name: y - 2}, name, "-2"
        yield "no tensor of labels", {**good, name: y.tolist()}, name, "list"
        # what has a row a class knows how many there are
        if len(good) > 2 and method.name != "pddm_loss":
            yield "labels too large", {**good, name: y + 97}, name, str(97 + int(y.max()))
    for name in [name for name in TABLES if name in good and name != rows]:
        table = good[name]
        if table.ndim == 3:  # several rows a class
            yield "another dimension", {**good, name: table[..., :-1]}, name, "(8, 3, 3)"
            yield "one row a class", {**good, name: table[:, 0]}, name, "(8, 4)"
            yield "several rows of whole numbers", {**good, name: table.long()}, name, "int64"
            continue
        yield "another dimension", {**good, name: table[:, :-1]}, name, "(8, 3)"
        yield "a table that is a vector", {**good, name: table[0]}, name, "(4,)"
        yield "a table of whole numbers", {**good, name: table.long()}, name, "int64"
    for name in [name for name in VECTORS if name in good]:
        entries = good[name]
        yield "a column of entries", {**good, name: entries[:, None]}, name, "(8, 1)"
        yield "whole entries", {**good, name: entries.long()}, name, "int64"
        if name != "targets":  # whose length is the number of classes
            yield "too few entries", {**good, name: entries[:-1]}, name, "7"


@EVERY_METHOD
def test_a_wrong_argument_is_named_with_what_came(method: Method) -> None:
    problems = []
    for what, arguments, name, came in wrong_arguments(method):
        try:
            method.function(*arguments.values())
        except ValueError as error:
            text = str(error)
            if not (text.startswith(f"{name}: expected") and came in text):
                problems.append(f"{what}: {text}")
        except (AttributeError, IndexError, RuntimeError, TypeError) as error:
            problems.append(f"{what}: {error!r}")
        else:
            problems.append(f"{what}: taken without a word")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("triplets", "came"),
    [
        (torch.zeros(3, dtype=torch.int64), "(3,)"),
        (torch.zeros(1, 2, dtype=torch.int64), "(1, 2)"),
        (torch.zeros(1, 3), "float32"),
        (torch.tensor([[0, 1, 2]]) > 0, "bool"),
        (torch.tensor([[0, 1, -1]]), "-1"),
        (torch.tensor([[0, 1, 12]]), "12"),
        ([[0, 1, 2]], "list"),
    ],
)
def test_wrong_triplets_are_named_with_what_came(triplets: Tensor, came: str) -> None:
    with pytest.raises(ValueError, match=r"^triplets: expected") as caught:
        kinspace.losses.margin_loss(random_batch(5).embeddings, triplets)
    assert came in str(caught.value)


def test_wrong_cluster_labels_are_named_with_what_came() -> None:
    batch = random_batch(5)
    for wrong, came in [
        (torch.zeros(8), "float32"),
        (torch.zeros(8, 1).long(), "(8, 1)"),
        (torch.zeros(8).long().to("meta"), "meta"),
    ]:
        with pytest.raises(ValueError, match=r"^cluster_labels: expected") as caught:
            kinspace.losses.magnet_loss(batch.embeddings, batch.labels, wrong)
        assert came in str(caught.value)


def float_options(function: Callable[..., Any]) -> list[str]:
    """The options that take a float, by the annotation in their signature."""
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if "float" in str(parameter.annotation).replace(" ", "").split("|")
    ]


NOT_FINITE = pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf], ids=str)


@NOT_FINITE
@EVERY_METHOD
def test_an_option_that_is_not_finite_is_named_with_what_came(method: Method, wrong: float) -> None:
    arguments = method.arguments(random_batch(6), 0)
    for option in float_options(method.function):
        with pytest.raises(ValueError, match=rf"^{option}: expected .*got {wrong}"):
            method.function(*arguments.values(), **{option: wrong})


@NOT_FINITE
@EVERY_MODULE
def test_a_module_is_not_built_with_an_option_that_is_not_finite(name: str, wrong: float) -> None:
    kind = REGISTRIES[name]
    for option in float_options(kind):
        with pytest.raises(ValueError, match=rf"^{option}: expected .*got {wrong}"):
            kind(**required(kind), **{option: wrong})


@pytest.mark.parametrize("wrong", ["1", None, [1.0], True], ids=repr)
@EVERY_METHOD
def test_an_option_that_is_no_number_is_named(method: Method, wrong: Any) -> None:
    arguments = method.arguments(random_batch(6), 0)
    signature = inspect.signature(method.function)
    for option in float_options(method.function):
        if wrong is None and "None" in str(signature.parameters[option].annotation):
            continue
        with pytest.raises(ValueError, match=rf"^{option}: expected "):
            method.function(*arguments.values(), **{option: wrong})


@EVERY_METHOD
def test_an_unknown_word_is_answered_with_the_known_ones(method: Method) -> None:
    arguments = method.arguments(random_batch(6), 0)
    for parameter in inspect.signature(method.function).parameters.values():
        if isinstance(parameter.default, str):
            with pytest.raises(ValueError, match=rf"^{parameter.name}: .*'{parameter.default}'"):
                method.function(*arguments.values(), **{parameter.name: "nonsense"})


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "8"], ids=repr)
@EVERY_MODULE
def test_a_module_is_not_built_for_a_wrong_number_of_classes(name: str, wrong: Any) -> None:
    kind = REGISTRIES[name]
    sizes = required(kind)
    for size in sizes:
        with pytest.raises(ValueError, match=rf"^{size}: expected .*got {wrong!r}"):
            kind(**{**sizes, size: wrong})


@EVERY_MODULE
def test_a_module_names_wrong_embeddings_with_what_came(name: str) -> None:
    batch = random_batch(7)
    module = built(name, batch)
    expected = "centers" if MODULES[name].on_centers else "embeddings"
    x = batch.embeddings
    for wrong, came in [(x[0], "(4,)"), (x[None], "(1, 12, 4)"), (x.long(), "int64")]:
        with pytest.raises(ValueError, match=rf"^{expected}: expected") as caught:
            called(module, wrong, batch.labels)
        assert came in str(caught.value)
    with pytest.raises(ValueError, match=rf"^{expected}: expected .*got shape \(0, 4\)"):
        called(module, x[:0], batch.labels[:0])


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if module.per_class])
def test_a_module_names_a_label_beyond_its_classes(name: str) -> None:
    batch = random_batch(7)
    module = built(name, batch)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    for labels, came in [(batch.labels + 90, "93"), (batch.labels - 1, "-1")]:
        with pytest.raises(ValueError, match=rf"^labels: expected .*got {came}"):
            called(module, batch.embeddings, labels)
    with pytest.raises(ValueError, match=r"^labels: expected .*got \(11,\)"):
        called(module, batch.embeddings, batch.labels[:-1])
    torch.testing.assert_close(module.state_dict(), before, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    "name", [name for name in MODULES if set(required(REGISTRIES[name])) == {"num_classes", "dim"}]
)
def test_a_module_names_its_table_when_the_dimension_differs(name: str) -> None:
    module = built(name, random_batch(8, dim=4))
    batch = random_batch(8, dim=3)
    with pytest.raises(ValueError, match=r"expected 3 columns .*got shape \(8,( 10,| 3,)? 4\)"):
        called(module, *batch)


# --- a module is its function --------------------------------------------------------------------

FUNCTION_OF = {
    name: next(
        function
        for package in PACKAGES.values()
        for function in (
            getattr(package, f"{name}_loss", None)
            or getattr(package, f"{name}_penalty", None)
            or getattr(package, name, None),
        )
        if function is not None
    )
    for name in MODULES
}


@EVERY_MODULE
def test_a_module_without_state_gives_what_its_function_gives(name: str) -> None:
    batch = random_batch(9)
    module = built(name, batch)
    if MODULES[name].per_class or name in ("magnet", "cluster_nca", "pddm", "adversarial"):
        return  # they have state: tests/losses, tests/regularizers
    takes_labels = "labels" in inspect.signature(FUNCTION_OF[name]).parameters
    expected = FUNCTION_OF[name](*(batch if takes_labels else batch[:1]))
    assert torch.equal(called(module, *batch), expected)


@EVERY_MODULE
def test_a_module_takes_the_options_of_its_function_with_the_same_defaults(name: str) -> None:
    mine = inspect.signature(REGISTRIES[name]).parameters
    for parameter in inspect.signature(FUNCTION_OF[name]).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_compared(parameter):
            assert mine[parameter.name].default == parameter.default


# --- symmetries ----------------------------------------------------------------------------------

COSINE = [
    "pddm_loss",
    "bier_loss",
    "hdc_loss",
    "divergence",
    "adversarial_penalty",
    "proxy_nca_loss",
    "proxy_anchor_loss",
    "multi_similarity_loss",
    "circle_loss",
    "histogram_loss",
    "normalized_softmax_loss",
    "log_exp_spread",
    "power_spread",
    "hyperspherical_energy",
    "uniform_spread",
    "global_statistics",
]
DISTANCE = [
    "hierarchical_triplet_loss",
    "nra_loss",
    "magnet_loss",
    "contrastive_loss",
    "triplet_loss",
    "lifted_structure_loss",
    "margin_loss",
    "nca_loss",
    "ncm_loss",
    "cluster_nca_loss",
    "center_loss",
    "clustering_loss",
    "density",
    "entropy",
]
PRODUCT = [
    "n_pair_loss",
    "almn_loss",
    "fixed_margin_loss",
    "angular_loss",
    "softmax_loss",
    "orthogonal",
]
# Ratios of distances: the scale cancels.
WITHOUT_SCALE = ["nra_loss"]
# Their learners are groups of dimensions: another basis is another choice of learners.
GROUPED = {"bier_loss", "hdc_loss", "divergence", "adversarial_penalty"}
# The difference of a pair is taken dimension by dimension, without its signs; so are variances.
BY_AXES = {"hist_loss", "pddm_loss"}
# The tables that live in the space of the embeddings, and so move and turn with it.
IN_SPACE = {"embeddings", *TABLES}

METHOD_OF = {method.name: method for method in METHODS}
laws = settings(max_examples=8)


def kind(method: Method) -> list[str]:
    """Of a method that is in none of the lists, the one that its loop belongs to."""
    arguments = method.arguments(random_batch(0), 0)
    value = method.loop(*arguments.values())

    def ignores(change: Callable[[Tensor], Tensor]) -> bool:
        return torch.allclose(method.loop(*mapped(arguments, change).values()), value)

    def lengthened(x: Tensor) -> Tensor:
        factors = torch.linspace(0.5, 2.0, len(x), dtype=x.dtype)
        return x * factors.view(-1, *[1] * (x.ndim - 1))

    if ignores(lengthened):
        return COSINE
    return DISTANCE if ignores(lambda x: x + 1.0) else PRODUCT


def mapped(arguments: Arguments, change: Callable[[Tensor], Tensor]) -> Arguments:
    return {
        name: change(tensor) if name in IN_SPACE else tensor for name, tensor in arguments.items()
    }


for name in sorted(set(METHOD_OF) - {*COSINE, *DISTANCE, *PRODUCT}):
    if hasattr(loops, name):  # without it other laws fail, with the file it is missing in
        kind(METHOD_OF[name]).append(name)


def test_no_method_is_of_two_kinds() -> None:
    listed = COSINE + DISTANCE + PRODUCT
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(METHOD_OF)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """2 to 5 classes of 1 to 4 samples in 2 to 6 dimensions, at a scale of 0.1 to 10."""
    return random_batch(
        draw(st.integers(0, 10**6)),
        classes=draw(st.integers(2, 5)),
        per_class=draw(st.integers(1, 4)),
        dim=draw(st.integers(2, 6)),
        scale=draw(st.floats(0.1, 10.0)),
        separation=draw(st.floats(0.0, 3.0)),
    )


# Another distance has other symmetries: test_distances.py.
def agree(
    method: Method,
    arguments: Arguments,
    changed: Arguments,
    among: Callable[[dict[str, Any]], bool] = lambda options: "distance" not in options,
) -> None:
    for options in filter(among, method.options):
        torch.testing.assert_close(
            method.function(*changed.values(), **options),
            method.function(*arguments.values(), **options),
            rtol=1e-7,
            atol=1e-8,
        )


@pytest.mark.parametrize("name", COSINE)
@given(batch=batches(), factor=st.floats(1e-3, 1e3))
@laws
def test_a_cosine_method_ignores_the_length_of_the_vectors(
    name: str, batch: Batch, factor: float
) -> None:
    method = METHOD_OF[name]
    arguments = method.arguments(batch, 0)
    rows = torch.linspace(0.5, 2.0, len(batch.labels), dtype=torch.float64)[:, None]
    changed = mapped(
        arguments, lambda x: x * factor * (rows if x.shape[:-1] == rows.shape[:-1] else 1.0)
    )
    agree(method, arguments, changed)


@pytest.mark.parametrize("name", WITHOUT_SCALE)
@given(batch=batches(), factor=st.floats(1e-3, 1e3))
@laws
def test_a_method_of_ratios_ignores_the_scale_of_the_batch(
    name: str, batch: Batch, factor: float
) -> None:
    method = METHOD_OF[name]
    arguments = method.arguments(batch, 0)
    agree(method, arguments, mapped(arguments, lambda x: x * factor))


@pytest.mark.parametrize("name", ["magnet_loss", "cluster_nca_loss"])
def test_a_loss_on_clusters_ignores_the_scale_of_the_batch_but_for_eps(name: str) -> None:
    method = METHOD_OF[name]
    arguments = method.arguments(random_batch(0), 0)
    value = method.function(*arguments.values(), eps=0.0)
    scaled = method.function(*mapped(arguments, lambda x: x * 100.0).values(), eps=0.0)
    torch.testing.assert_close(scaled, value, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("name", DISTANCE)
@given(batch=batches(), far=st.floats(-100.0, 100.0))
@laws
def test_a_distance_method_ignores_where_the_batch_lies(
    name: str, batch: Batch, far: float
) -> None:
    method = METHOD_OF[name]
    arguments = method.arguments(batch, 0)
    offset = far * torch.linspace(-1.0, 1.0, batch.embeddings.shape[1], dtype=torch.float64)
    agree(method, arguments, mapped(arguments, lambda x: x + offset))


@pytest.mark.parametrize("name", sorted(set(METHOD_OF) - GROUPED - BY_AXES))
@given(batch=batches(), seed=st.integers(0, 10**6))
@laws
def test_ignores_a_rotation_of_the_space(name: str, batch: Batch, seed: int) -> None:
    method = METHOD_OF[name]
    arguments = method.arguments(batch, 0)
    dim = batch.embeddings.shape[1]
    turn, _ = torch.linalg.qr(random_centers(seed, num_classes=dim, dim=dim))
    agree(method, arguments, mapped(arguments, lambda x: x @ turn))


@pytest.mark.parametrize("name", sorted(set(METHOD_OF) - ORDERED))
@given(batch=batches(), seed=st.integers(0, 10**6))
@laws
def test_ignores_any_order_of_any_batch(name: str, batch: Batch, seed: int) -> None:
    method = METHOD_OF[name]
    arguments = method.arguments(batch, 0)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(batch.labels), generator=generator)
    rows = len(batch.labels) if "embeddings" in arguments else 0
    changed = reordered(arguments, order, rows)
    agree(method, arguments, changed, among=lambda options: not by_order(method, options))
