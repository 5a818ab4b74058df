"""A training loop of one's own with Accelerate: `accelerate launch examples/with_accelerate.py`.

Accelerate shards the batches of kinspace's sampler over the processes by itself; `gather` puts the
embeddings of all processes together for the loss. Data and network are those of distributed.py.
"""

from typing import Any

import torch
from accelerate import Accelerator
from distributed import DIM, digits, network, recall
from torch.utils.data import DataLoader

from kinspace.distributed import gather
from kinspace.losses import ProxyAnchor
from kinspace.samplers import classes_by_samples


def main() -> None:
    """Train and print Recall@1 before and after."""
    accelerator = Accelerator()
    data = digits(train=True)
    sampler = classes_by_samples(data.tensors[1], classes=8, samples=8)
    net = network()
    torch.manual_seed(1)  # the same proxies on every process
    criterion = ProxyAnchor(num_classes=10, dim=DIM).to(accelerator.device)
    rates: list[dict[str, Any]] = [
        {"params": net.parameters()},
        {"params": criterion.parameters(), "lr": 0.1},
    ]
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.AdamW(rates, lr=3e-3), DataLoader(data, batch_sampler=sampler)
    )
    before = recall(model, device=accelerator.device)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for pixels, labels in loader:
            loss = criterion(*gather(model(pixels), labels, averaged=True))
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    after = recall(model, device=accelerator.device)
    accelerator.print(f"Recall@1 on rows never seen: {before:.1%} before, {after:.1%} after")
    accelerator.end_training()


if __name__ == "__main__":
    main()
