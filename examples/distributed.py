"""A training loop of one's own on several processes: DistributedDataParallel or FSDP2.

    torchrun --nproc-per-node 2 examples/distributed.py
    torchrun --nproc-per-node 2 examples/distributed.py --fsdp

Each process embeds its share of the batch. `gather` puts the shares together, so that the loss sees
all pairs of the whole batch, and sends each process the gradient of its own rows. The processes
compute the same loss, so the loss's own parameters (proxies) stay the same without an exchange.
With two processes or one, the weights after training are the same to rounding. GPUs are used where
there are any, else gloo on the CPU. A few seconds, no download.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from kinspace.distributed import gather, init_process_group, rank, world_size
from kinspace.evaluation import RetrievalMetrics
from kinspace.losses import ProxyAnchor
from kinspace.samplers import classes_by_samples

DIM = 16


def digits(*, train: bool) -> TensorDataset:
    """Three quarters of the rows, or the last quarter: 64 pixels and 64 columns of noise."""
    data = load_digits()
    noise = np.random.default_rng(0).standard_normal((len(data.target), 64))
    values = np.hstack([data.data / 16, noise]).astype(np.float32)
    cut = len(values) * 3 // 4
    rows = slice(0, cut) if train else slice(cut, None)
    return TensorDataset(torch.from_numpy(values[rows]), torch.from_numpy(data.target[rows]))


def network() -> nn.Sequential:
    """Two linear layers, the same on every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, DIM))


def wrapped(net: nn.Module, *, fsdp: bool) -> nn.Module:
    """The network on all processes; with one process as it is."""
    if world_size() == 1:
        return net
    if fsdp:  # resharded at once, so that `parameters()` are the shards after any forward pass
        fully_shard(net, reshard_after_forward=True)  # changes the network in place
        return net
    return DistributedDataParallel(net)


def train(model: nn.Module, *, epochs: int, device: torch.device) -> None:
    """Train a wrapped model, each process with its share of every batch."""
    data = digits(train=True)
    sampler = classes_by_samples(
        data.tensors[1],
        classes=8,
        samples=8,
        rank=rank(),
        world_size=world_size(),
    )
    loader = DataLoader(data, batch_sampler=sampler)
    torch.manual_seed(1)  # the same proxies on every process
    criterion = ProxyAnchor(num_classes=10, dim=DIM).to(device)
    rates: list[dict[str, Any]] = [
        {"params": model.parameters()},
        {"params": criterion.parameters(), "lr": 0.1},
    ]
    optimizer = torch.optim.AdamW(rates, lr=3e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for pixels, labels in loader:
            embeddings = model(pixels.to(device))
            # averaged: DDP and FSDP take the mean of the gradients over the processes
            loss = criterion(*gather(embeddings, labels.to(device), averaged=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def recall(model: nn.Module, *, device: torch.device) -> float:
    """Recall@1 on the rows never seen; each process embeds a share, all get the number."""
    data = digits(train=False)
    measure = RetrievalMetrics(ks=(1,))
    for rows in torch.arange(len(data)).split(128):
        own = rows[rank() :: world_size()]
        pixels, labels = data[own]
        measure.update(model(pixels.to(device)), labels.to(device), ids=own.to(device))
    return measure.compute()["recall@1"]


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The whole weights: FSDP's shards are put together."""
    net = model.module if isinstance(model, DistributedDataParallel) else model
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).cpu()
        for name, value in net.state_dict().items()
    }


def main() -> None:
    """Train on the processes of torchrun and print Recall@1 before and after."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fsdp", action="store_true", help="FSDP2 in place of DDP")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--save", type=Path, help="file for the weights")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    started = init_process_group(device)
    try:
        model = wrapped(network().to(device), fsdp=options.fsdp)
        before = recall(model, device=device)
        train(model, epochs=options.epochs, device=device)
        after, found = recall(model, device=device), weights(model)
        if rank() == 0:
            print(f"Recall@1 on rows never seen: {before:.1%} before, {after:.1%} after")
            if options.save is not None:
                torch.save(found, options.save)
    finally:
        if started:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
