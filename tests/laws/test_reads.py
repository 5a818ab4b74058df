"""No method reads a value from the GPU, where the host would have to wait for the network.

Checked on the meta device, whose tensors have shapes and no values: what needs a value fails.
`test_gpu.py` holds the same on a GPU, where copies from the CPU wait as well.
"""

import pytest
import torch
from torch import Tensor

from batches import NUM_CLASSES, random_batch
from kinspace._core import rng, vectors
from kinspace._core.class_index import ClassIndex
from kinspace.losses import clustering
from methods import EVERY_METHOD, Method
from modules import EVERY_MODULE, MODULES

META = torch.device("meta")
BATCH = random_batch(3, classes=NUM_CLASSES, per_class=16, dim=64)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassIndex, "_fixed", True)
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 2**62)  # its kernel makes all differences too
    monkeypatch.setattr(clustering, "greedy_medoids", medoids_of_the_kernel)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # not known of this device
    # random numbers have no generator there
    monkeypatch.setattr(rng.StepGenerator, "forward", lambda *_: None)


def medoids_of_the_kernel(
    distances: Tensor, classes: Tensor, *, margin_weight: float
) -> tuple[Tensor, Tensor]:
    """What its kernel returns; `test_gpu.py` holds that it reads nothing."""
    return torch.empty_like(classes), distances.new_empty(())


def on_meta(tensor: Tensor) -> Tensor:
    return tensor.to(META).requires_grad_(tensor.is_floating_point())


@EVERY_METHOD
def test_no_method_reads_a_value(method: Method) -> None:
    for options in method.options:
        given = {name: on_meta(tensor) for name, tensor in method.arguments(BATCH, 5).items()}
        method.function(*given.values(), **options).backward()


@EVERY_MODULE
def test_no_module_reads_a_value(name: str) -> None:
    module = MODULES[name].build(NUM_CLASSES, 64).to(META)
    arguments = [on_meta(BATCH.embeddings.float())]
    if not MODULES[name].on_centers:
        arguments.append(BATCH.labels.to(META))
    for _ in range(2):  # the second time with what the first left
        module(*arguments).backward()


def test_a_value_that_is_read_is_found() -> None:
    for read in (Tensor.item, Tensor.nonzero, Tensor.cpu, lambda x: x[x > 0], bool):
        with pytest.raises((NotImplementedError, RuntimeError)):
            read(torch.ones((), device=META))
