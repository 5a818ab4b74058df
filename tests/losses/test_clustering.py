"""The greedy medoids of the clustering loss: against a loop with exact sums, ties, extremes."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from gradients import Result, disagreement, evaluate
from kinspace._core.vectors import euclidean_distances
from kinspace.losses import clustering_loss

# (samples, samples a class, dim)
SHAPES = [(1, 1, 2), (6, 1, 2), (7, 7, 2), (23, 4, 3), (64, 4, 8), (90, 30, 4)]


def by_loop(embeddings: Tensor, labels: Tensor, weight: float) -> Result:
    """The value and the gradient, from medoids that are chosen in sums that do not round."""
    x = embeddings.detach().double().requires_grad_()
    apart = torch.linalg.vector_norm(x[:, None] - x, dim=2)
    table, classes = apart.tolist(), labels.tolist()
    chosen, nmi = greedy_medoids(table, classes, weight)
    true = class_medoids(table, classes)
    found, wanted = (
        sum((apart[i, j] for i, j in enumerate(medoids) if i != j), x.sum() * 0)
        for medoids in (chosen, true)
    )
    value = weight * (1 - nmi) - found + wanted
    (gradient,) = torch.autograd.grad(value.relu(), x)
    return Result(max(value.item(), 0.0), {"embeddings": gradient})


def greedy_medoids(
    table: list[list[float]], classes: list[int], weight: float
) -> tuple[list[int], float]:
    """The medoid of each sample, every candidate of every step tried from the beginning."""
    nearest, free, nmi = [-1] * len(classes), list(range(len(classes))), 0.0
    for _ in set(classes):
        best: tuple[float, float, list[int], int] | None = None
        for candidate in free:
            after = [
                candidate if old < 0 or row[candidate] < row[old] else old
                for row, old in zip(table, nearest, strict=True)
            ]
            information = mutual_information(after, classes)
            cost = math.fsum(row[medoid] for row, medoid in zip(table, after, strict=True))
            score = weight * (1 - information) - cost
            if best is None or score > best[0]:
                best = score, information, after, candidate
        assert best is not None
        _, nmi, nearest, taken = best
        free.remove(taken)
    return nearest, nmi


def class_medoids(table: list[list[float]], classes: list[int]) -> list[int]:
    """For each sample the first of its class whose distances to the class sum to the least."""
    found = {}
    for label in set(classes):
        members = [i for i, other in enumerate(classes) if other == label]
        costs = [math.fsum(table[i][j] for i in members) for j in members]
        found[label] = members[costs.index(min(costs))]
    return [found[label] for label in classes]


def mutual_information(clusters: list[int], classes: list[int]) -> float:
    def entropies(items: list[int] | list[tuple[int, int]]) -> float:
        return math.fsum(n * math.log(n) for n in Counter(items).values())

    whole = len(classes) * math.log(len(classes))
    own, true = entropies(clusters), entropies(classes)
    joint = entropies(list(zip(clusters, classes, strict=True)))
    both = math.fsum((whole, -own, whole, -true))
    return 1.0 if both == 0 else 2 * math.fsum((joint, -own, -true, whole)) / both


def batch(size: int, each: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(size) // each)[torch.randperm(size, generator=generator)]
    return torch.randn(size, dim, generator=generator, dtype=torch.float64), labels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weight", [0.0, 1.0, 50.0])
def test_chooses_as_a_loop_over_all_candidates(shape: tuple[int, int, int], weight: float) -> None:
    embeddings, labels = batch(*shape, seed=3)
    for scale in (1.0, 1e-20, 1e20):
        arguments = {"embeddings": scale * embeddings, "labels": labels}
        expected = by_loop(*arguments.values(), weight)
        found = evaluate(clustering_loss, arguments, {"margin_weight": weight})
        problem = disagreement(found, expected, value_floor=1e-12 * max(scale, weight))
        assert problem is None, (scale, problem)
    arguments = {"embeddings": embeddings.float(), "labels": labels}
    expected = by_loop(*arguments.values(), weight)
    found = evaluate(clustering_loss, arguments, {"margin_weight": weight}, dtype=torch.float32)
    problem = disagreement(found, expected, value=1e-5, gradient=1e-4, value_floor=1e-5)
    assert problem is None, problem


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_ties_go_to_the_first(seed: int, weight: float) -> None:
    embeddings, labels = batch(60, 4, 1, seed)
    grid = (4 * embeddings).round()  # distances are whole numbers: many equal sums
    arguments = {"embeddings": grid, "labels": labels}
    found = evaluate(clustering_loss, arguments, {"margin_weight": weight})
    assert disagreement(found, by_loop(grid, labels, weight)) is None


def test_identical_rows_cost_the_margin_of_one_cluster() -> None:
    """The first sample takes all others: one cluster, which shares nothing with three classes."""
    x = torch.full((4, 2), 3.0, requires_grad=True)
    loss = clustering_loss(x, torch.tensor([1, 0, 1, 2]), margin_weight=2.5)
    assert loss.item() == 2.5
    assert torch.autograd.grad(loss, x)[0].eq(0).all()


def test_distances_that_overflow_give_nan_and_no_error() -> None:
    embeddings, labels = batch(12, 3, 2, seed=0)
    scales = torch.tensor([1.0, 1e30]).repeat_interleave(6)[:, None]
    far = (scales * embeddings).float()
    assert euclidean_distances(far).isinf().any()
    assert clustering_loss(far, labels).isnan()  # inf - inf


def test_the_loss_is_the_same_in_float32_and_float64() -> None:
    embeddings, labels = batch(300, 4, 16, seed=2)
    loss = clustering_loss(embeddings, labels)
    assert clustering_loss(embeddings.float(), labels).item() == pytest.approx(
        loss.item(), rel=1e-5
    )
