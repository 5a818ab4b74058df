"""Every method on a GPU gives what it gives on the CPU."""

import copy
from contextlib import nullcontext

import pytest
import torch

from batches import DEGENERATE_BATCHES, NUM_CLASSES, random_batch
from gradients import Result, disagreement, evaluate
from methods import METHODS, Arguments, Method
from modules import MODULES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = torch.device("cuda")
DRAWN = {"margin"}  # its negatives, there from other random numbers


def there(arguments: Arguments) -> Arguments:
    return {name: tensor.to(DEVICE) for name, tensor in arguments.items()}


def back(result: Result) -> Result:
    return Result(result.value, {name: grad.cpu() for name, grad in result.gradients.items()})


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_is_the_same_on_a_gpu(method: Method) -> None:
    batches = {"random": random_batch(3, per_class=5), **DEGENERATE_BATCHES}
    for name, batch in batches.items():
        arguments = method.arguments(batch, 5)
        for options in method.options:
            expected = evaluate(method.function, arguments, options)
            found = back(evaluate(method.function, there(arguments), options))
            assert disagreement(found, expected, gradient_floor=1e-9) is None, (name, options)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_has_the_digits_of_float32_on_a_gpu(method: Method) -> None:
    # large enough for distances by matrix products
    batch = random_batch(4, classes=NUM_CLASSES, per_class=40, dim=70, scale=0.3)
    arguments = method.arguments(batch, 5)
    expected = evaluate(method.function, arguments)
    found = back(evaluate(method.function, there(arguments), dtype=torch.float32))
    problem = disagreement(found, expected, value=1e-4, gradient=1e-3, gradient_floor=1e-7)
    assert problem is None, problem


@pytest.mark.parametrize("name", sorted(set(MODULES) - DRAWN))
def test_every_module_moves_on_the_same_on_a_gpu(name: str) -> None:
    batch = random_batch(4, per_class=6)
    torch.manual_seed(0)
    module = MODULES[name].build(NUM_CLASSES, batch.embeddings.shape[1]).double()
    other = copy.deepcopy(module).to(DEVICE)
    arguments = {"embeddings": batch.embeddings}
    if not MODULES[name].on_centers:
        arguments["labels"] = batch.labels
    for _ in range(2):  # the second time with what the first left
        expected = evaluate(module, arguments)
        found = back(evaluate(other, there(arguments)))
        assert disagreement(found, expected) is None
    for key, value in module.state_dict().items():
        torch.testing.assert_close(other.state_dict()[key].cpu(), value)


# What reads values, and why. The host waits for the network there in every step.
READING = {
    "clustering_loss": "chooses its medoids on the CPU",
    "pddm_loss": "lists the pairs of a class, to score each once",
}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_host_does_not_wait_for_the_gpu(method: Method) -> None:
    batch = random_batch(3, classes=NUM_CLASSES, per_class=16, dim=64)
    arguments = {
        name: tensor.to(DEVICE, torch.float32 if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in method.arguments(batch, 5).items()
    }
    evaluate(method.function, arguments)  # kernels are compiled
    given = {
        name: tensor.requires_grad_(tensor.is_floating_point())
        for name, tensor in arguments.items()
    }
    reads = method.name in READING
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchronizing") if reads else nullcontext():
            method.function(**given).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
