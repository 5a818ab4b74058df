"""Every method on a GPU gives what it gives on the CPU."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from batches import DEGENERATE_BATCHES, NUM_CLASSES, random_batch
from gradients import Result, disagreement, evaluate
from kinspace import miners
from kinspace.losses import clustering_loss
from methods import EVERY_METHOD, METHODS, Arguments, Method
from modules import EVERY_MODULE, MODULES

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


# What lists as many pairs or triplets as there are. The host waits for the network in every step.
READING = set(miners.MINERS)
MINERS = [*miners.MINERS, "distance_weights"]


def waits(call: Callable[[], object]) -> bool:
    """Whether the host waits for the GPU in a call. The call before it compiles and starts."""
    call()
    torch.cuda.synchronize()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        call()
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def given(arguments: Arguments) -> list[Tensor]:
    """On the GPU in float32, the floating point ones to be differentiated."""
    return [
        tensor.to(DEVICE, torch.float32).requires_grad_()
        if tensor.is_floating_point()
        else tensor.to(DEVICE)
        for tensor in arguments.values()
    ]


BATCH = random_batch(3, classes=NUM_CLASSES, per_class=16, dim=64)


@EVERY_METHOD
def test_the_host_does_not_wait_for_a_method(method: Method) -> None:
    arguments = given(method.arguments(BATCH, 5))
    for options in method.options:
        found = waits(lambda options=options: method.function(*arguments, **options).backward())
        assert not found, options


@EVERY_MODULE
def test_the_host_does_not_wait_for_a_module(name: str) -> None:
    module = MODULES[name].build(NUM_CLASSES, 64).to(DEVICE)
    arguments = given(BATCH._asdict())[: 1 if MODULES[name].on_centers else 2]
    assert not waits(lambda: module(*arguments).backward())


@pytest.mark.parametrize(("classes", "per_class"), [(8, 64), (128, 4), (512, 1)])
def test_the_host_does_not_wait_for_the_medoids_of_large_batches(
    classes: int, per_class: int
) -> None:
    generator = torch.Generator().manual_seed(classes)
    embeddings = torch.randn(512, 64, generator=generator, dtype=torch.float64)
    labels = torch.arange(classes).repeat(per_class)
    expected = evaluate(clustering_loss, {"embeddings": embeddings, "labels": labels})
    arguments = there({"embeddings": embeddings, "labels": labels})
    assert disagreement(back(evaluate(clustering_loss, arguments)), expected) is None
    x, there_labels = given(arguments)
    assert not waits(lambda: clustering_loss(x, there_labels).backward())


@pytest.mark.parametrize("name", MINERS)
def test_the_host_does_not_wait_for_a_miner(name: str) -> None:
    arguments = given(BATCH._asdict())
    assert waits(lambda: getattr(miners, name)(*arguments)) == (name in READING)


def test_a_value_that_is_read_is_found() -> None:
    assert waits(torch.ones(3, device=DEVICE).nonzero)
