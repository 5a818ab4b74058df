"""Time a whole epoch of index batches, and what it sees, beside pytorch-metric-learning.

    python benchmarks/sampling.py
    python benchmarks/sampling.py --samples 5900 --classes 100 --json cub.json

The set is like Stanford Online Products: two samples of every class, the rest at random. A row is
the median of some epochs on one core, after one to warm up, by the clock and in time of the
processor, which other programs disturb less: `list(sampler)`, lists of numbers, as a DataLoader
takes them. MPerClassSampler gives single numbers, as many as there are samples; cutting
them into batches is left to the DataLoader and not timed. Seen is the share in one epoch, the mean
over the epochs. Where pytorch-metric-learning is absent only ours are timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from peers import version
from setting import setting
from torch import Tensor

from kinspace.samplers import classes_by_samples, n_pairs, neighborhoods, random, whole_classes

ASKED_MS = 20.0
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    sampler: str
    composition: str
    build_ms: float
    epoch_ms: float
    cpu_ms: float
    batches: int
    drawn: int
    samples_seen: float
    classes_seen: float


class DrawnIndex:
    """Two clusters a class with random neighbors: the time of an index is not the sampler's."""

    def __init__(self, labels: Labels) -> None:
        draw = np.random.default_rng(1)
        halves = 2 * labels + draw.integers(2, size=len(labels))
        found, clusters = np.unique(halves, return_inverse=True)
        self.clusters = torch.from_numpy(clusters)
        self.cluster_labels = torch.from_numpy(found // 2)
        self.probabilities = torch.from_numpy(draw.random(len(found)))
        parts = np.split(np.argsort(clusters, kind="stable"), np.bincount(clusters).cumsum()[:-1])
        self.parts = list(map(torch.from_numpy, parts))

    def members(self, cluster: int) -> Tensor:
        return self.parts[cluster]

    def seed_probabilities(self) -> Tensor:
        return self.probabilities

    def nearest_impostors(self, seed: int, m: int) -> Tensor:
        # the clusters after it, but for a second one of its class
        near = (seed + torch.arange(m + 1)) % len(self.cluster_labels)
        other = self.cluster_labels[near] != self.cluster_labels[seed]
        other[0] = True
        return near[other][:m]


def samplers(labels: Labels, batch: int) -> dict[tuple[str, str], Callable[[], Iterable[object]]]:
    return {
        (f"classes_by_samples {batch // n} x {n}", f"{batch // n} classes x {n}"): (
            lambda n=n: classes_by_samples(labels, classes=batch // n, samples=n)
        )
        for n in (8, 4)
    } | {
        (f"n_pairs {batch // 2}", f"{batch // 2} classes x 2"): (
            lambda: n_pairs(labels, pairs=batch // 2)
        ),
        (f"whole_classes {batch}", "whole classes"): (
            lambda: whole_classes(labels, batch_size=batch)
        ),
        (f"random {batch}", "any"): lambda: random(labels, batch_size=batch),
        (f"neighborhoods {batch // 4} x 4", f"{batch // 4} clusters x 4"): (
            lambda: neighborhoods(DrawnIndex(labels), clusters=batch // 4, samples=4)
        ),
    }


def peers(labels: Labels, batch: int) -> dict[tuple[str, str], Callable[[], Iterable[object]]]:
    from pytorch_metric_learning.samplers import MPerClassSampler

    return {
        (f"PML MPerClassSampler m={m}", f"{batch // m} classes x {m}"): (
            lambda m=m: MPerClassSampler(
                labels, m=m, batch_size=batch, length_before_new_iter=len(labels)
            )
        )
        for m in (8, 4)
    }


def like_online_products(samples: int, classes: int) -> Labels:
    draw = np.random.default_rng(0)
    pairs = np.repeat(np.arange(classes), 2)
    return draw.permutation(np.append(pairs, draw.integers(classes, size=samples - len(pairs))))


def timed(
    name: tuple[str, str], build: Callable[[], Iterable[object]], labels: Labels, epochs: int
) -> Row:
    began = time.perf_counter()
    sampler = build()
    build_ms = (time.perf_counter() - began) * 1e3
    times, cpu, samples_seen, classes_seen = [], [], [], []
    for _ in range(epochs + 1):
        began, worked = time.perf_counter(), time.process_time()
        batches = list(sampler)
        cpu.append((time.process_time() - worked) * 1e3)
        times.append((time.perf_counter() - began) * 1e3)
        drawn = np.hstack([np.asarray(batch) for batch in batches])
        seen = np.unique(drawn)
        samples_seen.append(len(seen) / len(labels))
        classes_seen.append(len(np.unique(labels[seen])) / len(np.unique(labels)))
    return Row(
        *name,
        build_ms=build_ms,
        epoch_ms=statistics.median(times[1:]),
        cpu_ms=statistics.median(cpu[1:]),
        batches=len(batches),
        drawn=len(drawn),
        samples_seen=statistics.mean(samples_seen[1:]),
        classes_seen=statistics.mean(classes_seen[1:]),
    )


def to_markdown(rows: list[Row], batch: int) -> str:
    head = ["sampler", "batch", "build ms", "epoch ms", "CPU ms", "batches", "drawn"]
    head += ["samples seen", "classes seen"]
    table = [head, ["---", "---", *["---:"] * 7]]
    for row in rows:
        batches = row.drawn // batch if row.sampler.startswith("PML") else row.batches
        table.append(
            [
                row.sampler,
                row.composition,
                f"{row.build_ms:.1f}",
                f"{row.epoch_ms:.1f}",
                f"{row.cpu_ms:.1f}",
                f"{batches:,}",
                f"{row.drawn:,}",
                f"{row.samples_seen:.1%}",
                f"{row.classes_seen:.1%}",
            ]
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--classes", type=int, default=11_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--commit", help="the commit to name, where git is absent")
    parser.add_argument("--skip-pml", action="store_true", help="time only ours")
    options = parser.parse_args()
    options.device, options.threads = "cpu", 1
    options.skip_pml = options.skip_pml or version() is None
    torch.set_num_threads(1)
    facts = setting(options)
    labels = like_online_products(options.samples, options.classes)
    contenders = samplers(labels, options.batch)
    if not options.skip_pml:
        contenders |= peers(labels, options.batch)
    rows = [timed(name, build, labels, options.epochs) for name, build in contenders.items()]
    print(
        f"{facts['hardware']}, numpy {np.__version__}, kinspace at {facts['commit']}: "
        f"{options.samples:,} samples of {options.classes:,} classes, batches of {options.batch}.\n"
    )
    print(to_markdown(rows, options.batch))
    ours = [row for row in rows if row.sampler.startswith("classes_by_samples")]
    slowest, clock = max(row.cpu_ms for row in ours), max(row.epoch_ms for row in ours)
    met = slowest < ASKED_MS and min(row.samples_seen for row in ours) == 1
    print(
        f"\n{'pass' if met else 'FAIL'}: an epoch of classes_by_samples under {ASKED_MS:g} ms that "
        f"sees every sample, in time of the processor (slowest: {slowest:.1f} ms; "
        f"by the clock {clock:.1f} ms)"
    )
    if options.json:
        found = {"setting": facts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
