"""Your own loss in a fair benchmark: equal trials, several seeds, unseen classes.

The loss is a function in a file; `kinspace benchmark examples/custom_loss.py:log_ratio_loss DATA`
gives it the same number of trials as each method that comes with kinspace, chooses the settings of
all on held-out training classes, and compares them on classes that no training has seen. The table
says which are apart beyond chance. Here the data are scikit-learn's digits and the net is small;
docs/your-own-loss.md has the way without the benchmark.

Run it with `python examples/custom_loss.py`. A few minutes on two cores, no download.
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from kinspace.benchmark import BenchmarkTable, benchmark
from kinspace.numerics import euclidean_distances


def log_ratio_loss(embeddings: Tensor, labels: Tensor, *, scale: float = 2.0) -> Tensor:
    """The log of how many times nearer the mean positive is than the mean negative, softened."""
    distances = euclidean_distances(embeddings)  # (batch, batch)
    itself = torch.eye(len(labels), device=labels.device)
    same = (labels[:, None] == labels).to(distances) - itself
    other = (labels[:, None] != labels).to(distances)
    positive = (distances * same).sum(1) / same.sum(1).clamp_min(1)
    negative = (distances * other).sum(1) / other.sum(1).clamp_min(1)
    ratio = (positive + 1e-6).log() - (negative + 1e-6).log()
    comparable = (same.sum(1) > 0) & (other.sum(1) > 0)
    return nn.functional.softplus(scale * ratio).masked_fill(~comparable, 0).mean()


def run(
    folder: Path,
    *,
    against: tuple[str, ...] = ("triplet", "multi_similarity", "proxy_anchor"),
    trials: int = 4,
    seeds: int = 3,
    steps: int = 200,
) -> BenchmarkTable:
    """The table, best method first."""
    return benchmark(
        f"{__file__}:log_ratio_loss",
        "digits",
        against=against,
        trials=trials,
        seeds=seeds,
        steps=steps,
        out=folder / "benchmark",
        device="cpu",
        status=print,
    )


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        table = run(Path(folder))
        print((table.folder / "benchmark.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
