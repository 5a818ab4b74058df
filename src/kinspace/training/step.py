"""The gradient of one step: exact for the global batch, however it is cut.

A metric loss compares samples with one another, so its gradient is not the sum of the gradients of
parts of the batch. But it depends on the model only through the embeddings. The steps are:

1. embed the batch, one micro-batch at a time (without a graph if there are several);
2. gather the embeddings of all processes, and compute the objective's gradient by them;
3. embed each micro-batch again, with a graph, and backpropagate its rows of that gradient;
4. sum the model's gradients over the processes.

With one micro-batch nothing is embedded twice; with one process nothing is gathered or summed. The
parameters of the objective get their whole gradient in 2, the same on every process.

Dropout is seeded with the run's seed, the step, the process and the micro-batch: it is the same in
both passes, and in a resumed run. Batch norm sees one micro-batch at a time; its running statistics
are updated once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kinspace.distributed import gather, rank, world_size
from kinspace.objective import Objective
from kinspace.training.log import NotFinite

__all__ = [
    "Precision",
    "StepResult",
    "compute_gradients",
    "frozen_statistics",
    "seed_everything",
]

PRECISIONS = ("float32", "bf16", "fp16")


@dataclass(frozen=True)
class StepResult:
    """The loss and the embeddings of the global batch of a step, on the device, detached."""

    total: Tensor
    parts: dict[str, Tensor]
    embeddings: Tensor  # (global batch, dim), float32
    labels: Tensor
    indices: Tensor
    sample_losses: Tensor | None  # (global batch,), if the loss has them


class Precision:
    """Autocast for the model, and the gradient scaler that fp16 needs. The loss is in float32.

    >>> Precision("float32", torch.device("cpu")).scale
    1.0
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name not in PRECISIONS:
            raise ValueError(f"precision: expected one of {', '.join(PRECISIONS)}, got {name!r}")
        self.name = name
        self._device = device.type
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self, *, cache: bool = True) -> AbstractContextManager[Any]:
        """The context of the model's forward pass. cache: cast each weight once within it."""
        if self.name == "float32":
            return nullcontext()
        half = torch.bfloat16 if self.name == "bf16" else torch.float16
        return torch.autocast(self._device, half, cache_enabled=cache)

    @property
    def scale(self) -> float:
        """The factor of the loss before the backward pass."""
        return float(self.scaler.get_scale()) if self.scaler.is_enabled() else 1.0


def compute_gradients(  # noqa: PLR0913 (an option each)
    model: nn.Module,
    objective: Objective,
    batch: tuple[Tensor, Tensor, Tensor],
    *,
    precision: Precision,
    micro_batch: int | None = None,
    seed: tuple[int, int] = (0, 0),
    clusters: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    samples: Callable[[Tensor], Mapping[str, Any]] | None = None,
) -> StepResult:
    """Write the gradient of the objective on the global batch to the parameters' `.grad`.

    batch: the inputs, labels and indices of this process. micro_batch: inputs embedded at a time;
    None: all. seed: the run's seed and the number of the step. clusters: for a loss that takes
    clusters, a function from the indices of the global batch to the cluster of each sample and the
    class of each cluster. samples: a function from them to what the loss is told of these samples.
    """
    inputs, labels, indices = batch
    chunks = inputs.split(micro_batch or len(inputs))
    own_rank = rank()

    def embed(number: int) -> Tensor:
        seed_everything(*seed, own_rank, number)
        with precision.autocast():
            embeddings: Tensor = model(chunks[number])
        return embeddings

    if len(chunks) == 1:
        embedded = [embed(0)]
    else:
        with torch.no_grad(), frozen_statistics(model):
            embedded = [embed(number) for number in range(len(chunks))]
    own = torch.cat([part.detach().float() for part in embedded]).requires_grad_()
    whole, labels, indices = gather(own, labels, indices)
    given: dict[str, Any] = {} if samples is None else {"samples": samples(indices)}
    if clusters is not None:
        numbers, classes = clusters(indices)
        given |= {"clusters": numbers, "cluster_labels": classes}
    try:
        total, parts, losses = objective(whole, labels, **given)
    except (RuntimeError, ValueError) as error:  # some losses sort or count, which NaN breaks
        if whole.isfinite().all():
            raise
        raise NotFinite(seed[1] + 1, indices.tolist()) from error
    precision.scaler.scale(total).backward()
    assert own.grad is not None  # every loss is connected to its batch
    for number, gradient in enumerate(own.grad.split(micro_batch or len(own))):
        again = embedded[0] if len(chunks) == 1 else embed(number)
        again.backward(gradient.to(again.dtype))
    sum_gradients(model)
    return StepResult(total.detach(), parts, whole.detach(), labels, indices, losses)


def sum_gradients(model: nn.Module) -> None:
    """Sum the model's gradients over the processes; each has the gradient of its own rows."""
    if world_size() == 1:
        return
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in trained if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])  # one message, not hundreds
    dist.all_reduce(flat)
    for gradient, sums in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(sums.view_as(gradient))


def seed_everything(*numbers: int) -> None:
    """Seed torch's global generators with a hash of the numbers."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """A context in which batch norm in training mode does not update its running statistics."""
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        norm.num_batches_tracked = None  # otherwise it is incremented
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(norms, kept, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked
