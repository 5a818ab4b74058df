"""Virtual points in any loss: what joins the batch, and around which centers."""

import pytest
import torch
from torch import Tensor, nn

from gradients import identical
from kinspace.losses import (
    Contrastive,
    Magnet,
    ProxyAnchor,
    VirtualPoints,
    contrastive_loss,
    proxy_anchor_loss,
    virtual_points,
)
from kinspace.objective import make_loss

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def batch() -> Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(3)).requires_grad_()


def test_the_points_join_the_batch_around_the_proxies_of_the_loss() -> None:
    loss, x = ProxyAnchor(3, 4), batch()
    points = virtual_points(x, LABELS, loss.proxies.detach(), beta=2.0)
    expected = proxy_anchor_loss(torch.cat([x, points]), LABELS.repeat(2), loss.proxies)
    criterion = VirtualPoints(loss, 3, 4, beta=2.0)
    identical(criterion(x, LABELS), expected)
    assert criterion.class_centers is None
    assert [name for name, _ in criterion.named_parameters()] == ["loss.proxies"]


def test_a_loss_without_proxies_has_centers_that_follow_in_training() -> None:
    criterion, x = VirtualPoints(Contrastive(), 3, 4, beta=2.0), batch()
    assert criterion.class_centers is not None
    means = torch.stack([x.detach()[label == LABELS].mean(0) for label in range(3)])
    points = virtual_points(x, LABELS, means, beta=2.0)
    expected = contrastive_loss(torch.cat([x, points]), LABELS.repeat(2))
    torch.testing.assert_close(criterion(x, LABELS), expected)
    assert criterion.class_centers.seen.all()


def test_losses_of_samples_are_those_of_a_sample_and_its_point() -> None:
    criterion = VirtualPoints(make_loss("nra", {"reduction": "none"}, num_classes=3, dim=4), 3, 4)
    assert criterion(batch(), LABELS).shape == (6,)


def test_a_recipe_asks_for_them_by_their_beta() -> None:
    made = make_loss("triplet", {}, num_classes=3, dim=4, virtual_points=1.5)
    assert isinstance(made, VirtualPoints)
    assert made.beta == 1.5
    plain: nn.Module = make_loss("triplet", {}, num_classes=3, dim=4)
    assert not isinstance(plain, VirtualPoints)


def test_a_loss_of_clusters_is_refused() -> None:
    with pytest.raises(ValueError, match="takes clusters; leave virtual_points at 0"):
        VirtualPoints(Magnet(), 3, 4)
