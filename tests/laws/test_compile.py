"""torch.compile(fullgraph=True) gives what eager gives; what does not compile is listed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from batches import NUM_CLASSES, Batch, random_batch
from gradients import disagreement, evaluate
from kinspace.losses import Clustering, Margin, clustering_loss
from kinspace.regularizers import LogExpSpread
from methods import METHODS, Method
from modules import MODULES

DIM = 5

# What does not compile into one graph. Each is tried below, so that the list cannot go stale.
NOT_COMPILED: dict[str, str] = {
    "clustering_loss": "a loop over the classes of the batch, whose number depends on values",
    "Clustering": "clustering_loss",
    "Margin": "draws with a generator of its own; the number of triplets depends on values",
    "LogExpSpread(max_centers)": "draws with a generator of its own, as every sample of centers",
}
FAILING: dict[str, Callable[[], Callable[..., Tensor]]] = {
    "clustering_loss": lambda: clustering_loss,
    "Clustering": Clustering,
    "Margin": lambda: Margin(NUM_CLASSES),
    "LogExpSpread(max_centers)": lambda: LogExpSpread(max_centers=3),
}


def batch_of(seed: int) -> Batch:
    return random_batch(seed, classes=4, per_class=3, dim=DIM)


def one_graph(function: Callable[..., Tensor], backend: str = "aot_eager") -> Callable[..., Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, dynamic=False)


def quick(options: dict[str, Any]) -> bool:
    """The defaults, and what takes another way through the code; the rest is left to `slow`."""
    return not options or "mining" in options


CALLS = [
    pytest.param(
        method,
        options,
        id=f"{number}-{method.name}-{options}",
        marks=[] if quick(options) else [pytest.mark.slow],
    )
    for number, method in enumerate(METHODS)
    for options in method.options
    if method.name not in NOT_COMPILED
]


@pytest.mark.parametrize(("method", "options"), CALLS)
def test_a_compiled_function_gives_what_eager_gives(
    method: Method, options: dict[str, Any]
) -> None:
    compiled = one_graph(method.function)
    for seed in (1, 2):
        arguments = method.arguments(batch_of(seed), seed)
        # other numbers and other labels in the same shapes: the same graph serves them
        with torch._dynamo.config.patch(error_on_recompile=seed > 1):
            found = evaluate(compiled, arguments, options)
        expected = evaluate(method.function, arguments, options)
        problem = disagreement(found, expected, value=1e-10, gradient=1e-9)
        assert problem is None, problem


SLOW = pytest.mark.slow
BY_DISTANCES = [
    "nra_loss",
    "magnet_loss",
    pytest.param("triplet_loss", marks=SLOW),
    pytest.param("lifted_structure_loss", marks=SLOW),
]


@pytest.mark.parametrize("name", BY_DISTANCES)
def test_compiled_differences_give_what_matrix_products_give_in_eager(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinspace._core.vectors.FEW_NUMBERS", 0)
    method = next(method for method in METHODS if method.name == name)
    arguments = method.arguments(batch_of(3), 0)
    found = evaluate(one_graph(method.function), arguments)
    problem = disagreement(found, evaluate(method.function, arguments), gradient=1e-8)
    assert problem is None, problem


# Those that write into their state at each call; parameters and constants are nothing special.
REMEMBERING = ["adacos", "almn", "center", "fixed_margin", "hierarchical_triplet", "magnet", "ncm"]


def test_every_module_that_remembers_is_tried() -> None:
    for name, module in MODULES.items():
        built = module.build(NUM_CLASSES, DIM)
        before = {key: value.clone() for key, value in built.state_dict().items()}
        built(*[tensor.float() if tensor.is_floating_point() else tensor for tensor in batch_of(1)])
        after = built.state_dict()
        moved = any(not torch.equal(value, before[key]) for key, value in after.items())
        assert moved == (name in [*REMEMBERING, "margin"]), name


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in ("almn", "magnet") else SLOW) for name in REMEMBERING],
)
def test_a_compiled_module_learns_and_remembers_as_in_eager(name: str) -> None:
    def built() -> nn.Module:
        torch.manual_seed(0)
        return MODULES[name].build(NUM_CLASSES, DIM).double()

    eager, module = built(), built()
    compiled = one_graph(module)
    for seed in (1, 2):
        batch = batch_of(seed)
        leaves = [batch.embeddings.clone().requires_grad_() for _ in range(2)]
        expected, found = eager(leaves[0], batch.labels), compiled(leaves[1], batch.labels)
        expected.backward()
        found.backward()
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(leaves[1].grad, leaves[0].grad, rtol=1e-9, atol=1e-12)
        for mine, wanted in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, wanted.grad, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(module.state_dict(), eager.state_dict(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NOT_COMPILED)
def test_what_is_listed_as_not_compiled_does_not_compile(name: str) -> None:
    embeddings, labels = batch_of(1)
    function = FAILING[name]()
    assert function(embeddings, labels).isfinite()
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        one_graph(function)(embeddings, labels)


@pytest.mark.slow
# by torch's own inductor, where it lowers a diagonal
@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["nra_loss", "multi_similarity_loss", "triplet_loss"])
def test_a_function_compiled_to_machine_code_gives_what_eager_gives(name: str) -> None:
    method = next(method for method in METHODS if method.name == name)
    arguments = method.arguments(batch_of(1), 0)
    found = evaluate(one_graph(method.function, "inductor"), arguments)
    problem = disagreement(found, evaluate(method.function, arguments), gradient=1e-8)
    assert problem is None, problem
