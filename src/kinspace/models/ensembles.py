"""Learners that see different things: by attention masks (ABE), or at several depths (HDC).

Each learner has pooled features of its own, and a group of the embedding's dimensions made of them
(`kinspace._core.vectors`). Our nets are cut in the middle for it, `late(early(pictures))`:

    attention   B_m = G(S * sigmoid(A_m(S))),   S = early(pictures)
                A_m is a 1x1 convolution for each learner behind blocks that all share. G, the rest
                of the net and the embedding layer, has the same weights for all learners.
    depths      late gives the maps after several blocks, each pooled and with a layer of its own

Kim et al., Attention-based ensemble for deep metric learning, ECCV 2018 (arXiv 1804.00382), sec. 4
and 6.3, after a public summary of the paper: GoogLeNet is cut after its third pooling, the best of
the points tried; copies of 4a to 4e and a 1x1 convolution to 480 channels, Glorot's start, make the
masks. That the copies are shared is as a public reimplementation has it. The masked maps run as one
batch, learner by learner, so that a batch norm sees all of them.

Yuan et al., Hard-aware deeply cascaded embedding, ICCV 2017 (arXiv 1611.05720): after 4a, 4d and
5b, as the published network has it. There the first two learners have GoogLeNet's auxiliary
classifiers before their last layer (a pooling of 5x5, a convolution, 1,024 units, dropout 0.7);
here all have what the last one has, the mean over the map and one linear layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kinspace._core.vectors import group_sizes

__all__ = ["Attention", "LearnerLayers", "learner_sizes"]


def learner_sizes(
    learners: int, groups: int | Sequence[int] | None, dim: int | None, *, shared: bool
) -> list[int]:
    """The dimensions of each learner; shared: all have the same embedding layer.

    >>> learner_sizes(3, [2, 2, 4], 8, shared=False)
    [2, 2, 4]
    >>> learner_sizes(3, None, 8, shared=False)
    Traceback (most recent call last):
    ValueError: groups: expected 3, a group of dimensions for each learner of the net, got None
    """
    if dim is None:
        raise ValueError("dim: expected a number, for the learners to share out, got None")
    sizes = [] if groups is None else group_sizes(groups, dim)
    if len(sizes) != learners:
        raise ValueError(
            f"groups: expected {learners}, a group of dimensions for each learner of the net, "
            f"got {groups}" + (f" of {dim} dimensions" if groups == learners else "")
        )
    if shared and len(set(sizes)) > 1:
        raise ValueError(
            f"groups: expected {learners} of one size, since the learners of an attention share "
            f"their embedding layer, got {sizes}"
        )
    return sizes


class Attention(nn.Module):
    """Sigmoid masks for a map, one for each learner, and the map under each (module docstring).

    blocks: from `channels` to `width` channels, at the size of the map.

    >>> Attention(nn.Conv2d(4, 6, 1), 4, 6, learners=3)(torch.rand(2, 4, 5, 5)).shape
    torch.Size([6, 4, 5, 5])
    """

    def __init__(self, blocks: nn.Module, channels: int, width: int, learners: int) -> None:
        super().__init__()
        self.learners = learners
        self.blocks = blocks
        self.masks = nn.Conv2d(width, learners * channels, 1)  # all learners' in one
        nn.init.zeros_(self.masks.bias)  # type: ignore[arg-type]
        for mine in self.masks.weight.detach().chunk(learners):
            nn.init.xavier_uniform_(mine)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (learners * batch, ...), learner by learner."""
        masks = self.masks(self.blocks(x)).sigmoid()  # (batch, learners * channels, height, width)
        return torch.cat([x * mask for mask in masks.chunk(self.learners, 1)])


class LearnerLayers(nn.Module):
    """A linear layer for each learner on its part of the features, or one layer for all parts.

    >>> LearnerLayers([nn.Linear(2, 3), nn.Linear(4, 5)], [2, 4])(torch.rand(1, 6)).shape
    torch.Size([1, 8])
    """

    def __init__(self, layers: Sequence[nn.Linear], inputs: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.inputs = list(inputs)

    def forward(self, pooled: Tensor) -> Tensor:
        """(batch, all inputs) -> (batch, all outputs), learner by learner."""
        if len(self.layers) == 1:
            each = pooled.unflatten(1, (len(self.inputs), -1))  # (batch, learners, inputs)
            return self.layers[0](each).flatten(1)  # type: ignore[no-any-return]
        parts = pooled.split(self.inputs, 1)
        return torch.cat([layer(x) for layer, x in zip(self.layers, parts, strict=True)], 1)
