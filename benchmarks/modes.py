"""How often clusters_per_class="auto" finds the true number of modes, beside the BIC of X-means.

    python benchmarks/modes.py                       # some minutes
    python benchmarks/modes.py --classes 100 --json modes.json

Each cell: the share of classes with exactly the true number, ours and the BIC's, out of 1 to 8. The
modes of a class have means in random directions. The noise has variance 1 a dimension on average:
round, long (standard deviations falling as 1 / sqrt(i) over the dimensions), heavy (round, each
sample stretched as Student's t with 5 degrees of freedom) or spoiled (round, and 2 % of the samples
are anywhere).
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from kinspace.clustering import class_kmeans

MOST = 8
MODES = (1, 2, 3, 5)
# dimension, samples a class, distance of the modes' means
SETTINGS = [(64, 10, 14.0), (64, 60, 12.0), (64, 200, 10.0), (512, 20, 25.0), (512, 60, 20.0)]
SETTINGS += [(1024, 60, 25.0)]
NOISES = ("round", "long", "heavy", "spoiled")


@dataclass
class Row:
    noise: str
    dim: int
    size: int
    distance: float
    ours: dict[int, float]
    bic: dict[int, float]


def noise(kind: str, count: int, dim: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(count, dim, generator=generator)
    if kind == "long":
        spread = torch.arange(1, dim + 1) ** -0.5
        return drawn * spread / spread.square().mean().sqrt()
    if kind == "heavy":
        return drawn / torch.randn(count, 5, generator=generator).square().mean(1).sqrt()[:, None]
    if kind == "spoiled":
        anywhere = torch.rand(count, 1, generator=generator) < 0.02
        return torch.where(anywhere, 5 * drawn, drawn)
    return drawn


def draw(
    kind: str, classes: int, size: int, dim: int, modes: int, distance: float, seed: int
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, modes, dim, generator=generator)
    means *= distance / 2**0.5 / means.norm(dim=2, keepdim=True)
    labels = torch.arange(classes * size) % classes
    mode = torch.arange(classes * size) // classes % modes
    return means[labels, mode] + noise(kind, len(labels), dim, generator), labels


def by_bic(x: Tensor, labels: Tensor) -> Tensor:
    """Round clusters of one variance in all dimensions (Pelleg & Moore, 2000)."""
    size, dim = int((labels == 0).sum()), x.shape[1]
    scores = []
    for k in range(1, min(MOST, size - 1) + 1):
        found = class_kmeans(x, labels, k, restarts=4)  # as many as "auto" takes
        squares = (x - found.centers[found.clusters]).square().sum(1).double()
        inertia = torch.zeros(int(labels.max()) + 1).double().index_add_(0, labels, squares)
        counts = found.clusters.bincount().double()
        variance = inertia / (dim * (size - k))
        shares = torch.zeros_like(inertia)
        shares.index_add_(0, found.cluster_labels, counts * (counts / size).log())
        fit = shares - size * dim / 2 * variance.log() - dim * (size - k) / 2
        scores.append(fit - (k + k * dim) / 2 * math.log(size))
    return torch.stack(scores, 1).argmax(1) + 1


def row(kind: str, setting: tuple[int, int, float], classes: int) -> Row:
    dim, size, distance = setting
    ours, bic = {}, {}
    for modes in MODES:
        x, labels = draw(kind, classes, size, dim, modes, distance, seed=modes)
        found = class_kmeans(x, labels, "auto", max_clusters=MOST).cluster_labels.bincount()
        ours[modes] = (found == modes).double().mean().item()
        bic[modes] = (by_bic(x, labels) == modes).double().mean().item()
    return Row(kind, dim, size, distance, ours, bic)


def to_markdown(rows: list[Row]) -> str:
    head = ["noise", "dim", "samples", "distance", *(f"{m} mode{'s'[: m > 1]}" for m in MODES)]
    table = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in rows:
        cells = [f"{row.ours[m]:.0%} / {row.bic[m]:.0%}" for m in MODES]
        table.append([row.noise, str(row.dim), str(row.size), f"{row.distance:g}", *cells])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row(kind, setting, options.classes) for kind in NOISES for setting in SETTINGS]
    print(f"{options.classes} classes a cell: ours / BIC\n\n{to_markdown(rows)}")
    for name in ("ours", "bic"):
        shares = [share for each in rows for share in getattr(each, name).values()]
        print(f"\nmean of all cells, {name}: {sum(shares) / len(shares):.1%}")
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
