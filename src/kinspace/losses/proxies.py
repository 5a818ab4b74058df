"""One learnt vector a class: the parameter of the proxy losses and of the softmax."""

from __future__ import annotations

import torch
from torch import nn

from kinspace._core import checks

__all__ = ["new_centers", "new_proxies"]


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
