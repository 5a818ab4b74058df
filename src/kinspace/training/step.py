"""The gradient of one step: exact for the global batch, however it is cut.

A metric loss compares samples with one another, so its gradient is not the sum of those of parts
of the batch. But it reaches the model only through the embeddings. So:

1. embed the batch, a micro-batch at a time (without a graph, if there are several);
2. gather the embeddings of all processes, and take the gradient of the objective by them;
3. embed each micro-batch again, with a graph, and send its rows of that gradient back;
4. add up the model's gradients over the processes.

One micro-batch and one process is the same path with nothing to repeat and nothing to send. The
parameters of the objective get their whole gradient in 2, on every process the same.

What a model draws by chance (dropout) is drawn from the seed, the step, the process and the
micro-batch: the same in both passes, and the same after a restart. Batch norm sees the micro-batch,
as it would in any such scheme; its running statistics move once.
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

__all__ = ["Outcome", "Precision", "differentiate", "seed_everything", "still_statistics"]

PRECISIONS = ("float32", "bf16", "fp16")


@dataclass(frozen=True)
class Outcome:
    """What a step found: all of the global batch, on the device, without a graph."""

    total: Tensor
    parts: dict[str, Tensor]
    embeddings: Tensor  # (global batch, dim), float32
    labels: Tensor
    indices: Tensor
    sample_losses: Tensor | None  # (global batch,), of a loss that gives them


class Precision:
    """Autocast for the model, and the scaling that fp16 gradients need. The loss is in float32.

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
        """The context for the model's forward pass. cache: keep weights cast within it."""
        if self.name == "float32":
            return nullcontext()
        half = torch.bfloat16 if self.name == "bf16" else torch.float16
        return torch.autocast(self._device, half, cache_enabled=cache)

    @property
    def scale(self) -> float:
        """What the loss is multiplied with before its gradient is taken."""
        return float(self.scaler.get_scale()) if self.scaler.is_enabled() else 1.0


def differentiate(
    model: nn.Module,
    objective: Objective,
    batch: tuple[Tensor, Tensor, Tensor],
    *,
    precision: Precision,
    micro_batch: int | None = None,
    seed: tuple[int, int] = (0, 0),
    clusters: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
) -> Outcome:
    """Leave the gradient of the objective on the global batch in the parameters' `.grad`.

    batch: this process's inputs, labels and indices. micro_batch: inputs at a time; all by default.
    seed: of the run, and the number of the step. clusters: for a loss that needs them, from
    the indices of the global batch to the batch's clusters and their classes.
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
        with torch.no_grad(), still_statistics(model):
            embedded = [embed(number) for number in range(len(chunks))]
    own = torch.cat([part.detach().float() for part in embedded]).requires_grad_()
    whole, labels, indices = gather(own, labels, indices)
    of_clusters: Mapping[str, Tensor] = {}
    if clusters is not None:
        numbers, classes = clusters(indices)
        of_clusters = {"clusters": numbers, "cluster_labels": classes}
    try:
        total, parts, losses = objective(whole, labels, **of_clusters)
    except (RuntimeError, ValueError) as error:  # some losses sort or count, and NaN has no place
        if whole.isfinite().all():
            raise
        raise NotFinite(seed[1] + 1, indices.tolist()) from error
    precision.scaler.scale(total).backward()
    assert own.grad is not None  # every loss is connected to its batch
    for number, gradient in enumerate(own.grad.split(micro_batch or len(own))):
        again = embedded[0] if len(chunks) == 1 else embed(number)
        again.backward(gradient.to(again.dtype))
    add_up_gradients(model)
    return Outcome(total.detach(), parts, whole.detach(), labels, indices, losses)


def add_up_gradients(model: nn.Module) -> None:
    """Sum the model's gradients over the processes: each has those of its own rows."""
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
    """Seed torch's global generators from some numbers."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))


@contextmanager
def still_statistics(model: nn.Module) -> Iterator[None]:
    """Batch norm in training mode that leaves its running statistics as they are."""
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        norm.num_batches_tracked = None  # else it would be counted up
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(norms, kept, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked
