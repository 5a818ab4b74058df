"""Every method against worked cases, an independent loop, and tables of differences."""

import contextlib
import copy
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
from batches import DEGENERATE_BATCHES, LARGE_BATCHES, NUM_CLASSES, Batch, random_batch
from gradients import Result, disagreement, evaluate
from kinspace._core import vectors
from kinspace._core.class_index import ClassIndex
from methods import METHODS, Method
from modules import MODULES
from reference_cases import Case, mapped_cases, read
from tables import TABLES

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
    """Of Eq. 9, where the means are those of the raw inputs and the map is what is learned."""
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
        expected = evaluate(method.loop, arguments, options)
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


# --- larger batches, over the limit of what vectors.py does by differences ---------------------

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
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)  # Magnet's table of means is under the limit
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


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_lists_of_classes_as_long_as_the_batch_give_the_same(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are on a GPU, where the host does not wait for a length."""
    for batch in (random_batch(3, per_class=5), *DEGENERATE_BATCHES.values()):
        arguments = method.arguments(batch, 5)
        for options in method.options:
            expected = evaluate(method.function, arguments, options)
            with monkeypatch.context() as patched:
                patched.setattr(ClassIndex, "_fixed", True)
                found = evaluate(method.function, arguments, options)
            assert disagreement(found, expected, gradient_floor=1e-9) is None, options


# margin draws as many negatives for each sample as the list is long
@pytest.mark.parametrize("name", sorted(set(MODULES) - {"margin"}))
def test_modules_too_give_the_same_with_lists_as_long_as_the_batch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = random_batch(3, per_class=5)
    arguments = {"embeddings": batch.embeddings}
    if not MODULES[name].on_centers:
        arguments["labels"] = batch.labels
    torch.manual_seed(0)
    module = MODULES[name].build(NUM_CLASSES, batch.embeddings.shape[1]).double()
    other = copy.deepcopy(module)
    expected = evaluate(module, arguments)
    monkeypatch.setattr(ClassIndex, "_fixed", True)
    assert disagreement(evaluate(other, arguments), expected, gradient_floor=1e-9) is None
