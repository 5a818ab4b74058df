"""The greedy medoids of the clustering loss: against a loop with exact sums, ties, the kernel."""

import math
import shutil
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

from emulated import emulating
from kinspace import cuda_kernels
from kinspace.distances import euclidean_distances, finite_distances
from kinspace.losses import clustering, clustering_loss, medoids
from kinspace.losses.medoids import greedy_medoids
from kinspace.pairs import class_runs

# (samples, samples a class, dim)
SHAPES = [(1, 1, 2), (6, 1, 2), (7, 7, 2), (23, 4, 3), (64, 4, 8), (90, 30, 4)]


def found(distances: Tensor, labels: Tensor, weight: float) -> tuple[list[int], float]:
    """For samples class after class."""
    _, begins, sizes = class_runs(labels)
    tops, widest = distances.amax(1), int(sizes.max())
    medoids, nmi = greedy_medoids(distances, tops, begins, widest, weight)
    return medoids.tolist(), nmi.item()


def by_loop(distances: Tensor, labels: Tensor, weight: float) -> tuple[list[int], float]:
    """Every candidate of every step from the beginning, in sums that do not round."""
    table, classes = distances.tolist(), labels.tolist()
    nearest, free = [-1] * len(classes), list(range(len(classes)))
    for _ in set(classes):
        best: tuple[float, float, list[int], int] | None = None
        for candidate in free:
            after = [
                candidate if old < 0 or row[candidate] < row[old] else old
                for row, old in zip(table, nearest, strict=True)
            ]
            nmi = mutual_information(after, classes)
            cost = math.fsum(row[medoid] for row, medoid in zip(table, after, strict=True))
            score = weight * (1 - nmi) - cost
            if best is None or score > best[0]:
                best = score, nmi, after, candidate
        assert best is not None
        _, nmi, nearest, chosen = best
        free.remove(chosen)
    return nearest, nmi


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


def batch_by_class(size: int, each: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    points, labels = batch(size, each, dim, seed)
    return points, labels.sort().values


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weight", [0.0, 1.0, 50.0])
def test_chooses_as_a_loop_over_all_candidates(shape: tuple[int, int, int], weight: float) -> None:
    embeddings, labels = batch_by_class(*shape, seed=3)
    for points in (embeddings, embeddings.float(), 1e-20 * embeddings, 1e20 * embeddings):
        distances = euclidean_distances(points)
        medoids, nmi = found(distances, labels, weight)
        expected, expected_nmi = by_loop(distances, labels, weight)
        assert medoids == expected
        assert nmi == pytest.approx(expected_nmi, abs=1e-6 if points.dtype.itemsize == 4 else 1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_ties_go_to_the_first(seed: int, weight: float) -> None:
    embeddings, labels = batch_by_class(60, 4, 2, seed)
    grid = (2 * embeddings).round()
    distances = (grid[:, None] - grid).abs().sum(2)  # whole numbers: many equal sums
    medoids, nmi = found(distances, labels, weight)
    expected, expected_nmi = by_loop(distances, labels, weight)
    assert medoids == expected
    assert nmi == pytest.approx(expected_nmi, abs=1e-12)


def test_identical_rows_take_the_first_sample() -> None:
    labels = torch.tensor([1, 0, 1, 2])
    medoids, nmi = found(torch.zeros(4, 4), labels, 1.0)
    assert medoids == [0, 0, 0, 0]
    assert nmi == 0


def test_distances_that_overflow_give_nan_and_no_error() -> None:
    embeddings, labels = batch(12, 3, 2, seed=0)
    scales = torch.tensor([1.0, 1e30]).repeat_interleave(6)[:, None]
    far = (scales * embeddings).float()
    assert euclidean_distances(far).isinf().any()
    assert clustering_loss(far, labels).isnan()  # inf - inf


def test_the_first_steps_work_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, labels = batch_by_class(50, 5, 3, seed=1)
    distances = euclidean_distances(embeddings)
    whole = found(distances, labels, 1.0)
    monkeypatch.setattr("kinspace.losses.medoids.CHUNK", 7)
    assert found(distances, labels, 1.0) == whole


def test_the_loss_is_the_same_in_float32_and_float64() -> None:
    embeddings, labels = batch(300, 4, 16, seed=2)
    loss = clustering_loss(embeddings, labels)
    assert clustering_loss(embeddings.float(), labels).item() == pytest.approx(
        loss.item(), rel=1e-5
    )


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
@pytest.mark.parametrize(
    ("shape", "dtype", "room", "each", "threads"),
    [
        ((70, 4, 2), "float", 2**18, 1, 96),
        ((75, 37, 3), "double", 18_000, 2, 96),
        ((41, 1, 3), "float", 0, 1, 96),
        ((90, 20, 1), "float", 10_000, 1, 64),
    ],
)
def test_the_kernel_chooses_as_the_loop_does(
    shape: tuple[int, int, int], dtype: str, room: int, each: int, threads: int, tmp_path: Path
) -> None:
    emulated = emulating(tmp_path)
    points, labels = batch_by_class(*shape, seed=5)
    _, begins, sizes = class_runs(labels)
    entropy = medoids._entropies(len(labels), labels.device)
    for grid in (1, 1000):  # many equal distances, and none
        exact = euclidean_distances((grid * points).round())
        distances = exact.float() if dtype == "float" else exact
        with (
            mock.patch.object(medoids, "THREADS", threads),
            mock.patch.multiple(cuda_kernels, shared_room=lambda device: room, built=emulated),
        ):
            tables = distances, distances.amax(1), begins, int(sizes.max()), entropy
            got, nmi = medoids._fused(*tables, 1.0, math.ceil(shape[0] / (32 * each)))
        expected, expected_nmi = by_loop(distances, labels, 1.0)
        assert got.tolist() == expected
        assert nmi.item() == pytest.approx(expected_nmi, abs=1e-6)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_the_kernels_of_the_loss_give_the_same_value_and_gradient(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    cases = [(70, 4, 1.0, 1), (45, 15, 0.5, 9), (6, 6, 1.0, 0), (5, 1, 0, 1)]
    emulated = emulating(tmp_path)
    for size, each, weight, scale in cases:
        points, labels = batch(size, each, 5, seed=each)
        points[1] = points[0]
        x = (scale * points).to(dtype)
        order, begins, sizes = class_runs(labels)
        distances, tops = finite_distances(x)(order)
        found, nmi = greedy_medoids(distances, tops, begins, int(sizes.max()), weight)
        search = clustering._Search(distances, order, begins, found, nmi, weight)
        expected, slope = clustering._ends(x, search)
        with (
            mock.patch.object(cuda_kernels, "built", emulated),
            mock.patch.multiple(clustering, THREADS=64, BLOCKS=2),
        ):
            value, slopes = clustering._fused(x, search)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(slopes(), slope())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(64, 4, 8), (777, 7, 16), (1000, 50, 2)])
def test_many_programs_choose_as_the_steps_on_the_cpu_do(shape: tuple[int, int, int]) -> None:
    embeddings, labels = batch_by_class(*shape, seed=4)
    distances = euclidean_distances((4 * embeddings).round())
    medoids, nmi = found(distances, labels, 1.0)
    assert found(distances.cuda(), labels.cuda(), 1.0) == (medoids, pytest.approx(nmi))
