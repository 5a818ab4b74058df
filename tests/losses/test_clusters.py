"""Losses on clusters, Magnet and its NCA analogue, and the variance that Magnet follows."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from batches import NUM_CLASSES, Batch, batch_means, varied_batch
from kinspace.losses import ClusterNCA, Magnet, cluster_nca_loss, magnet_loss


def variance(batch: Batch) -> float:
    means = batch_means(batch)
    offsets = [
        x - means[label] for x, label in zip(batch.embeddings, batch.labels.tolist(), strict=True)
    ]
    return float(torch.stack(offsets).square().sum() / (len(offsets) - 1))


def test_magnet_averages_the_variance_first_and_follows_it_later() -> None:
    module = Magnet(momentum=0.75).double()
    values = [variance(varied_batch(seed)) for seed in range(7)]
    expected = 0.0
    for seed, value in enumerate(values):
        module(*varied_batch(seed))
        share = max(1 / (seed + 1), 0.25)
        expected += share * (value - expected)
        torch.testing.assert_close(module.variance.item(), expected, rtol=1e-7, atol=0.0)
        if seed < 4:  # so far the plain average
            torch.testing.assert_close(expected, sum(values[: seed + 1]) / (seed + 1))
    assert module.batches == 7


OF_CLUSTERS = pytest.mark.parametrize(
    ("kind", "function"), [(Magnet, magnet_loss), (ClusterNCA, cluster_nca_loss)]
)


@OF_CLUSTERS
def test_a_loss_on_clusters_takes_each_class_for_one_unless_told(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    batch = varied_batch(1)
    labels = batch.labels * 1000 + 5  # no row of any table
    expected = function(batch.embeddings, batch.labels, torch.arange(NUM_CLASSES))
    torch.testing.assert_close(kind()(batch.embeddings, labels), expected)
    clusters, classes = torch.arange(len(labels)) % 3, torch.tensor([0, 1, 1])
    told = kind()(batch.embeddings, labels, clusters=clusters, cluster_labels=classes)
    torch.testing.assert_close(told, function(batch.embeddings, clusters, classes))


@OF_CLUSTERS
def test_a_loss_on_clusters_is_the_mean_of_what_it_gives_each_sample(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    embeddings, labels = varied_batch(1)
    told = {"clusters": torch.arange(len(labels)) % 3, "cluster_labels": torch.tensor([0, 1, 1])}
    terms = kind(eps=0.5, reduction="none")(embeddings, labels, **told)
    assert terms.shape == labels.shape
    assert torch.equal(terms, function(embeddings, **told, eps=0.5, reduction="none"))
    torch.testing.assert_close(terms.mean(), kind(eps=0.5)(embeddings, labels, **told))


@OF_CLUSTERS
def test_a_loss_on_clusters_wants_both_the_clusters_and_their_classes(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    batch = varied_batch(1)
    with pytest.raises(ValueError, match="both clusters and cluster_labels, or neither"):
        kind()(*batch, clusters=batch.labels)


@pytest.mark.parametrize("scale", [1e13, 1e20, 1e30, 1e37])
def test_very_large_embeddings_have_the_loss_of_small_ones(scale: float) -> None:
    """Both losses are the same in any unit, up to eps; squares of these overflow float32."""
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    clusters, classes = torch.arange(12) % 4, torch.tensor([0, 0, 1, 1])
    for loss in (magnet_loss, cluster_nca_loss):
        found = []
        for factor in (1.0, scale):
            big = (x * factor).requires_grad_()
            value = loss(big, clusters, classes, eps=0.0)
            [gradient] = torch.autograd.grad(value, big)
            found.append((value.item(), gradient.double() * factor))
        assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
        torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-3, atol=1e-5)


def test_the_running_variance_stays_finite() -> None:
    criterion = Magnet()
    labels = torch.arange(12) % 4
    for scale in (1.0, 1e30, 1.0):
        criterion(torch.randn(12, 5) * scale, labels)
        assert criterion.variance.isfinite()
