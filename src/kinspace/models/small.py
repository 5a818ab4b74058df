"""A small residual net for small pictures and no pretraining, quick on a CPU.

    stem: convolution 3x3, batch norm, ReLU, for larger pictures with stride 2 and a max pooling
    four stages of `blocks` residual blocks, `width`, 2, 4 and 8 times `width` channels; the last
    three halve the map first

The stem divides the side by 4 from 64 pixels on, by 2 from 40 on, and else not at all, so that the
last map has a few positions for any side: 3x3 for 96 pixels, 4x4 for 28. At the default width of 16
a picture of 96 pixels costs 10 million multiplications forward.

For ensembles (`kinspace.models.ensembles`) the net is cut after its second stage: there is the
attention, and the learners' depths are this and the two later stages (our choice).

He et al., Deep residual learning for image recognition, 2016, Fig. 2 (the basic block).
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.transforms import NORMALIZATIONS
from kinspace.models.ensembles import Attention
from kinspace.models.preprocessing import Preprocessing

__all__ = ["SmallNet"]


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """relu(shortcut(x) + two 3x3 convolutions of x), each with batch norm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, 3, stride)
        self.second = _convolution(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) -> (batch, outputs, height / stride, width / stride)."""
        return self.second(self.first(x).relu_()).add_(self.shortcut(x)).relu_()  # type: ignore[no-any-return]


class SmallNet(nn.Module):
    """Four residual stages (module docstring). size: the side of the pictures it is for.

    >>> import torch
    >>> net = SmallNet(width=8, size=28, in_channels=1)
    >>> net(torch.zeros(2, 1, 28, 28)).shape, net.channels
    (torch.Size([2, 64, 4, 4]), 64)
    """

    classifier = ()

    def __init__(
        self, *, width: int = 16, blocks: int = 1, size: int = 96, in_channels: int = 3
    ) -> None:
        super().__init__()
        checks.integer("width", width, at_least=1)
        checks.integer("blocks", blocks, at_least=1)
        checks.integer("size", size, at_least=8)
        self.channels = 8 * width
        self.depths = (2 * width, 4 * width, 8 * width)
        self._blocks = blocks
        self.preprocessing = Preprocessing.of(
            NORMALIZATIONS["imagenet"], size, in_channels=in_channels
        )
        stem = [_convolution(in_channels, width, 3, 2 if size >= 40 else 1), nn.ReLU(inplace=True)]
        self.stem = nn.Sequential(*stem, *[nn.MaxPool2d(3, 2, padding=1)] * (size >= 64))
        stages, inputs = [], width
        for stage in range(4):
            outputs = width * 2**stage
            strides = [1 if stage == 0 else 2] + [1] * (blocks - 1)
            for stride in strides:
                stages.append(Block(inputs, outputs, stride))
                inputs = outputs
        self.stages = nn.Sequential(*stages)

    def early(self, x: Tensor) -> Tensor:
        """Pictures -> the map of the second stage (batch, 2 width, height, width)."""
        return self.stages[: 2 * self._blocks](self.stem(x))  # type: ignore[no-any-return]

    def late(self, x: Tensor) -> tuple[Tensor, ...]:
        """The map of `early` -> itself and those of the last two stages."""
        third = self.stages[2 * self._blocks : 3 * self._blocks](x)
        return x, third, self.stages[3 * self._blocks :](third)

    def make_attention(self, learners: int) -> Attention:
        """Masks for the map of `early`, by one new block of twice its channels."""
        inputs, width = self.depths[:2]
        return Attention(Block(inputs, width, 1), inputs, width, learners)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, 8 width, height', width')."""
        return self.late(self.early(x))[-1]
