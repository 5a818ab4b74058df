"""Proxies: where they start."""

import torch

from gradients import identical
from kinspace.losses import ProxyAnchor


def test_proxies_are_random_and_follow_the_seed() -> None:
    torch.manual_seed(1)
    first = ProxyAnchor(50, 16).proxies
    torch.manual_seed(1)
    identical(ProxyAnchor(50, 16).proxies, first)
    assert not torch.equal(ProxyAnchor(50, 16).proxies, first)
    assert torch.linalg.matrix_rank(first) == 16
