"""Derivatives of every method: second order, torch.func, compiled; options; reductions."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from batches import NUM_CLASSES, Batch, random_batch
from gradients import Result, disagreement, evaluate
from kinspace.losses import ProxyAnchor
from methods import EVERY_METHOD, METHODS, Arguments, Method, reduces_samples
from modules import EVERY_MODULE, MODULES, REGISTRIES, required

# The embeddings get a reversed gradient, which is not that of the value.
REVERSED = {"adversarial_penalty"}
# Parts of them are constants of the gradient.
CONSTANT_PARTS = {"adacos_loss", "almn_loss", "bier_loss", "circle_loss", "ranked_list_loss"}
# Loops over the classes of the batch, or draws: not traced into one graph (test_compile.py).
NOT_TRACED = {"clustering_loss"}


def small(seed: int = 1) -> Batch:
    return random_batch(seed, classes=3, per_class=3, dim=4)


def split(method: Method, batch: Batch) -> tuple[tuple[Tensor, ...], Callable[..., Tensor]]:
    """The differentiated arguments, and the method as a function of them alone."""
    arguments = method.arguments(batch, 0)
    fixed = {name for name, value in arguments.items() if not value.is_floating_point()}
    if method.name in REVERSED:
        fixed.add("embeddings")
    if method.name == "hierarchical_triplet_loss":
        fixed |= {"means", "spreads"}  # constants of the gradient
    if method.name in ("almn_loss", "fixed_margin_loss"):
        fixed.add("centers")
    if method.name == "density":
        fixed.add("original")
    if method.name == "adacos_loss":
        fixed.add("scale")
    names = [name for name in arguments if name not in fixed]
    leaves = tuple(arguments[name].clone().requires_grad_() for name in names)

    def call(*values: Tensor, **options: Any) -> Tensor:
        given = arguments | dict(zip(names, values, strict=True))
        return method.function(*given.values(), **options)

    return leaves, call


@EVERY_METHOD
def test_the_first_derivative_is_that_of_the_value(method: Method) -> None:
    if method.name in CONSTANT_PARTS:
        return  # test_exactness.py
    leaves, call = split(method, small())
    for options in method.options:
        if options.get("detach_range"):  # a constant of the gradient, too
            continue
        assert torch.autograd.gradcheck(
            lambda *values, options=options: call(*values, **options), leaves
        )


@EVERY_METHOD
def test_the_second_derivative_is_that_of_the_first(method: Method) -> None:
    leaves, call = split(method, small())
    if method.name in CONSTANT_PARTS:
        # weights that are constants of the gradient are none of the gradient's own gradient
        gradient = torch.autograd.grad(call(*leaves), leaves, create_graph=True)
        assert all(torch.isfinite(each).all() for each in second(gradient, leaves))
        return
    for options in method.options:
        if options.get("detach_range"):
            continue
        assert torch.autograd.gradgradcheck(
            lambda *values, options=options: call(*values, **options), leaves
        ), options


def second(gradient: tuple[Tensor, ...], leaves: tuple[Tensor, ...]) -> list[Tensor]:
    total = sum((each.square().sum() for each in gradient), torch.zeros(()))
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [each for each in found if each is not None]


@EVERY_METHOD
def test_torch_func_gives_the_gradient_of_autograd(method: Method) -> None:
    leaves, call = split(method, small())
    for options in method.options:
        expected = torch.autograd.grad(call(*leaves, **options), leaves)
        found = torch.func.grad(call, argnums=tuple(range(len(leaves))))(*leaves, **options)
        torch.testing.assert_close(found, expected)


@EVERY_MODULE
def test_torch_func_differentiates_a_module_in_evaluation(name: str) -> None:
    batch = small()
    torch.manual_seed(0)
    module = MODULES[name].build(NUM_CLASSES, 4).double().eval()
    leaf = batch.embeddings.clone().requires_grad_()
    (expected,) = torch.autograd.grad(module(leaf, batch.labels), leaf)
    found = torch.func.grad(lambda x: module(x, batch.labels))(batch.embeddings)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "name", sorted({m.name for m in METHODS} - NOT_TRACED - {"margin_loss", "pddm_loss"})
)
def test_vmap_over_batches_gives_what_a_loop_gives(name: str) -> None:
    """One function of embeddings alone, for many batches of the same labels at once."""
    method = next(method for method in METHODS if method.name == name)
    arguments = method.arguments(small(), 0)
    first = next(iter(arguments))
    rest = list(arguments.values())[1:]
    stack = torch.stack([small(seed).embeddings for seed in range(3)])
    expected = torch.stack([method.function(x, *rest) for x in stack])
    found = torch.func.vmap(lambda x: method.function(x, *rest))(stack)
    assert first in ("embeddings", "centers")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", sorted({m.name for m in METHODS} - NOT_TRACED))
def test_a_compiled_second_derivative_is_that_of_eager(name: str) -> None:
    method = next(method for method in METHODS if method.name == name)
    leaves, call = split(method, small())

    def of_gradient(*values: Tensor) -> tuple[Tensor, ...]:
        def gradient(*values: Tensor) -> Tensor:
            found = torch.func.grad(call, argnums=tuple(range(len(values))))(*values)
            return sum((each.square().sum() for each in found), values[0].new_zeros(()))

        return torch.func.grad(gradient, argnums=tuple(range(len(values))))(*values)

    torch._dynamo.reset()
    compiled = torch.compile(of_gradient, fullgraph=True, backend="eager", dynamic=False)
    values = [leaf.detach() for leaf in leaves]
    torch.testing.assert_close(compiled(*values), of_gradient(*values))


@pytest.mark.parametrize("name", ["nra_loss", "almn_loss", "magnet_loss", "proxy_anchor_loss"])
def test_a_compiled_function_can_be_differentiated_twice(name: str) -> None:
    method = next(method for method in METHODS if method.name == name)
    leaves, call = split(method, small())
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="eager", dynamic=False)
    found, expected = (
        second(torch.autograd.grad(function(*leaves), leaves, create_graph=True), leaves)
        for function in (compiled, call)
    )
    assert len(found) == len(leaves)
    torch.testing.assert_close(found, expected)


# --- options -------------------------------------------------------------------------------------

USUAL = (1e-3, 1e3)  # what options are tried with that have no entry
EXTREME = {
    "base": (-1e3, 1e3),
    "mining_margin": (-1e3, 1e3),
    "margin": (-1e3, 1e3),
    "degrees": (1e-3, 89.999),
    "eps": (1e-30,),
    "power": (1e3,),
    "eta": (1e3,),
    "norm_weight": (1e3,),
    "weight_penalty": (1e6,),
    "mean_weight": (1e3,),
    "margin_weight": (1e3,),
    "distance_weight": (1e3,),
    "distance_margin": (1e3,),
    "boundary": (-1e3, 1e3),
}


BEYOND = {
    ("alpha", "nra_loss", 1e-3),  # rejected
    ("alpha", "pfml_loss", 1e3),  # a distance to the power of -1000 is no float32
    ("power", "hyperspherical_energy", 1e3),  # the same
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@EVERY_METHOD
def test_extreme_options_give_finite_values_and_gradients(
    method: Method, dtype: torch.dtype
) -> None:
    arguments = method.arguments(small(), 0)
    for parameter in inspect.signature(method.function).parameters.values():
        if not isinstance(parameter.default, float):
            continue
        for value in EXTREME.get(parameter.name, USUAL):
            if (parameter.name, method.name, value) in BEYOND:
                continue
            found = evaluate(method.function, arguments, {parameter.name: value}, dtype=dtype)
            assert np.isfinite(found.value), (parameter.name, value)
            assert all(g.isfinite().all() for g in found.gradients.values()), parameter.name


def numbers(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if isinstance(parameter.default, float) and not isinstance(parameter.default, bool)
    ]


@EVERY_METHOD
def test_numbers_of_numpy_and_tensors_are_numbers(method: Method) -> None:
    arguments = method.arguments(small(), 0)
    expected = method.function(*arguments.values())
    for parameter in numbers(method.function):
        for value in (np.float64(parameter.default), torch.tensor(parameter.default).double()):
            found = method.function(*arguments.values(), **{parameter.name: value})
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_a_module_is_built_from_numbers_of_numpy() -> None:
    criterion = ProxyAnchor(np.int64(6), np.int32(4), margin=np.float32(0.2))
    assert criterion.proxies.shape == (6, 4)
    batch = small()
    assert criterion(batch.embeddings.float(), batch.labels).isfinite()


@EVERY_MODULE
def test_every_module_takes_numbers_of_numpy(name: str) -> None:
    kind = REGISTRIES[name]
    sizes = {size: np.int64(value) for size, value in required(kind).items()}
    options = {parameter.name: np.float64(parameter.default) for parameter in numbers(kind)}
    torch.manual_seed(0)
    built = kind(**sizes, **options).double()
    torch.manual_seed(0)
    plain = kind(**required(kind)).double()
    batch = small()
    torch.testing.assert_close(
        built(batch.embeddings, batch.labels), plain(batch.embeddings, batch.labels)
    )


# They select, weigh constants, or start or move a state: none of it has a gradient.
NOT_LEARNT = {"cutoff", "eta", "mining_margin", "momentum", "nonzero_cutoff", "rate", "start"}


@EVERY_MODULE
def test_an_option_can_be_learnt(name: str) -> None:
    """A parameter given as an option is one of the module's, and gets a gradient."""
    kind = REGISTRIES[name]
    batch = small()
    for option, parameter in inspect.signature(kind).parameters.items():
        if option in NOT_LEARNT or not isinstance(parameter.default, float):
            continue
        if (name, option) == ("margin", "boundary"):
            continue  # it starts one boundary a class, which are learnt
        learnt = nn.Parameter(torch.tensor(parameter.default, dtype=torch.float64))
        torch.manual_seed(0)
        module = kind(**required(kind), **{option: learnt}).double()
        assert any(p is getattr(module, option) for p in module.parameters()), option
        module(batch.embeddings, batch.labels).backward()
        assert getattr(module, option).grad is not None, option
        assert option in repr(module)


# --- reductions ----------------------------------------------------------------------------------

SAMPLED = [method for method in METHODS if reduces_samples(method.function)]


def batches() -> list[Batch]:
    return [small(), random_batch(3, classes=4, per_class=2), random_batch(5, per_class=1)]


@pytest.mark.parametrize("method", SAMPLED, ids=lambda method: method.name)
def test_reductions_of_samples_agree(method: Method) -> None:
    for batch in batches():
        arguments = method.arguments(batch, 0)
        for options in method.options:
            mean, total, terms = (
                method.function(*arguments.values(), **options, reduction=reduction)
                for reduction in ("mean", "sum", "none")
            )
            assert terms.shape == batch.labels.shape
            torch.testing.assert_close(terms.sum(), total)
            if method.name != "circle_loss" and options.get("anchors") != "first":
                torch.testing.assert_close(terms.mean(), mean)


@pytest.mark.parametrize("method", SAMPLED, ids=lambda method: method.name)
def test_terms_of_samples_move_with_their_samples(method: Method) -> None:
    if method.name in ("n_pair_loss", "angular_loss"):
        return  # the positive is the next in batch order
    batch = small()
    order = torch.randperm(len(batch.labels))
    moved = Batch(batch.embeddings[order], batch.labels[order])
    for options in method.options:
        terms, found = (
            method.function(*of(method, each).values(), **options, reduction="none")
            for each in (batch, moved)
        )
        if method.name not in ("magnet_loss", "cluster_nca_loss"):  # other clusters, in turn
            torch.testing.assert_close(found, terms[order])


def of(method: Method, batch: Batch) -> Arguments:
    return method.arguments(batch, 0)


@pytest.mark.parametrize("method", SAMPLED, ids=lambda method: method.name)
def test_the_gradient_of_the_sum_is_that_of_the_terms(method: Method) -> None:
    arguments = method.arguments(small(), 0)
    expected = evaluate(method.function, arguments, {"reduction": "sum"})
    found = evaluate(lambda *given: method.function(*given, reduction="none").sum(), arguments)
    assert disagreement(found, Result(expected.value, expected.gradients)) is None
