"""The tree of the hierarchical triplet loss, and the means and spreads its module follows."""

import pytest
import torch
from torch import Tensor

import loops
from batches import NUM_CLASSES, Batch, random_batch
from gradients import disagreement, evaluate
from kinspace.losses import HierarchicalTriplet, hierarchical_triplet_loss, triplet_loss
from kinspace.losses.single_linkage import joining_heights

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


@pytest.mark.parametrize("size", [1, 2, 33, 70])
def test_chains_through_a_block_of_classes_are_those_through_one_after_another(size: int) -> None:
    steps = torch.rand(size, size, generator=torch.Generator().manual_seed(size))
    steps = steps + steps.T
    expected = joining_heights(steps, 1)
    for block in (2, 7, 32):
        assert torch.equal(joining_heights(steps, block), expected)


def statistics(centers: Tensor) -> tuple[Tensor, Tensor]:
    means = centers[:, :-1]
    return means, centers[:, -1] - means.square().sum(1)


def test_a_class_starts_with_the_mean_and_the_spread_of_its_batch() -> None:
    module = HierarchicalTriplet(NUM_CLASSES, DIM).double()
    batch = on_the_sphere(1, classes=NUM_CLASSES)
    loss = module(*batch)
    means, spreads = statistics(module.class_centers.centers)
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
        started, seen = module.class_centers.centers.clone(), module.class_centers.seen.clone()
        for label in set(batch.labels.tolist()):
            if not seen[label]:
                started[label] = followed[batch.labels == label].mean(0)
                seen[label] = True
        places = seen.cumsum(0) - 1  # of the seen classes among themselves
        means, spreads = statistics(started[seen])
        expected = hierarchical_triplet_loss(batch.embeddings, places[batch.labels], means, spreads)
        torch.testing.assert_close(module(*batch), expected)
        moved = loops.update_centers(started, followed, batch.labels, rate=0.3)
        torch.testing.assert_close(module.class_centers.centers, moved)
        assert torch.equal(module.class_centers.seen, seen)


KINDS = ["scattered", "in a chain", "in clumps"]


def many_classes(kind: str) -> Tensor:
    """The means of 24 classes."""
    generator = torch.Generator().manual_seed(0)
    found = torch.randn(24, 3, generator=generator, dtype=torch.float64)
    if kind == "in a chain":
        return found[:1] + 0.04 * torch.arange(24)[:, None].square() * found[1:2]
    return found[torch.arange(24) % 5] + 0.05 * found if kind == "in clumps" else found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [1, 5, 16])
def test_the_tree_of_many_classes_is_that_of_the_loop(kind: str, levels: int) -> None:
    """Every pair of classes meets where merging node by node, level by level, has them meet."""
    means = many_classes(kind)
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(24).repeat_interleave(2)
    noise = torch.randn(48, 3, generator=generator, dtype=torch.float64)
    embeddings = means[labels] + 0.1 * noise
    spreads = 0.05 * torch.rand(24, generator=generator, dtype=torch.float64)
    arguments = {"embeddings": embeddings, "labels": labels, "means": means, "spreads": spreads}
    found = evaluate(hierarchical_triplet_loss, arguments, {"levels": levels})
    expected = evaluate(loops.hierarchical_triplet_loss, arguments, {"levels": levels})
    problem = disagreement(found, expected)
    assert problem is None, problem


def test_the_distance_of_classes_is_the_mean_over_pairs_of_samples() -> None:
    """So that means and spreads stand in for the paper's pass over the training set."""
    first, second = torch.randn(2, 9, DIM, dtype=torch.float64)
    spreads = [(x - x.mean(0)).square().sum(1).mean() for x in (first, second)]
    apart = (first.mean(0) - second.mean(0)).square().sum()
    torch.testing.assert_close(sum(spreads) + apart, torch.cdist(first, second).square().mean())


def test_words_as_labels_are_refused_in_a_sentence() -> None:
    criterion = HierarchicalTriplet(num_classes=3, dim=2)
    with pytest.raises(ValueError, match=r"labels: .*list of words; number the classes"):
        criterion(torch.eye(2), ["cat", "dog"])
