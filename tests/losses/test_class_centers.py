"""Class centers that follow the embeddings, and the losses that are measured from them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import loops
from batches import NUM_CLASSES, batch_means, random_batch, random_centers, varied_batch
from gradients import identical
from kinspace.losses import (
    ALMN,
    NCM,
    Center,
    FixedMargin,
    almn_loss,
    center_loss,
    fixed_margin_loss,
    ncm_loss,
    update_centers,
)

DIM = 4
CENTERED: dict[str, tuple[type[nn.Module], Callable[..., Tensor]]] = {
    "almn": (ALMN, almn_loss),
    "fixed_margin": (FixedMargin, fixed_margin_loss),
    "center": (Center, center_loss),
}
EVERY_CENTERED = pytest.mark.parametrize(("kind", "function"), CENTERED.values(), ids=CENTERED)


@EVERY_CENTERED
def test_a_class_seen_for_the_first_time_starts_at_its_batch_mean(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    module = kind(NUM_CLASSES, DIM).double()
    batch = varied_batch(0)
    means = batch_means(batch)
    started = torch.zeros(NUM_CLASSES, DIM, dtype=torch.float64)
    for label, mean in means.items():
        started[label] = mean
    loss = module(*batch)
    torch.testing.assert_close(loss, function(*batch, started))
    # at the mean of its samples a center has no reason to move
    torch.testing.assert_close(module.centers, started)
    assert module.class_centers.seen.nonzero().flatten().tolist() == sorted(means)


@EVERY_CENTERED
def test_a_known_class_moves_by_the_rule_after_the_loss(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    module = kind(NUM_CLASSES, DIM, rate=0.3).double()
    module(*varied_batch(0))
    before = module.centers.clone()
    seen = module.class_centers.seen.clone()
    batch = varied_batch(3)  # holds classes that were not in the first
    started = before.clone()
    for label, mean in batch_means(batch).items():
        if not seen[label]:
            started[label] = mean
    assert not torch.equal(started, before)
    torch.testing.assert_close(module(*batch), function(*batch, started))
    expected = loops.update_centers(started, *batch, rate=0.3)
    torch.testing.assert_close(module.centers, expected)
    assert not torch.equal(module.centers, before)


@EVERY_CENTERED
def test_in_evaluation_a_new_class_is_measured_from_its_batch_mean(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    trained, fresh = kind(NUM_CLASSES, DIM).double(), kind(NUM_CLASSES, DIM).double().eval()
    batch = varied_batch(2)
    torch.testing.assert_close(fresh(*batch), trained(*batch))
    assert not fresh.class_centers.seen.any()
    assert fresh.centers.eq(0).all()


def test_ncm_leaves_out_the_classes_it_has_not_seen() -> None:
    module = NCM(NUM_CLASSES, DIM, rate=0.3).double()
    for seed in (0, 3):  # the second batch holds classes that were not in the first
        batch = varied_batch(seed)
        started, seen = module.centers.clone(), module.class_centers.seen.clone()
        for label, mean in batch_means(batch).items():
            started[label] = started[label] if seen[label] else mean
            seen[label] = True
        assert not seen.all()
        places = seen.cumsum(0) - 1  # of the seen classes among themselves
        expected = ncm_loss(batch.embeddings, places[batch.labels], started[seen])
        torch.testing.assert_close(module(*batch), expected)
        moved = loops.update_centers(started, *batch, rate=0.3)
        torch.testing.assert_close(module.centers, moved)
        identical(module.class_centers.seen, seen)


@EVERY_CENTERED
def test_centers_are_no_parameters_and_no_part_of_the_graph(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    module = kind(NUM_CLASSES, DIM).double()
    embeddings, labels = varied_batch(0)
    module(embeddings.clone().requires_grad_(), labels)
    assert list(module.parameters()) == []
    assert not module.centers.requires_grad


def test_update_centers_leaves_its_arguments_alone() -> None:
    embeddings, labels = varied_batch(0)
    embeddings.requires_grad_()
    centers = random_centers(0, dim=DIM)
    given = [tensor.detach().clone() for tensor in (centers, embeddings, labels)]
    moved = update_centers(centers, embeddings, labels)
    identical([centers, embeddings.detach(), labels], given)
    assert not moved.requires_grad
    assert moved.data_ptr() != centers.data_ptr()
    identical(update_centers(centers, embeddings, labels), moved)


def test_update_centers_moves_only_the_classes_of_the_batch() -> None:
    centers = random_centers(0, dim=DIM)
    embeddings = random_batch(0, dim=DIM).embeddings[:3]
    moved = update_centers(centers, embeddings, torch.tensor([5, 2, 5]))
    still = [label for label in range(NUM_CLASSES) if label not in (2, 5)]
    identical(moved[still], centers[still])
    # one sample: half way of rate 1/2 to it; two: two thirds of it to their mean
    torch.testing.assert_close(moved[2], centers[2] + 0.25 * (embeddings[1] - centers[2]))
    mean = embeddings[[0, 2]].mean(0)
    torch.testing.assert_close(moved[5], centers[5] + (mean - centers[5]) / 3)
