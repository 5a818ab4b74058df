"""Laws of the kernel of greedy medoids. Run on a GPU, or in Triton's interpreter on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor

from batches import DEGENERATE_BATCHES, LARGE_BATCHES
from kinspace import use_kernels
from kinspace._core.vectors import euclidean_distances
from kinspace._kernels import greedy_medoids as kernel
from kinspace.losses import clustering_loss
from kinspace.losses.medoids import greedy_medoids

FLOATS = (torch.float32, torch.float64)
# (samples, labels to draw from): around the lanes of a warp, and many samples in few classes
SHAPES = [(31, 9), (32, 2), (33, 33)]
LARGE_SHAPES = [(128, 32), (500, 100), (512, 9), (512, 128), (1000, 250), (1024, 1024)]


def drawn(size: int, labels: int, *, on_a_grid: bool) -> tuple[Tensor, Tensor]:
    """Distances of drawn vectors, and classes: numbers below the batch size with gaps."""
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, 1 if on_a_grid else 5, generator=generator, dtype=torch.float64)
    x = (4 * x).round() if on_a_grid else x  # whole numbers: many equal sums
    classes = torch.randint(labels, (size,), generator=generator) * (size // labels)
    return euclidean_distances(x), classes


def tables(device: str) -> Iterator[tuple[Tensor, Tensor]]:
    for shape in SHAPES if device == "cpu" else SHAPES + LARGE_SHAPES:
        for on_a_grid in (False, True):
            yield drawn(*shape, on_a_grid=on_a_grid)
    distances, classes = drawn(12, 4, on_a_grid=False)
    for scale in (0.0, 1e-300, 1e-40, 1e40, 1e300):
        yield scale * distances, classes
    distances[3] = distances[:, 3] = 3e38  # one that overflows is the farthest
    yield distances, classes
    for batch in DEGENERATE_BATCHES.values():
        first_of_class = (batch.labels[:, None] == batch.labels).int().argmax(1)
        yield euclidean_distances(batch.embeddings), first_of_class


def agree(distances: Tensor, classes: Tensor, weight: float | Tensor) -> None:
    found = greedy_medoids(distances, classes, margin_weight=weight)
    with use_kernels(False):
        expected = greedy_medoids(distances, classes, margin_weight=weight)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.device == other.device
        assert torch.equal(one, other)


def check_medoids(device: str = "cpu") -> None:
    """Those of the formula, to the last digit of their NMI, in both precisions."""
    with mock.patch.object(kernel, "forward", wraps=kernel.forward) as forward:
        calls = 0
        for distances, classes in tables(device):
            for dtype, weight in zip((*FLOATS, *FLOATS), (0.1, 0.1, 50.0, 0.0), strict=True):
                given = distances.to(dtype).nan_to_num().to(device)
                agree(given, classes.to(device), weight)
                calls += 1
        assert forward.call_count == calls


def check_the_loss(device: str = "cpu") -> None:
    """Its value and gradient, and a weight that is learned."""
    for name in ("plain", "duplicated"):
        batch = LARGE_BATCHES[name]
        results = []
        for enabled in (True, False):
            x = batch.embeddings.to(device, torch.float32).requires_grad_()
            weight = torch.tensor(0.7, device=device, requires_grad=True)
            with use_kernels(True), mock.patch.object(kernel, "supports", return_value=enabled):
                value = clustering_loss(x, batch.labels.to(device), margin_weight=weight)
            results.append((value, *torch.autograd.grad(value, (x, weight))))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def check_ways(device: str = "cpu") -> None:
    """Used where it can be; switched off, transformed or with more samples the formula computes."""
    batch = LARGE_BATCHES["plain"]
    x, labels = batch.embeddings.to(device), batch.labels.to(device)
    with (
        mock.patch.object(kernel, "LARGEST", len(x)),
        mock.patch.object(kernel, "forward", wraps=kernel.forward) as forward,
    ):
        expected = clustering_loss(x, labels)
        assert forward.call_count == 1
        with use_kernels(False):
            torch.testing.assert_close(clustering_loss(x, labels), expected)
        torch.func.grad(lambda y: clustering_loss(y, labels))(x)
        clustering_loss(torch.cat((x, x[:1])), torch.cat((labels, labels[:1])))
        assert forward.call_count == 1
