"""Distillation: a small net learns the distances of a large one.

A teacher of 64 dimensions is trained on the digits 0 to 4 with labels. A student of 8 dimensions
and a ninth of the weights then learns from the teacher's vectors alone, without labels: the
distances among its embeddings follow those of the teacher. Both are judged by Recall@1 on 5 to 9,
beside a student that learned from the labels.

Run it with `python examples/distillation.py`. About ten seconds on two cores, no download.
"""

from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from kinspace.evaluation import recall_at_k
from kinspace.losses import ProxyAnchor, relational_distance_loss
from kinspace.samplers import classes_by_samples

STEPS = 200
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # embeddings, labels, numbers of the samples


def network(width: int, dim: int) -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, dim))


def train(model: nn.Module, rows: Tensor, labels: Tensor, loss: Loss, *others: Tensor) -> None:
    """Train with batches of five classes; `others` are parameters of the loss."""
    optimizer = torch.optim.AdamW([*model.parameters(), *others], lr=3e-3)
    step = 0
    while step < STEPS:
        for batch in classes_by_samples(labels, classes=5, samples=16, seed=step):
            value = loss(model(rows[batch]), labels[batch], torch.as_tensor(batch))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            step += 1


def by_labels(dim: int) -> tuple[Loss, list[Tensor]]:
    """Proxy-anchor, and its proxies."""
    criterion = ProxyAnchor(5, dim)
    return lambda x, labels, samples: criterion(x, labels), list(criterion.parameters())


def run(seed: int = 0) -> dict[str, float]:
    """Recall@1 on digits that no net has seen."""
    torch.manual_seed(seed)
    data = load_digits()
    rows, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    seen, unseen = labels < 5, labels >= 5
    models = {"teacher": network(256, 64), "by labels": network(48, 8), "student": network(48, 8)}
    for name, dim in (("teacher", 64), ("by labels", 8)):
        loss, proxies = by_labels(dim)
        train(models[name], rows[seen], labels[seen], loss, *proxies)
    with torch.no_grad():
        target = models["teacher"](rows[seen])

    def follow(x: Tensor, labels: Tensor, samples: Tensor) -> Tensor:
        return relational_distance_loss(x, target[samples])

    train(models["student"], rows[seen], labels[seen], follow)
    with torch.no_grad():
        test = {name: model(rows[unseen]) for name, model in models.items()}
    numbers = labels[unseen].numpy()
    return {name: float(recall_at_k(x, numbers, (1,))[1]) for name, x in test.items()}


def main() -> None:
    """Print Recall@1 of teacher, student and a net of the student's size trained by labels."""
    for seed in range(3):
        found = run(seed)
        print(", ".join(f"{name} {recall:.1%}" for name, recall in found.items()))


if __name__ == "__main__":
    main()
