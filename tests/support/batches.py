"""Batches to test losses on: random ones, and the degenerate ones no loss may stumble over.

All in float64, labels below NUM_CLASSES so that one table of centers or proxies fits them all.
"""

from typing import NamedTuple

import torch
from torch import Tensor

NUM_CLASSES = 8


class Batch(NamedTuple):
    embeddings: Tensor  # (batch, dim), float64
    labels: Tensor  # (batch,), int64


def random_batch(
    seed: int,
    *,
    classes: int = 4,
    per_class: int = 3,
    dim: int = 4,
    scale: float = 1.0,
    separation: float = 0.5,
) -> Batch:
    """Normal noise around normal class means, in shuffled order.

    scale is the size of an entry; separation the spread of the class means relative to the noise.
    """
    if not 1 <= classes <= NUM_CLASSES:
        raise ValueError(f"classes must be 1 to {NUM_CLASSES}, not {classes}")
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    return Batch(_embed(labels, generator, dim, scale, separation), labels)


def varied_batch(seed: int) -> Batch:
    """A batch for each step of a small training: other classes, and other numbers of samples."""
    return random_batch(seed, classes=3 + seed % 4, per_class=2 + seed % 2, dim=4)


def random_centers(
    seed: int, *, num_classes: int = NUM_CLASSES, dim: int = 4, scale: float = 1.0
) -> Tensor:
    """Class centers, proxies or classifier weights: (num_classes, dim), float64."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)


def batch_means(batch: Batch) -> dict[int, Tensor]:
    """The mean of each class of a batch, by its label."""
    return {
        label: batch.embeddings[batch.labels == label].mean(0)
        for label in sorted(set(batch.labels.tolist()))
    }


def two_clusters_a_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Clusters for Magnet: the samples of a class fall into its two clusters in turn.

    Returns the cluster of each sample and the class of each of the 2 * NUM_CLASSES clusters.
    """
    seen = [0] * NUM_CLASSES
    clusters = []
    for label in labels.tolist():
        clusters.append(2 * label + seen[label] % 2)
        seen[label] += 1
    return torch.tensor(clusters), torch.arange(2 * NUM_CLASSES) // 2


def all_triplets(labels: Tensor) -> Tensor:
    """Every (anchor, positive, negative) of the batch: (triplets, 3), possibly none."""
    classes = labels.tolist()
    count = range(len(classes))
    found = [
        (i, j, k)
        for i in count
        for j in count
        for k in count
        if i != j and classes[i] == classes[j] and classes[i] != classes[k]
    ]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def _embed(
    labels: Tensor, generator: torch.Generator, dim: int, scale: float, separation: float
) -> Tensor:
    means = torch.randn(NUM_CLASSES, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return scale * (separation * means[labels] + noise)


def _labeled(seed: int, labels: list[int], *, dim: int = 4, scale: float = 1.0) -> Batch:
    tensor = torch.tensor(labels)
    return Batch(_embed(tensor, torch.Generator().manual_seed(seed), dim, scale, 0.5), tensor)


def _copied(batch: Batch, copies: dict[int, int]) -> Batch:
    """Each row named as a key becomes a copy of the row named as its value."""
    embeddings = batch.embeddings.clone()
    for target, source in copies.items():
        embeddings[target] = batch.embeddings[source]
    return Batch(embeddings, batch.labels)


def _zeroed(batch: Batch, rows: list[int]) -> Batch:
    embeddings = batch.embeddings.clone()
    embeddings[rows] = 0.0
    return Batch(embeddings, batch.labels)


def _degenerate_batches() -> dict[str, Batch]:
    pairs = [0, 0, 1, 1, 2, 2]
    triples = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    same_row = _labeled(3, pairs).embeddings[:1].repeat(6, 1)
    return {
        "one_sample": _labeled(0, [2]),
        "one_class": _labeled(1, [3, 3, 3, 3]),
        "all_singletons": _labeled(2, [0, 1, 2, 3, 4]),
        "identical_rows": Batch(same_row, torch.tensor(pairs)),
        # Rows 3 and 0 share a class, rows 5 and 1 do not, nor do rows 8 and 0.
        "duplicated_rows": _copied(_labeled(4, triples), {3: 0, 5: 1, 8: 0}),
        "identical_within_each_class": _copied(_labeled(5, pairs), {1: 0, 3: 2, 5: 4}),
        "some_zero_rows": _zeroed(_labeled(6, triples), [0, 3, 4]),
        "all_zero_rows": _zeroed(_labeled(7, pairs), list(range(6))),
        "tiny_scale": _labeled(8, triples, scale=1e-6),
        "huge_scale": _labeled(9, triples, scale=1e6),
        "two_of_one_class": _labeled(10, [1, 1]),
        "two_of_two_classes": _labeled(11, [4, 1]),
        "unbalanced_with_singletons": _labeled(12, [0, 0, 0, 0, 0, 1, 2, 2, 3]),
        "scattered_labels": _labeled(13, [7, 0, 3, 3, 7, 0, 7, 3]),
        "one_dimension": _labeled(14, triples, dim=1),
    }


DEGENERATE_BATCHES: dict[str, Batch] = _degenerate_batches()


def _large(scale: float = 0.1, separation: float = 1.0) -> Batch:
    return random_batch(1, classes=8, per_class=12, dim=64, scale=scale, separation=separation)


def _large_batches() -> dict[str, Batch]:
    plain = _large()
    duplicated = plain.embeddings.clone()
    duplicated[5:20] = duplicated[30:45]
    duplicated[50] = duplicated[51] = duplicated[52]
    return {
        "plain": plain,
        "tight": _large(scale=1e-5, separation=1e4),  # noise of 1e-4 around means of length near 1
        "duplicated": Batch(duplicated, plain.labels),
        "offset": Batch(plain.embeddings + 100.0, plain.labels),
        "tight and offset": Batch(_large(1e-3, 1e2).embeddings + 100.0, plain.labels),
    }


# Large enough for distances by matrix products, and with rows that lie close to each other.
LARGE_BATCHES: dict[str, Batch] = _large_batches()
