"""New parameters of losses: one learnt vector a class, several, or a layer."""

from __future__ import annotations

import torch
from torch import nn

from kinspace._core import checks

__all__ = ["new_centers", "new_layer", "new_proxies"]


def new_proxies(num_classes: int, dim: int) -> nn.Parameter:
    """Random proxies (classes, dim), of squared length about 2, in directions spread evenly.

    The cosine losses see the direction alone; the length sets how far one step of the optimizer
    turns it. This is the start of the authors' proxy-anchor code (Kaiming, fan out).

    >>> new_proxies(3, 2).shape
    torch.Size([3, 2])
    """
    num_classes = checks.integer("num_classes", num_classes, at_least=1)
    dim = checks.integer("dim", dim, at_least=1)
    return nn.Parameter(torch.randn(num_classes, dim) * (2 / num_classes) ** 0.5)


def new_centers(num_classes: int, centers: int, dim: int) -> nn.Parameter:
    """Random centers (classes, centers, dim), each as `new_proxies` starts them.

    >>> new_centers(3, 5, 2).shape
    torch.Size([3, 5, 2])
    """
    num_classes = checks.integer("num_classes", num_classes, at_least=1)
    centers = checks.integer("centers", centers, at_least=1)
    dim = checks.integer("dim", dim, at_least=1)
    return nn.Parameter(torch.randn(num_classes, centers, dim) * (2 / num_classes) ** 0.5)


def new_layer(rows: int, columns: int) -> nn.Parameter:
    """Weights of a layer, and in the last column its bias, drawn as `nn.Linear` draws them.

    >>> new_layer(3, 2).shape
    torch.Size([3, 3])
    """
    return nn.Parameter((2 * torch.rand(rows, columns + 1) - 1) / columns**0.5)
