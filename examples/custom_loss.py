"""Your own loss beside three that come with kinspace: equal steps, several seeds, unseen classes.

The loss is registered under a name, and from then on it is a method like the others. Each method
trains the same net on half of the digits, as rows of 64 numbers with 64 columns of noise, with
three learning rates. The rate is chosen on held-out training digits; the number that counts is
Recall@1 on digits that no training has seen, with the spread of three seeds: a difference within
the spread is none. (With `kinspace train --method` the search for settings is longer and the data are yours.)

Run it with `python examples/custom_loss.py`. About a minute on two cores, no download.
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import kinspace
from kinspace.evaluation import mean_and_spread
from kinspace.losses import LOSSES
from kinspace.numerics import euclidean_distances

METHODS = ("log_ratio", "triplet", "multi_similarity", "proxy_anchor")
RATES, SEEDS, STEPS = (3e-4, 1e-3, 3e-3), (0, 1, 2), 200


def log_ratio_loss(embeddings: Tensor, labels: Tensor, *, scale: float = 2.0) -> Tensor:
    """The log of how many times nearer the mean positive is than the mean negative, softened."""
    distances = euclidean_distances(embeddings)  # (batch, batch)
    same = (labels[:, None] == labels).to(distances) - torch.eye(len(labels))
    other = (labels[:, None] != labels).to(distances)
    positive = (distances * same).sum(1) / same.sum(1).clamp_min(1)
    negative = (distances * other).sum(1) / other.sum(1).clamp_min(1)
    ratio = (positive + 1e-6).log() - (negative + 1e-6).log()
    comparable = (same.sum(1) > 0) & (other.sum(1) > 0)
    return nn.functional.softplus(scale * ratio).masked_fill(~comparable, 0).mean()


class LogRatio(nn.Module):
    """`log_ratio_loss` as a module; the options of its constructor are those of a recipe."""

    def __init__(self, *, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch."""
        return log_ratio_loss(embeddings, labels, scale=self.scale)


def rows() -> TensorDataset:
    """1,797 rows of 128 numbers, half of them noise, and the digit of each."""
    data = load_digits()
    values = torch.tensor(data.data, dtype=torch.float32) / 16
    noise = torch.randn(len(values), 64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(torch.cat([values, noise], dim=1), torch.tensor(data.target))


def recalls(method: str, rate: float, seed: int, steps: int, folder: Path) -> tuple[float, float]:
    """Recall@1 on the held-out training digits and on the digits of the test."""
    torch.manual_seed(seed)
    trained = kinspace.train(
        rows(),
        model=nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 16)),
        method="triplet" if method == "log_ratio" else method,
        changes={
            "loss.name": method,
            "optimizer.lr": rate,
            "schedule.steps": steps,
            "validation.every": steps,
        },
        out=folder / f"{method}-{rate}-{seed}",
        seed=seed,
        device="cpu",
        quiet=True,
        baselines=False,
    )
    validation = [row["recall@1"] for row in trained.metrics if "recall@1" in row][-1]
    return validation, trained.results["final"]["recall@1"]


def run(
    folder: Path,
    *,
    methods: tuple[str, ...] = METHODS,
    rates: tuple[float, ...] = RATES,
    seeds: tuple[int, ...] = SEEDS,
    steps: int = STEPS,
) -> dict[str, dict[str, float]]:
    """Mean and spread of the test's Recall@1 by method, at the rate that validation chose."""
    LOSSES["log_ratio"] = LogRatio
    found = {}
    for method in methods:
        scores: dict[float, list[tuple[float, float]]] = {
            rate: [recalls(method, rate, seed, steps, folder) for seed in seeds] for rate in rates
        }
        chosen = max(rates, key=lambda rate: sum(score for score, _ in scores[rate]))
        found[method] = mean_and_spread([test for _, test in scores[chosen]])
    return found


def main() -> None:
    """Print a row for each method."""
    with tempfile.TemporaryDirectory() as folder:
        for method, recall in run(Path(folder)).items():
            print(f"{method:17} Recall@1 on digits never seen:", end=" ")
            print(f"{recall['mean']:.1%} ± {recall['spread']:.1%}")


if __name__ == "__main__":
    main()
