"""GoogLeNet (Inception v1) as Caffe has it and as the papers used it.

No batch norm, true 5x5 convolutions, a bias in every convolution and a ReLU after it, local
response normalization, pooling that rounds sizes up:

    conv1 7x7/2 - pool - LRN - conv2 1x1 - conv3 3x3 - LRN - pool - 3a 3b - pool
    - 4a 4b 4c 4d 4e - pool - 5a 5b - mean over the map - fc

`early` ends with the pooling after 3b, where ABE has its attention; `late` gives the maps after 4a,
4d and 5b, the depths of HDC's learners (`kinspace.models.ensembles`).

A side of 227 or 224 ends as a map of 7x7. Keys are those of the converted Caffe weights
(`inception3a.branch2.0.conv.weight`); red, green and blue in 0 .. 1, normalized by
`preprocessing`: BGR order and the range 0 .. 255 are folded into the first convolution.

Szegedy et al., Going deeper with convolutions, 2015, Table 1. Without the two auxiliary
classifiers, which only training from scratch uses; for the same reason the weights start as He et
al. (2015) have it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace.data.transforms import NORMALIZATIONS
from kinspace.models.ensembles import Attention
from kinspace.models.layers import (
    LocalResponseNorm,
    MaxPool,
    bias_relu,
    join_bias_relu,
    split_bias_relu,
)
from kinspace.models.preprocessing import Preprocessing

__all__ = ["GoogLeNet"]

# inputs; 1x1; 1x1 and 3x3 after it; 1x1 and 5x5 after it; 1x1 after the pooling
BLOCKS: dict[str, tuple[int, int, tuple[int, int], tuple[int, int], int]] = {
    "3a": (192, 64, (96, 128), (16, 32), 32),
    "3b": (256, 128, (128, 192), (32, 96), 64),
    "4a": (480, 192, (96, 208), (16, 48), 64),
    "4b": (512, 160, (112, 224), (24, 64), 64),
    "4c": (512, 128, (128, 256), (24, 64), 64),
    "4d": (512, 112, (144, 288), (32, 64), 64),
    "4e": (528, 256, (160, 320), (32, 128), 128),
    "5a": (832, 256, (160, 320), (32, 128), 128),
    "5b": (832, 384, (192, 384), (48, 128), 128),
}
EARLY = ("3a", "3b")
DEPTHS = {"4a": 512, "4d": 528, "5b": 1024}  # blocks and their channels


class ConvReLU(nn.Module):
    """A convolution that keeps the size at stride 1, and a ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) -> (batch, outputs, height, width)."""
        conv = self.conv
        y = functional.conv2d(x, conv.weight, None, conv.stride, conv.padding)
        return bias_relu(y, conv.bias)  # type: ignore[arg-type]


class Inception(nn.Module):
    """Four branches side by side on the same map, their channels in a row."""

    def __init__(
        self, inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int
    ) -> None:
        super().__init__()
        self.branch1 = ConvReLU(inputs, one, 1)
        self.branch2 = nn.Sequential(ConvReLU(inputs, three[0], 1), ConvReLU(*three, 3))
        self.branch3 = nn.Sequential(ConvReLU(inputs, five[0], 1), ConvReLU(*five, 5))
        self.branch4 = nn.Sequential(MaxPool(1, padding=1), ConvReLU(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) -> (batch, the branches' channels, height, width)."""
        # The three 1x1 convolutions of x as one; the ends of the branches written side by side.
        firsts: list[Any] = [self.branch1.conv, self.branch2[0].conv, self.branch3[0].conv]
        lasts: list[Any] = [self.branch2[1].conv, self.branch3[1].conv, self.branch4[1].conv]
        y = functional.conv2d(x, torch.cat([conv.weight for conv in firsts]))
        one, *rest = split_bias_relu(y, *(conv.bias for conv in firsts))
        maps = [
            functional.conv2d(inputs, conv.weight, padding=conv.padding)
            for inputs, conv in zip((*rest, self.branch4[0](x)), lasts, strict=True)
        ]
        return join_bias_relu(one, *maps, *(conv.bias for conv in lasts))


class GoogLeNet(nn.Module):
    """Caffe's GoogLeNet (module docstring); num_classes 0: the feature map, no classifier.

    >>> GoogLeNet()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 1024, 2, 2])
    """

    channels = 1024
    depths = tuple(DEPTHS.values())
    classifier = ("fc",)

    def __init__(self, num_classes: int = 0, *, in_channels: int = 3) -> None:
        super().__init__()
        self.preprocessing = Preprocessing.of(
            NORMALIZATIONS["caffe_googlenet"], 227, in_channels=in_channels
        )
        self.conv1 = ConvReLU(in_channels, 64, 7, stride=2)
        self.conv2 = ConvReLU(64, 64, 1)
        self.conv3 = ConvReLU(64, 192, 3)
        for name, widths in BLOCKS.items():
            self.add_module(f"inception{name}", Inception(*widths))
        self.pool = MaxPool(2)
        self.norm = LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)
        self.fc = nn.Linear(self.channels, num_classes) if num_classes else None

    def early(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, 480, height / 16, width / 16)."""
        x = self.norm(self.pool(self.conv1(x)))
        x = self.pool(self.norm(self.conv3(self.conv2(x))))
        for name in EARLY:
            x = self._block(name)(x)
        return self.pool(x)  # type: ignore[no-any-return]

    def late(self, x: Tensor) -> tuple[Tensor, ...]:
        """The map of `early` -> those after the blocks of DEPTHS; the last is the net's."""
        maps = []
        for name in BLOCKS:
            if name not in EARLY:
                x = self._block(name)(self.pool(x) if name == "5a" else x)
                if name in DEPTHS:
                    maps.append(x)
        return tuple(maps)

    def make_attention(self, learners: int) -> Attention:
        """Masks for the map of `early`, by copies of 4a to 4e as they are now: pretrained ones."""
        blocks = [deepcopy(self._block(name)) for name in BLOCKS if name.startswith("4")]
        return Attention(nn.Sequential(*blocks), 480, 832, learners)

    def _block(self, name: str) -> nn.Module:
        return self.get_submodule(f"inception{name}")

    def forward_features(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, 1024, height / 32, width / 32)."""
        return self.late(self.early(x))[-1]

    def forward(self, x: Tensor) -> Tensor:
        """The feature map, or with a classifier its logits (batch, num_classes)."""
        x = self.forward_features(x)
        return x if self.fc is None else self.fc(x.mean((2, 3)))
