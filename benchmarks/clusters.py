"""Time and inertia of class_kmeans beside scikit-learn's KMeans run class by class.

    python benchmarks/clusters.py                    # two CPU threads, some minutes
    python benchmarks/clusters.py --device cuda
    python benchmarks/clusters.py --cases 6000x1024 --json clusters.json

Both get the same embeddings, the same number of clusters (the smaller of K and the samples of the
class), K-means++, one start and the same limit of steps, in one process; scikit-learn keeps its own
tolerance. Each has the better of one thread and --threads of them: ours by the median of several
runs after a first one; scikit-learn by its time on the first classes, and is then run once on all.
Its time is the sum over the fits alone, without cutting out the samples of a class. On a busy
machine more threads wait for each other, and one of either is what is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import sklearn
import torch
from setting import setting
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor

from kinspace.clustering import class_kmeans

STEPS = 50
PROBE = 20  # classes on which scikit-learn's threads are chosen
ASKED_SPEEDUP = 10
ASKED_INERTIA = 1.02


@dataclass(frozen=True)
class Case:
    samples: int
    dim: int
    classes: int
    clusters: int


CASES = {
    "60000x512": Case(samples=60_000, dim=512, classes=11_000, clusters=2),
    "6000x1024": Case(samples=6_000, dim=1_024, classes=100, clusters=8),
}


@dataclass
class Row:
    case: str
    classes: int
    clusters: str
    ours_s: float
    ours_inertia: float
    peer_s: float | None = None
    peer_inertia: float | None = None
    peer_threads: int | None = None

    @property
    def speedup(self) -> float | None:
        return self.peer_s / self.ours_s if self.peer_s else None

    @property
    def inertia_ratio(self) -> float | None:
        return self.ours_inertia / self.peer_inertia if self.peer_inertia else None


def embed(case: Case, seed: int) -> tuple[Tensor, Tensor]:
    """Vectors of length 1: classes of several modes, at least two samples each, in mixed order.

    As in real embeddings dimensions do not count alike: standard deviations fall as 1 / sqrt(i).
    """
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.arange(case.classes).repeat_interleave(2)
    rest = torch.randint(case.classes, (case.samples - len(pairs),), generator=generator)
    even = torch.arange(case.samples) % case.classes
    labels = even if case.samples >= 20 * case.classes else torch.cat([pairs, rest])
    labels = labels[torch.randperm(case.samples, generator=generator)]
    modes = torch.randn(case.classes, case.clusters, case.dim, generator=generator)
    mode = torch.randint(case.clusters, (case.samples,), generator=generator)
    noise = torch.randn(case.samples, case.dim, generator=generator)
    spread = torch.arange(1, case.dim + 1) ** -0.5
    embeddings = (0.5 * modes[labels, mode] + noise) * spread
    return embeddings / embeddings.norm(dim=1, keepdim=True), labels


def ours(
    embeddings: Tensor, labels: Tensor, clusters: int | Literal["auto"], options: argparse.Namespace
) -> tuple[float, float, int]:
    """Median seconds, inertia and the number of clusters."""
    medians = []
    for threads in sorted({1, options.threads}):
        torch.set_num_threads(threads)
        times = []
        for _ in range(options.repeat + 1):
            began = time.perf_counter()
            found = class_kmeans(embeddings, labels, clusters, iterations=STEPS)
            if embeddings.is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times[1:]))
    sums = torch.zeros(len(found.centers), embeddings.shape[1], dtype=torch.float64)
    vectors, owners = embeddings.double().cpu(), found.clusters.cpu()
    means = sums.index_add_(0, owners, vectors) / owners.bincount()[:, None]
    inertia = (vectors - means[owners]).square_().sum().item()  # by differences, not by our own
    return min(medians), inertia, len(means)


def peer(
    embeddings: Tensor, labels: Tensor, clusters: int, threads: int
) -> tuple[float, float, int]:
    """Seconds, inertia and threads of scikit-learn."""
    order = np.argsort(labels.numpy(), kind="stable")
    parts = np.split(embeddings.numpy()[order], np.bincount(labels.numpy()).cumsum()[:-1])

    def fit(first: int, last: int, count: int) -> tuple[float, float]:
        seconds = inertia = 0.0
        with threadpool_limits(count):
            for number, part in enumerate(parts[first:last]):
                began = time.perf_counter()
                model = KMeans(
                    min(clusters, len(part)), n_init=1, max_iter=STEPS, random_state=number
                ).fit(part)
                seconds += time.perf_counter() - began
                inertia += model.inertia_
        return seconds, inertia

    fit(0, PROBE, 1)  # warm up
    fastest = min({1, threads}, key=lambda count: fit(0, PROBE, count)[0])
    return *fit(0, len(parts), fastest), fastest


def run(name: str, options: argparse.Namespace, on_row: Callable[[Row], None]) -> None:
    case = CASES[name]
    embeddings, labels = embed(case, options.seed)
    device = torch.device(options.device)
    placed = embeddings.to(device), labels.to(device)
    seconds, inertia, _ = ours(*placed, case.clusters, options)
    row = Row(name, case.classes, str(case.clusters), seconds, inertia)
    if not options.skip_sklearn:
        found = peer(embeddings, labels, case.clusters, options.threads)
        row.peer_s, row.peer_inertia, row.peer_threads = found
    on_row(row)
    seconds, inertia, count = ours(*placed, "auto", options)
    on_row(Row(name, case.classes, f"auto: {count / case.classes:.2f}", seconds, inertia))


def to_markdown(rows: list[Row]) -> str:
    head = ["case", "classes", "K", "ours s", "scikit-learn s", "speedup", "inertia, ours"]
    head += ["scikit-learn", "ratio"]
    table = [head, ["---", *["---:"] * 8]] + [to_cells(row) for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def to_cells(row: Row) -> list[str]:
    return [
        row.case,
        f"{row.classes:,}",
        row.clusters,
        f"{row.ours_s:.3f}",
        "" if row.peer_s is None else f"{row.peer_s:.2f}",
        "" if row.speedup is None else f"{row.speedup:.1f}x",
        f"{row.ours_inertia:.1f}",
        "" if row.peer_inertia is None else f"{row.peer_inertia:.1f}",
        "" if row.inertia_ratio is None else f"{row.inertia_ratio:.4f}",
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5, help="runs of ours after the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--commit", help="the commit to name, where git is absent")
    parser.add_argument("--skip-sklearn", action="store_true", help="time only ours")
    return parser.parse_args()


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    options = parse()
    options.skip_pml = True
    facts = setting(options)
    rows: list[Row] = []
    for name in options.cases:
        run(name, options, rows.append)
    print(
        f"{facts['hardware']}; torch {facts['torch']}, scikit-learn {sklearn.__version__}, "
        f"kinspace at {facts['commit']}. At most {STEPS} steps, one start, float32. Load "
        f"{os.getloadavg()[0]:.1f} in the last minute.\n"
    )
    print(to_markdown(rows))
    for row in rows:
        if row.speedup is not None and row.inertia_ratio is not None:
            met = row.speedup >= ASKED_SPEEDUP and row.inertia_ratio <= ASKED_INERTIA
            print(
                f"\n{'pass' if met else 'FAIL'}: {row.case} {row.speedup:.1f}x as fast "
                f"(asked: {ASKED_SPEEDUP}x) at {row.inertia_ratio - 1:+.2%} inertia (asked: at "
                f"most {ASKED_INERTIA - 1:+.0%}); scikit-learn on {row.peer_threads} thread(s)"
            )
    if options.json:
        found = {"setting": facts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
