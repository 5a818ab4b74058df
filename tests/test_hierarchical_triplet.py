"""The tree of the hierarchical triplet loss, and the means and spreads its module follows."""

from collections.abc import Sequence
from unittest import mock

import pytest
import torch
from torch import Tensor

import loops
from batches import NUM_CLASSES, Batch, random_batch
from interpreted import call_interpreted
from kinspace.losses import (
    HierarchicalTriplet,
    hierarchical_triplet,
    hierarchical_triplet_kernel,
    hierarchical_triplet_loss,
    triplet_loss,
)

DIM = 4


def on_the_sphere(seed: int, **options: int) -> Batch:
    batch = random_batch(seed, dim=DIM, **options)
    return Batch(torch.nn.functional.normalize(batch.embeddings, dim=1), batch.labels)


def test_with_one_level_it_is_half_the_triplet_loss_with_a_margin() -> None:
    """Far classes of no spread meet at 4, wherever they are."""
    embeddings, labels = on_the_sphere(0)
    means = 3.0 * torch.eye(NUM_CLASSES, DIM, dtype=torch.float64)
    means[DIM:] = -means[: NUM_CLASSES - DIM]
    spreads = torch.zeros(NUM_CLASSES, dtype=torch.float64)
    found = hierarchical_triplet_loss(embeddings, labels, means, spreads, margin=0.5, levels=1)
    torch.testing.assert_close(found, triplet_loss(embeddings, labels, margin=4.5) / 2)


def test_a_chain_of_near_classes_is_one_node() -> None:
    # On a line at 0, 1 and 2, so 1, 1 and 4 apart: the thresholds are 0, 2, 4.
    means = torch.tensor([[0.0], [1.0], [2.0]])
    embeddings = torch.zeros(5, 1)
    labels = torch.tensor([0, 0, 2, 2, 1])
    found = hierarchical_triplet_loss(embeddings, labels, means, torch.zeros(3), levels=2)
    torch.testing.assert_close(found, torch.tensor((2.0 + 0.1) / 2))
    apart = hierarchical_triplet_loss(
        embeddings[:4], labels[:4], means, torch.zeros(3), levels=2
    )  # nothing between them in the batch
    torch.testing.assert_close(apart, torch.tensor((4.0 + 0.1) / 2))


def statistics(centers: Tensor) -> tuple[Tensor, Tensor]:
    means = centers[:, :-1]
    return means, centers[:, -1] - means.square().sum(1)


def test_a_class_starts_with_the_mean_and_the_spread_of_its_batch() -> None:
    module = HierarchicalTriplet(NUM_CLASSES, DIM).double()
    batch = on_the_sphere(1, classes=NUM_CLASSES)
    loss = module(*batch)
    means, spreads = statistics(module.centers)
    for label in range(NUM_CLASSES):
        own = batch.embeddings[batch.labels == label]
        torch.testing.assert_close(means[label], own.mean(0))
        pairs = torch.cdist(own, own).square().sum() / (2 * len(own) ** 2)
        torch.testing.assert_close(spreads[label], pairs)
    torch.testing.assert_close(loss, hierarchical_triplet_loss(*batch, means, spreads))


def test_it_follows_the_classes_and_starts_the_tree_at_those_it_has_seen() -> None:
    module = HierarchicalTriplet(NUM_CLASSES, DIM, rate=0.3).double()
    for seed in (0, 3, 5):
        batch = on_the_sphere(seed, classes=3 + seed % 4)
        lengths = batch.embeddings.square().sum(1, keepdim=True)
        followed = torch.cat([batch.embeddings, lengths], 1)
        started, seen = module.centers.clone(), module.seen.clone()
        for label in set(batch.labels.tolist()):
            if not seen[label]:
                started[label] = followed[batch.labels == label].mean(0)
                seen[label] = True
        places = seen.cumsum(0) - 1  # of the seen classes among themselves
        means, spreads = statistics(started[seen])
        expected = hierarchical_triplet_loss(batch.embeddings, places[batch.labels], means, spreads)
        torch.testing.assert_close(module(*batch), expected)
        moved = loops.update_centers(started, followed, batch.labels, rate=0.3)
        torch.testing.assert_close(module.centers, moved)
        assert torch.equal(module.seen, seen)


KINDS = ["scattered", "in a chain", "in clumps"]


def points(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    found = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    if kind == "in a chain":
        return found[:1] + 0.02 * torch.arange(50)[:, None].square() * found[1:2]
    return found[torch.arange(50) % 5] + 0.05 * found if kind == "in clumps" else found


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_of_many_classes_by_linkage_is_that_by_chains(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = torch.cdist(points(kind), points(kind)).square()
    thresholds = torch.linspace(0.001, 4, 16, dtype=torch.float64)
    linked = hierarchical_triplet._meeting_levels(between.clone(), thresholds)
    monkeypatch.setattr(hierarchical_triplet, "FEW", 50)
    chained = hierarchical_triplet._meeting_levels(between.clone(), thresholds)
    apart = ~torch.eye(50, dtype=torch.bool)
    assert torch.equal(linked[apart], chained[apart])
    assert len(chained[apart].unique()) > 1


def test_the_distance_of_classes_is_the_mean_over_pairs_of_samples() -> None:
    """So that means and spreads stand in for the paper's pass over the training set."""
    first, second = torch.randn(2, 9, DIM, dtype=torch.float64)
    spreads = [(x - x.mean(0)).square().sum(1).mean() for x in (first, second)]
    apart = (first.mean(0) - second.mean(0)).square().sum()
    torch.testing.assert_close(sum(spreads) + apart, torch.cdist(first, second).square().mean())


def kernel_batches() -> dict[str, Batch]:
    """Classes of several sizes, and rows that are close, equal, alone or all of one class."""
    generator = torch.Generator().manual_seed(4)
    rows = torch.randn(19, 9, generator=generator, dtype=torch.float64)
    labels = torch.tensor([7, 5, 5, 2, 3, 2, 3, 3, 3, 2, 3, 5, 8, 9, 8, 9, 9, 1, 3])
    some = rows[torch.arange(19) % 4]
    return {
        "scattered": Batch(rows, labels),
        "close": Batch(some + 1e-5 * rows, labels),
        "equal": Batch(some, labels),
        "in clumps": Batch(torch.nn.functional.normalize(some + 0.1 * rows), labels),
        "alone": Batch(rows[:9], torch.arange(9)),
        "one class": Batch(rows[:9], labels[:1].expand(9)),
        "one sample": Batch(rows[:1], labels[:1]),
    }


def value_and_slope(batch: Batch) -> tuple[Tensor, Tensor]:
    """Of the loss, its classes on a spiral: near, in chains, and far apart."""
    embeddings = batch.embeddings.clone().requires_grad_()
    turns = torch.linspace(0.0, 3.0, 10, dtype=torch.float64)
    means = torch.zeros(10, embeddings.shape[1], dtype=torch.float64)
    means[:, 0], means[:, 1] = turns * turns.cos(), turns * turns.sin()
    means, spreads = means.to(embeddings.device), turns.div(30).to(embeddings.device)
    loss = hierarchical_triplet_loss(embeddings, batch.labels, means, spreads, margin=0.5, levels=5)
    loss.backward()
    assert embeddings.grad is not None
    return loss.detach(), embeddings.grad


def levels_by_kernel(places: Tensor) -> Tensor:
    """On how many of 5 levels from 0.5 on two classes without a spread are apart."""
    start = places.new_full((), 0.5)
    nodes = hierarchical_triplet_kernel.nodes(
        places @ places.T, places.square().sum(1), start, levels=5
    )
    return (nodes[:, None] != nodes[..., None]).sum(0).to(places.dtype)


def levels_by_linkage(places: Tensor) -> Tensor:
    between = torch.cdist(places, places).square()
    thresholds = torch.linspace(0.5, 4.0, 6, dtype=places.dtype)[:-1]
    return hierarchical_triplet._meeting_levels(between, thresholds)


def compare_kernels(kinds: Sequence[str] = KINDS, batches: int | None = None) -> None:
    kernel = hierarchical_triplet_kernel
    with mock.patch.object(kernel, "TILE", 64):
        for kind in kinds:
            assert torch.equal(levels_by_kernel(points(kind)), levels_by_linkage(points(kind)))
    for name, batch in list(kernel_batches().items())[:batches]:
        expected = value_and_slope(batch)
        with mock.patch.multiple(kernel, TILE=128, ready=lambda x: True):
            found = value_and_slope(batch)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-16, msg=name)
        assert expected[0] > 0 or name in ("alone", "one class", "one sample")


def compare_some() -> None:
    compare_kernels(KINDS[2:], 3)


@pytest.mark.parametrize(
    "what", ["compare_some", pytest.param("compare_kernels", marks=pytest.mark.slow)]
)
def test_interpreted_kernels_give_what_torch_gives(what: str) -> None:
    call_interpreted("test_hierarchical_triplet", what)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", kernel_batches())
def test_a_gpu_gives_what_a_cpu_gives(name: str) -> None:
    batch = kernel_batches()[name]
    expected = value_and_slope(batch)
    found = value_and_slope(Batch(batch.embeddings.cuda(), batch.labels.cuda()))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_on_a_gpu_is_that_by_linkage(kind: str) -> None:
    found = levels_by_kernel(points(kind).cuda())
    assert torch.equal(found.cpu(), levels_by_linkage(points(kind)))
