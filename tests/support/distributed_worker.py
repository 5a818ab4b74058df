"""What one process of test_distributed.py does: python distributed_worker.py RANK WORLD FOLDER.

The same functions, called without a process group on the whole batch, give what is expected.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from batches import NUM_CLASSES, Batch, random_batch
from kinspace.distributed import gather
from kinspace.losses import CrossBatchMemory, ProxyAnchor, SupCon
from kinspace.regularizers import (
    HypersphericalEnergy,
    LogExpSpread,
    PowerSpread,
    UniformSpread,
)
from modules import MODULES

SIZES = [5, 3, 4]  # samples on each rank: not the same number, and classes that lie across ranks
DIM, FEATURES, STEPS = 4, 6, 2
Results = dict[str, Any]

# Terms that are applied to the proxies of a loss, on a sample of them where it is asked for.
SPREADS: dict[str, Callable[[], nn.Module]] = {
    "log_exp_spread": LogExpSpread,
    "power_spread": lambda: PowerSpread(max_centers=5),
    "hyperspherical_energy": HypersphericalEnergy,
    "uniform_spread": lambda: UniformSpread(max_centers=5, seed=2),
}


def whole_batch(step: int, world: int, dim: int = DIM) -> Batch:
    """The samples of all ranks, one after another."""
    batch = random_batch(100 + step, classes=4, per_class=3, dim=dim)
    count = sum(SIZES[:world])
    return Batch(batch.embeddings[:count], batch.labels[:count])


def share(batch: Batch, rank: int | None, sizes: list[int] = SIZES) -> Batch:
    """A rank's own part of the batch; None is the one process that has it all."""
    if rank is None:
        return batch
    start = sum(sizes[:rank])
    return Batch(*(tensor[start : start + sizes[rank]] for tensor in batch))


def registered(name: str, rank: int | None, world: int) -> Results:
    """Two steps of training with a module: losses, all gradients, and the state after."""
    torch.manual_seed(0)
    module = MODULES[name].build(NUM_CLASSES, DIM).double()
    found: Results = {}
    for step in range(STEPS):
        own = share(whole_batch(step, world), rank)
        leaf = own.embeddings.clone().requires_grad_()
        module.zero_grad()
        loss = module(*gather(leaf, own.labels))
        loss.backward()
        found[f"loss {step}"] = loss.detach()
        found[f"embeddings {step}"] = leaf.grad
        with torch.no_grad():
            for key, parameter in module.named_parameters():
                found[f"gradient of {key} {step}"] = parameter.grad.clone()
                parameter -= 0.1 * parameter.grad
        found.update({f"{key} after {step}": v.clone() for key, v in module.state_dict().items()})
    return found


def spread_over_proxies(name: str, rank: int | None, world: int) -> Results:
    """Proxy-anchor plus a weighted spread of its proxies."""
    torch.manual_seed(0)
    criterion, spread = ProxyAnchor(NUM_CLASSES, DIM).double(), SPREADS[name]()
    own = share(whole_batch(0, world), rank)
    leaf = own.embeddings.clone().requires_grad_()
    embeddings, labels = gather(leaf, own.labels)
    loss = criterion(embeddings, labels) + 0.5 * spread(criterion.proxies, labels)
    loss.backward()
    return {
        "loss": loss.detach(),
        "embeddings": leaf.grad,
        "proxies": criterion.proxies.grad,
    }


def backbone(rank: int | None, world: int) -> Results:
    """A backbone in DistributedDataParallel, which averages; the proxies are outside of it."""
    torch.manual_seed(0)
    model: nn.Module = nn.Linear(FEATURES, DIM).double()
    criterion = ProxyAnchor(NUM_CLASSES, DIM).double()
    wrapped = model if rank is None else DistributedDataParallel(model)
    own = share(whole_batch(0, world, FEATURES), rank)
    loss = criterion(*gather(wrapped(own.embeddings), own.labels, averaged=True))
    loss.backward()
    return {
        "loss": loss.detach(),
        "weight": model.weight.grad,
        "bias": model.bias.grad,
        "proxies": criterion.proxies.grad,
    }


def with_an_empty_rank(rank: int | None, world: int) -> Results:
    """The second rank has no sample at all in this step."""
    sizes = [4, 0, 3]
    torch.manual_seed(0)
    criterion = ProxyAnchor(NUM_CLASSES, DIM).double()
    batch = whole_batch(0, world)
    batch = Batch(*(tensor[: sum(sizes[:world])] for tensor in batch))
    own = share(batch, rank, sizes)
    leaf = own.embeddings.clone().requires_grad_()
    loss = criterion(*gather(leaf, own.labels))
    loss.backward()
    return {"loss": loss.detach(), "embeddings": leaf.grad, "proxies": criterion.proxies.grad}


def cross_batch_memory(rank: int | None, world: int) -> Results:
    """Three batches; the second forgets a part of the first."""
    criterion = CrossBatchMemory(SupCon(), size=16, dim=DIM).double()
    found: Results = {}
    for step in range(3):
        own = share(whole_batch(step, world), rank)
        leaf = own.embeddings.clone().requires_grad_()
        loss = criterion(*gather(leaf, own.labels))
        loss.backward()
        found |= {f"loss {step}": loss.detach(), "embeddings": leaf.grad}
    return {**found, "memory": criterion.memory, "labels": criterion.memory_labels}


def tensors_of_every_kind(rank: int | None, world: int) -> Results:
    """Half precision, integers, vectors, three dimensions, a tensor that is not contiguous."""
    batch = whole_batch(0, world)
    own = share(batch, rank)
    x, labels = own
    wide = x[:, :, None] * torch.ones(3, dtype=x.dtype)
    return {
        str(number): found.detach().clone()
        for number, found in enumerate(
            gather(
                x.half(),
                x.bfloat16(),
                x.float(),
                x[:, 0],
                wide,
                wide.transpose(1, 2),
                labels,
                labels.to(torch.uint8),
                labels > 1,
            )
        )
    }


EXTRAS: dict[str, Callable[[int | None, int], Results]] = {
    "a backbone in DDP": backbone,
    "cross-batch memory": cross_batch_memory,
    "an empty rank": with_an_empty_rank,
    "tensors of every kind": tensors_of_every_kind,
}


def everything(rank: int | None, world: int) -> dict[str, Results]:
    found = {name: registered(name, rank, world) for name in MODULES}
    for name in SPREADS:
        found[f"{name} of proxies"] = spread_over_proxies(name, rank, world)
    for name, extra in EXTRAS.items():
        # DDP takes as long to import as torch itself: once is enough
        if extra is not backbone or world == 3:
            found[name] = extra(rank, world)
    return found


def errors() -> list[str]:
    """What is said of tensors that do not fit; every rank fails alike, before it communicates."""
    said = []
    for wrong in ((torch.zeros(2, 3), torch.zeros(3)), ()):
        try:
            gather(*wrong)
        except ValueError as error:
            said.append(str(error))
    return said


def main(rank: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    torch.save({"found": everything(rank, world), "errors": errors()}, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
