"""How hard are the moths? Recall@1 on species never seen in training.

Two halves by class: `genera` trains on the first fifteen genera and tests on the other fifteen;
`species` trains on two species of every genus and tests on the other two. Measured: raw pixels,
the mean color, a color histogram, and a small convolutional network before and after it is
trained with the proxy-anchor loss. Two cores: about three minutes a split.

    python benchmarks/moths.py [--split genera] [--steps 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from kinspace.data.moths import Moths, load_moths
from kinspace.losses import ProxyAnchor

DIM = 128
CLASSES, SAMPLES = 15, 4  # of a batch
SIDE, CROP = 80, 0.9  # pixels the network is given before the crop, and the share it keeps


def network(width: int = 24) -> nn.Sequential:
    """Five convolutions; the pooling forgets where a feature was found."""
    layers: list[nn.Module] = []
    channels = 3
    for i, out in enumerate((width, 2 * width, 4 * width, 6 * width, 8 * width)):
        layers += [
            nn.Conv2d(channels, out, 3, stride=2 if i < 4 else 1, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        ]
        channels = out
    return nn.Sequential(
        *layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels, DIM)
    ).to(memory_format=torch.channels_last)


def pictures(images: NDArray[np.uint8]) -> Tensor:
    values = torch.from_numpy(images).permute(0, 3, 1, 2)
    resized = functional.interpolate(values, SIDE, mode="bilinear", antialias=True)
    return (resized.float() / 255 - 0.45) / 0.25


def augment(batch: Tensor, generator: torch.Generator) -> Tensor:
    """One random crop for the batch, a mirror for half of it, some brightness for each."""
    side = batch.shape[-1]
    size = round(CROP * side)
    top, left = torch.randint(side - size + 1, (2,), generator=generator).tolist()
    batch = batch[:, :, top : top + size, left : left + size]
    flip = torch.rand(len(batch), generator=generator) < 0.5
    batch = torch.where(flip[:, None, None, None], batch.flip(3), batch)
    gain = 1 + 0.15 * torch.randn(len(batch), 1, 1, 1, generator=generator)
    shift = 0.15 * torch.randn(len(batch), 3, 1, 1, generator=generator)
    return batch * gain + shift


def draw_batch(labels: Tensor, generator: torch.Generator) -> Tensor:
    chosen = []
    classes = labels.unique()
    for label in classes[torch.randperm(len(classes), generator=generator)[:CLASSES]]:
        members = (labels == label).nonzero().squeeze(1)
        chosen.append(members[torch.randperm(len(members), generator=generator)[:SAMPLES]])
    return torch.cat(chosen)


def train(model: nn.Module, images: Tensor, labels: Tensor, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    criterion = ProxyAnchor(int(labels.max()) + 1, DIM)
    groups = [
        {"params": model.parameters(), "lr": 2e-3},
        {"params": criterion.parameters(), "lr": 5e-2},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [2e-3, 5e-2], total_steps=steps, pct_start=0.15
    )
    model.train()
    for _ in range(steps):
        batch = draw_batch(labels, generator)
        inputs = augment(images[batch], generator).contiguous(memory_format=torch.channels_last)
        loss = criterion(model(inputs), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.inference_mode()
def embed(model: nn.Module, images: Tensor) -> Tensor:
    model.eval()
    margin = round(images.shape[-1] * (1 - CROP) / 2)
    images = images[:, :, margin:-margin, margin:-margin]
    parts = [model(part) + model(part.flip(3)) for part in images.split(200)]
    return torch.cat(parts)


def recall_at_1(vectors: Tensor, labels: Tensor) -> float:
    unit = functional.normalize(vectors.float(), dim=1)
    similarity = unit @ unit.T
    similarity.fill_diagonal_(-torch.inf)
    return (labels[similarity.argmax(1)] == labels).double().mean().item()


def mean_colors(images: Tensor) -> Tensor:
    """Centered, so that the cosine compares hues and not only brightness."""
    colors = images.mean((2, 3))
    return colors - colors.mean(0)


def histograms(images: Tensor) -> Tensor:
    levels = ((images * 0.25 + 0.45) * 3.999).long().clamp(0, 3)
    bins = (levels[:, 0] * 16 + levels[:, 1] * 4 + levels[:, 2]).flatten(1)
    return torch.stack([row.bincount(minlength=64) for row in bins]).float().sqrt()


def halves(moths: Moths, split: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    first = (
        moths.labels < len(moths.class_names) // 2 if split == "genera" else moths.labels % 4 < 2
    )
    return first, ~first


def measure(moths: Moths, split: str, steps: int, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    first, second = halves(moths, split)
    labels = torch.from_numpy(moths.labels)
    seen, train_labels = labels[first].unique(return_inverse=True)
    assert not set(seen.tolist()) & set(labels[second].tolist())
    images, test_labels = pictures(moths.images[second]), labels[second]
    model = network()
    results = {
        "raw pixels": recall_at_1(images.flatten(1), test_labels),
        "mean color": recall_at_1(mean_colors(images), test_labels),
        "color histogram": recall_at_1(histograms(images), test_labels),
        "untrained network": recall_at_1(embed(model, images), test_labels),
    }
    if not steps:
        return results
    train(model, pictures(moths.images[first]), train_labels, steps, seed)
    vectors = embed(model, images)
    results["trained network"] = recall_at_1(vectors, test_labels)
    results["trained, same genus"] = recall_at_1(vectors, test_labels // 4)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--split", choices=("genera", "species"), action="append")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moths = load_moths()
    for split in options.split or ("genera", "species"):
        start = time.perf_counter()
        results = measure(moths, split, options.steps, options.seed)
        print(f"unseen {split}: Recall@1 ({time.perf_counter() - start:.0f} s)")
        for name, value in results.items():
            print(f"  {name:20}{value:7.1%}", flush=True)


if __name__ == "__main__":
    main()
