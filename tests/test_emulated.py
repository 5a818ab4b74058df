"""Our CUDA kernels, compiled for the CPU, beside what PyTorch makes: see emulated.py."""

import contextlib
import copy
import math
import shutil
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from batches import DEGENERATE_BATCHES, NUM_CLASSES, Batch, random_batch
from emulated import EmulatedKernel, emulating
from gradients import Result, disagreement, evaluate
from kinspace import class_sums, cuda_kernels, distance_kernels, slopes
from kinspace.distance_kernels import FINITE, SQUARES, from_products
from kinspace.losses import (
    ALMN,
    almn,
    bier,
    centers,
    cluster_means,
    cluster_nca,
    clustering,
    magnet,
    medoids,
    nra,
)
from methods import METHODS, Method
from modules import MODULES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
Built = Callable[..., EmulatedKernel]
BOTH = pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)


@contextlib.contextmanager
def emulated_kernels(built: Built) -> Iterator[None]:
    one = types.SimpleNamespace(multi_processor_count=1)
    with (
        mock.patch.multiple(cuda_kernels, built=built, shared_room=lambda device: 2**17),
        mock.patch("torch.cuda.get_device_properties", return_value=one),
    ):
        yield


@pytest.mark.parametrize(("size", "dtype"), [(40, torch.float32), (37, torch.float64)])
def test_the_kernel_of_distances_does_close_pairs_again(
    size: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    x = 100 + torch.randn(size, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x[5] = x[30] + 1e-3
    x[6] = x[31]
    centered = x - x.mean(0)
    products = centered @ centered.T
    symmetric = (products + products.T) / 2
    order = torch.randperm(size, generator=torch.Generator().manual_seed(1))
    unknown = torch.full((4, 4), math.nan, dtype=dtype).fill_diagonal_(1)
    with (
        emulated_kernels(emulating(tmp_path)),
        mock.patch.object(distance_kernels, "THREADS", 64),
    ):
        found, tops = from_products(x, symmetric, FINITE, order)
        farthest, _ = from_products(torch.zeros(4, 1, dtype=dtype), unknown, FINITE)
        squares, _ = from_products(x, symmetric, SQUARES)
    exact = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(found.double(), exact[order][:, order], rtol=1e-5, atol=0)
    torch.testing.assert_close(squares.double(), exact.square(), rtol=1e-5, atol=0)
    place = order.argsort()
    assert found[place[6], place[31]] == 0
    assert torch.equal(found, found.T)
    assert tops.max() == found.max()
    largest = torch.finfo(dtype).max
    assert torch.equal(farthest, torch.full((4, 4), largest, dtype=dtype).fill_diagonal_(0))


@pytest.mark.parametrize(
    ("dtype", "plus_one"), [(torch.float32, True), (torch.float32, False), (torch.float64, True)]
)
def test_the_kernel_of_exponentials_gives_what_torch_does(
    dtype: torch.dtype, plus_one: bool, tmp_path: Path
) -> None:
    logits = 30 * torch.randn(5, 70, dtype=dtype, generator=torch.Generator().manual_seed(0))
    logits[1, :60] = logits[2] = -math.inf
    logits[3] = -200
    logits[4] += 1e4
    expected, found = logits.clone(), logits.clone()
    norms, logs = slopes.exponentials_(expected, plus_one=plus_one)
    with emulated_kernels(emulating(tmp_path)), mock.patch.object(slopes, "THREADS", 64):
        own_norms, own_logs = slopes._fused_exponentials(found, plus_one)
    for own, other in ((found, expected), (own_norms, norms), (own_logs, logs)):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize(("dtype", "margin"), [("float32", "clipped"), ("float64", "printed")])
def test_the_kernel_of_virtual_points_gives_what_the_loss_needs_of_them(
    dtype: str, margin: str, tmp_path: Path
) -> None:
    emulated = emulating(tmp_path)
    for dim, classes in ((3, 4), (40, 3), (5, 1)):
        generator = torch.Generator().manual_seed(dim)
        x = torch.randn(11, dim, dtype=getattr(torch, dtype), generator=generator)
        own = torch.randn(x.shape, dtype=x.dtype, generator=generator)
        x[2], own[3], own[4], x[5], own[5] = 0, 0, x[4], 0, 0
        labels = torch.arange(len(x)) % classes
        rows = almn.polar(x)
        nearest = almn._nearest(own @ x.T, rows[2], labels[:, None] == labels)
        strength = almn._strength(rows, own, nearest, 2.0, margin)
        expected, slope = almn._positive(x, rows, own, strength)
        with emulated_kernels(emulated):
            positive, slopes = almn._fused(x, own, nearest, 2.0, margin)
        torch.testing.assert_close(positive, expected)
        torch.testing.assert_close(slopes(), slope(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((70, 5, 20), torch.float32), ((3, 67, 130), torch.float64)]
)
def test_the_kernels_of_differences_give_squares_and_their_gradient(
    shape: tuple[int, int, int], dtype: torch.dtype, tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, columns, dim = shape
    x = torch.randn(rows, dim, dtype=dtype, generator=generator)
    y = torch.randn(columns, dim, dtype=dtype, generator=generator)
    y[0] = x[1] + 1e-3
    grad = torch.randn(rows, columns, dtype=dtype, generator=generator)
    with emulated_kernels(emulating(tmp_path)):
        squares = distance_kernels.squared_differences(x, y)
        by_x, by_y = distance_kernels.pulls_of_differences(grad, x, y)
    apart = x.double()[:, None] - y.double()
    torch.testing.assert_close(squares.double(), apart.square().sum(2), rtol=2e-6, atol=0)
    flow = 2 * grad.double()[..., None] * apart
    torch.testing.assert_close(by_x.double(), flow.sum(1), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(by_y.double(), -flow.sum(0), rtol=1e-5, atol=1e-4)


@BOTH
def test_the_kernel_of_bier_boosts_as_torch_does(dtype: torch.dtype, tmp_path: Path) -> None:
    emulated = emulating(tmp_path)
    for classes in (1, 4, 13):
        generator = torch.Generator().manual_seed(classes)
        x = torch.randn(13, 9, dtype=dtype, generator=generator)
        x[2], x[3] = 0, x[4]
        arguments = x, torch.arange(13) % classes, [2, 3, 4], (2.0, 0.5, 25.0)
        value, slope = bier._value_and_slope(*arguments)
        with emulated_kernels(emulated), mock.patch.object(bier, "THREADS", 64):
            own_value, own_slope = bier._fused(*arguments)
        torch.testing.assert_close(own_value, value)
        torch.testing.assert_close(own_slope, slope, rtol=1e-5, atol=1e-7)


@BOTH
def test_the_kernel_of_nra_ranks_as_torch_does(dtype: torch.dtype, tmp_path: Path) -> None:
    emulated = emulating(tmp_path)
    for classes, alpha, fixed in (
        (1, 4.0, False),
        (5, 4.0, False),
        (12, 1.0, False),
        (35, 2.5, True),
    ):
        generator = torch.Generator().manual_seed(classes)
        x = torch.randn(35, 6, dtype=dtype, generator=generator)
        x[3] = x[4]
        if classes == 12:
            x = torch.eye(35, dtype=dtype)  # all at one distance
        labels = torch.randint(classes, (35,), generator=generator)
        arguments = x, labels, alpha, 1e-4, fixed
        value, slope = nra._value_and_slope(*arguments)
        with emulated_kernels(emulated), mock.patch.object(nra, "THREADS", 64):
            own_value, own_slope = nra._fused(*arguments)
        torch.testing.assert_close(own_value, value)
        torch.testing.assert_close(own_slope(), slope(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_kernel_of_centers_moves_them_as_torch_does(training: bool, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(43, 70, generator=generator)
    labels = torch.randint(6, (43,), generator=generator)
    modules = ALMN(7, 70, rate=0.7), ALMN(7, 70, rate=0.7)
    for module in modules:
        module.centers[2:5] = x[:3]
        module.seen[2:5] = True
        module.train(training)
    _, started, known = centers.follow_all(modules[0], x, labels)
    with emulated_kernels(emulating(tmp_path)), mock.patch.object(centers, "THREADS", 64):
        own_started, own_known = centers._fused(modules[1], x, labels)
    torch.testing.assert_close(own_started, started)
    assert own_known.equal(known)
    torch.testing.assert_close(modules[1].centers, modules[0].centers)
    assert modules[1].seen.equal(modules[0].seen)


def test_the_kernel_of_class_sums_adds_as_torch_does(tmp_path: Path) -> None:
    x = torch.randn(43, 70, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(43) ** 2 % 7
    with emulated_kernels(emulating(tmp_path)), mock.patch.object(class_sums, "THREADS", 64):
        sums = class_sums._fused(x, labels, 8, means=False)
        means = class_sums._fused(x, labels, 8, means=True)
    torch.testing.assert_close(sums, class_sums.class_sums(x, labels, 8))
    torch.testing.assert_close(means, class_sums.class_means(x, labels, 8))


# --- whole methods, as on a GPU -----------------------------------------------------------------

CALLERS: list[Any] = [
    almn,
    bier,
    centers,
    cluster_means,
    clustering,
    distance_kernels,
    medoids,
    nra,
    class_sums,
    slopes,
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return emulating(tmp_path_factory.mktemp("kernels"))


CLUSTERED: dict[str, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]] = {
    "with empty clusters": lambda x, clusters, labels: (x, clusters, labels),
    "close together": lambda x, clusters, labels: (1 + x / 100, clusters, labels),
    "far apart": lambda x, clusters, labels: (x + 9 * clusters[:, None], clusters, labels),
    "one class": lambda x, clusters, labels: (x, clusters, 0 * labels),
    "one cluster a class": lambda x, clusters, labels: (x, labels[clusters], labels.unique()),
    "one sample": lambda x, clusters, labels: (x[:1], clusters[:1], labels),
    "all at one place": lambda x, clusters, labels: (0 * x + 1, clusters, labels),
    "V of 0": lambda x, clusters, labels: (1e-4 * clusters[:, None].to(x), clusters, labels),
}


@BOTH
@pytest.mark.parametrize("change", CLUSTERED.values(), ids=CLUSTERED)
def test_the_kernels_of_cluster_means_give_what_torch_does(
    change: Callable[..., tuple[Tensor, Tensor, Tensor]], dtype: torch.dtype, built: Built
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(35, 7, dtype=dtype, generator=generator)
    clusters = 2 * torch.randint(5, (35,), generator=generator)
    batch = change(x, clusters, torch.arange(11) // 4)
    nca, of_magnet = cluster_nca._terms(*batch, 1e-8), magnet._terms(*batch, 1.0, 1e-3, 2.0)
    for options, terms, slope in (
        ((1e-8,), *nca),
        ((1e-3, 2.0, 1.0), of_magnet[0], of_magnet[2]),
    ):
        with (
            emulated_kernels(built),
            mock.patch.multiple(cluster_means, THREADS=96, BLOCKS=3),
        ):
            found, variance, own_slope = cluster_means.fused_terms(*batch, *options)
            slopes = own_slope()
        torch.testing.assert_close(found, terms)
        expected = slope()
        largest = expected.abs().max().clamp(min=1e-9)
        torch.testing.assert_close(slopes / largest, expected / largest, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(variance, of_magnet[1])


@contextlib.contextmanager
def as_on_a_gpu(built: Built) -> Iterator[None]:
    """All that calls kernels does so, and these are emulated, with small blocks."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(emulated_kernels(built))
        stack.enter_context(mock.patch.object(cuda_kernels, "takes", return_value=True))
        for module in CALLERS:
            stack.enter_context(mock.patch.object(module, "THREADS", 96))
        yield


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_is_the_same_by_kernels(method: Method, built: Built) -> None:
    batches = {"random": random_batch(3, per_class=5), **DEGENERATE_BATCHES}
    for name, batch in batches.items():
        arguments = method.arguments(batch, 5)
        expected = evaluate(method.function, arguments)
        with as_on_a_gpu(built):
            found = evaluate(method.function, arguments)
        assert disagreement(found, expected, gradient_floor=1e-9) is None, name


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_every_module_moves_on_the_same_by_kernels(name: str, built: Built) -> None:
    batch = random_batch(4, per_class=6)
    torch.manual_seed(0)
    module = MODULES[name].build(NUM_CLASSES, batch.embeddings.shape[1]).double()
    other = copy.deepcopy(module)
    for _ in range(2):  # the second time with what the first left
        expected = called(module, batch, MODULES[name].on_centers)
        with as_on_a_gpu(built):
            found = called(other, batch, MODULES[name].on_centers)
        assert disagreement(found, expected) is None
    for key, value in module.state_dict().items():
        torch.testing.assert_close(other.state_dict()[key], value)


def called(module: torch.nn.Module, batch: Batch, on_centers: bool) -> Result:
    arguments = {"embeddings": batch.embeddings}
    if not on_centers:
        arguments["labels"] = batch.labels
    return evaluate(module, arguments)
