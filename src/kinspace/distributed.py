"""One batch out of the batches of all processes, for losses that compare samples.

Every process calls the same loss on the same gathered batch:

    loss = criterion(*gather(embeddings, labels))

The loss, the gradient of each process's own embeddings and the gradients of the criterion's
parameters (proxies, targets) are then those of one process on the whole batch. No factor is
needed anywhere for them: each process holds the whole loss, so the gradient of its own rows is
complete without communication.

A backbone inside DistributedDataParallel is another matter: DDP divides the backbone's gradients
by the number of processes, though each process saw only its own share of them. Multiplying the
loss by that number would mend the backbone and spoil the proxies, so the factor belongs on the
embeddings alone: `gather(..., averaged=True)`.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    "barrier",
    "broadcast_from_main",
    "gather",
    "init_process_group",
    "is_main_process",
    "rank",
    "world_size",
]

T = TypeVar("T")


def rank() -> int:
    """The number of this process; 0 where there is one alone.

    >>> rank(), world_size()
    (0, 1)
    """
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def barrier() -> None:
    """Wait for the other processes, where there are some.

    >>> barrier()
    """
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def init_process_group(device: torch.device) -> bool:
    """Start the process group where torchrun started several processes.

    Returns whether this call did it; the caller then ends with `destroy_process_group`.

    >>> init_process_group(torch.device("cpu"))
    False
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        return False
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return True


def is_main_process() -> bool:
    """Whether this is the process that writes files and prints, the one of rank 0.

    >>> is_main_process()
    True
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def broadcast_from_main(value: T) -> T:
    """The value that the main process passes, on every process; any object that can be pickled.

    >>> broadcast_from_main("runs/1")
    'runs/1'
    """
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


def gather(*tensors: Tensor, averaged: bool = False) -> tuple[Tensor, ...]:
    """Concatenate each tensor's rows over all processes, in the order of their ranks.

    The processes may hold different numbers of rows, the tensors of one process the same.
    Floating point tensors carry their gradient back to the rows' own process. Without an
    initialized process group the tensors come back as they are.

    averaged: the model behind the embeddings averages its gradients over the processes, as
    DistributedDataParallel does; the gradient of the embeddings is multiplied to make up for it.

    >>> gather(torch.tensor([[1.0, 2.0]]), torch.tensor([3]))
    (tensor([[1., 2.]]), tensor([3]))
    """
    rows = {len(tensor) for tensor in tensors}
    if len(rows) != 1:
        raise ValueError(
            "gather: expected one or more tensors of the same number of rows, got "
            f"{[tuple(tensor.shape) for tensor in tensors]}"
        )
    if world_size() == 1:
        return tensors
    own = torch.tensor([rows.pop()], device=tensors[0].device)
    sizes = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own)
    counts = [int(size) for size in sizes]
    factor = float(len(counts)) if averaged else 1.0
    return tuple(
        _Gather.apply(tensor, counts, factor)  # type: ignore[no-untyped-call]
        if tensor.is_floating_point()
        else _gathered(tensor, counts)
        for tensor in tensors
    )


def _gathered(tensor: Tensor, counts: list[int]) -> Tensor:
    # all_gather wants equal shapes: pad to the largest process, cut after.
    padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, counts: list[int], factor: float) -> Tensor:
        ctx.start = sum(counts[: dist.get_rank()])
        ctx.count = len(tensor)
        ctx.factor = factor
        return _gathered(tensor, counts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad[ctx.start : ctx.start + ctx.count] * ctx.factor, None, None
