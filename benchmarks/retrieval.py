"""Time and memory of all retrieval measures, and of clustering, at the size of a large test set.

    python benchmarks/retrieval.py                           # two CPU threads, 60,502 x 512
    python benchmarks/retrieval.py --device cuda
    python benchmarks/retrieval.py --samples 10000 --classes 1870 --json retrieval.json

Vectors of length 1 in 11,316 classes, as many as in the test half of Stanford Online Products.
Ours: Recall@K and precision@K for K = 1, 10, 100, 1000, mAP over the whole ranking, MAP@R and
R-precision. Beside it, where pytorch-metric-learning and faiss are installed, its
AccuracyCalculator with precision@1, MAP@R, R-precision and mAP over the first 1000; on a GPU it
takes faiss's CPU search unless faiss has been built for GPUs. The values that both have must agree.

Each contender runs in a process of its own, once to warm up on a part and then --repeat times; the
best run counts. CPU seconds include those in which a thread waits for the other. Memory is what
the process, or on a GPU the allocator, held at most above what it held before the call.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from setting import setting
from torch import Tensor

KS = (1, 10, 100, 1000)
GIGABYTE = 1e9
ASKED_MEMORY = 2.0  # GB
ASKED_GPU = 1.0  # seconds
ASKED_CLUSTERING = 20.0  # seconds, on a GPU
SHARED = ("recall@1", "map@r", "r_precision")  # what both compute, by our names


@dataclass
class Row:
    contender: str
    seconds: float
    cpu_seconds: float
    gigabytes: float
    values: dict[str, float]


def embed(samples: int, classes: int, dim: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Classes of nearly one size in mixed order; standard deviations fall as 1 / sqrt(i)."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.arange(classes).repeat_interleave(2)
    rest = torch.randint(classes, (samples - len(pairs),), generator=generator)
    labels = torch.cat([pairs, rest])[torch.randperm(samples, generator=generator)]
    middles = torch.randn(classes, dim, generator=generator)
    vectors = middles[labels] + noise * torch.randn(samples, dim, generator=generator)
    vectors *= torch.arange(1, dim + 1) ** -0.5
    return vectors / vectors.norm(dim=1, keepdim=True), labels


def ours(vectors: Tensor, labels: Tensor) -> dict[str, float]:
    from kinspace.evaluation import retrieval_metrics

    return retrieval_metrics(vectors, labels, ks=KS)


def clustering(vectors: Tensor, labels: Tensor) -> dict[str, float]:
    from kinspace.evaluation import clustering_metrics

    return clustering_metrics(vectors, labels, restarts=1)


def pml(vectors: Tensor, labels: Tensor) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = {
        "precision_at_1": "recall@1",  # the same for K = 1
        "mean_average_precision_at_r": "map@r",
        "r_precision": "r_precision",
        "mean_average_precision": "map of the first 1000",
    }
    calculator = AccuracyCalculator(include=tuple(names), k=min(max(KS), len(vectors) - 1))
    found = calculator.get_accuracy(vectors, labels)
    return {ours: float(found[theirs]) for theirs, ours in names.items()}


CONTENDERS: dict[str, Callable[[Tensor, Tensor], dict[str, float]]] = {
    "kinspace": ours,
    "pytorch-metric-learning": pml,
    "clustering": clustering,
}


def measure(name: str, options: argparse.Namespace) -> Row:
    """Run one contender in this process."""
    torch.set_num_threads(options.threads)
    call = CONTENDERS[name]
    vectors, labels = embed(
        options.samples, options.classes, options.dim, options.noise, options.seed
    )
    vectors, labels = vectors.to(options.device), labels.to(options.device)
    cuda = options.device == "cuda"
    few = slice(0, min(2000, options.samples))
    call(vectors[few], labels[few])
    best: Row | None = None
    for _ in range(options.repeat):
        before = _held(cuda)
        wall, cpu = time.perf_counter(), time.process_time()
        values = call(vectors, labels)
        if cuda:
            torch.cuda.synchronize()
        row = Row(
            name,
            time.perf_counter() - wall,
            time.process_time() - cpu,
            (_peak(cuda) - before) / GIGABYTE,
            values,
        )
        # the process's peak never falls: the first run tells the memory
        best = (
            row
            if best is None
            else Row(**(asdict(min(best, row, key=_seconds)) | {"gigabytes": best.gigabytes}))
        )
    assert best is not None
    return best


def _seconds(row: Row) -> float:
    return row.seconds


def _held(cuda: bool) -> float:
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.memory_allocated())
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _peak(cuda: bool) -> float:
    if cuda:
        return float(torch.cuda.max_memory_allocated())
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def contenders(options: argparse.Namespace) -> list[str]:
    names = ["kinspace"]
    parts = ("pytorch_metric_learning", "faiss")
    missing = [part for part in parts if importlib.util.find_spec(part) is None]
    if missing:
        print(f"Without pytorch-metric-learning: {', '.join(missing)} not installed.\n")
    elif not options.skip_pml:
        names.append("pytorch-metric-learning")
    return names if options.skip_clustering else [*names, "clustering"]


def to_markdown(rows: list[Row]) -> str:
    table = [["contender", "s", "CPU s", "GB", "values"], ["---", "---:", "---:", "---:", "---"]]
    for row in rows:
        values = ", ".join(f"{name} {value:.4g}" for name, value in row.values.items())
        numbers = [f"{row.seconds:.2f}", f"{row.cpu_seconds:.1f}", f"{row.gigabytes:.2f}"]
        table.append([row.contender, *numbers, values])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def requirements(rows: list[Row], options: argparse.Namespace) -> list[tuple[bool, str]]:
    """Requirements: whether each holds, in words."""
    by_name = {row.contender: row for row in rows}
    own, peer = by_name["kinspace"], by_name.get("pytorch-metric-learning")
    found = [(own.gigabytes < ASKED_MEMORY, f"{own.gigabytes:.2f} GB, asked under {ASKED_MEMORY}")]
    if options.device == "cuda":
        found.append((own.seconds < ASKED_GPU, f"{own.seconds:.2f} s, asked under {ASKED_GPU}"))
        if "clustering" in by_name:
            took = by_name["clustering"].seconds
            text = f"clustering {took:.1f} s, asked under {ASKED_CLUSTERING:g}"
            found.append((took < ASKED_CLUSTERING, text))
    elif peer is not None:
        text = f"{own.seconds:.1f} s, asked at most {peer.seconds:.1f}"
        found.append((own.seconds <= peer.seconds, text))
    if peer is not None:
        apart = max(abs(own.values[name] - peer.values[name]) for name in SHARED)
        found.append((apart < 1e-3, f"shared values agree to {apart:.1e}, asked 1e-3"))
    return found


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Options of every benchmark of a large table."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=60_502)
    parser.add_argument("--classes", type=int, default=11_316)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument(
        "--noise", type=float, default=1.2, help="around class means of deviation 1"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--commit", help="the commit to name, where git is absent")
    return parser


def conclude(
    options: argparse.Namespace,
    facts: dict[str, object],
    table: str,
    verdicts: list[tuple[bool, str]],
    numbers: dict[str, object],
) -> None:
    """Print what was measured and whether it is what is asked, and write the file of --json."""
    peer = facts["pytorch_metric_learning"]
    beside = f", pytorch-metric-learning {peer}" if peer else ""
    print(
        f"\n{facts['hardware']}; torch {facts['torch']}{beside}, kinspace at {facts['commit']}. "
        f"{options.samples:,} x {options.dim}, {options.classes:,} classes, float32. Load "
        f"{os.getloadavg()[0]:.1f} in the last minute.\n"
    )
    print(table + "\n")
    for met, text in verdicts:
        print(f"{'pass' if met else 'FAIL'}: {text}")
    if options.json:
        options.json.write_text(json.dumps({"setting": facts, **numbers}, indent=1) + "\n")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--skip-pml", action="store_true")
    parser.add_argument("--skip-clustering", action="store_true")
    options = parser.parse_args()
    facts = setting(options)
    names = contenders(options)
    rows = []
    for name in names:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, (name, options)))
    numbers: dict[str, object] = {"rows": [asdict(row) for row in rows]}
    conclude(options, facts, to_markdown(rows), requirements(rows, options), numbers)


if __name__ == "__main__":
    main()
