"""The net of NRA's experiment on MNIST: two convolutions; its fully connected layer is the head.

    5x5 convolution, 32 - ReLU - max pooling 2 - 5x5 convolution, 64 - ReLU - max pooling 2 - flat

The paper says "two convolutional and one fully connected layers" and no sizes; these are the ones
of the usual MNIST example. The map is handed on flat, as channels of one position, so that the head
sees where things are: pooling it would leave 64 numbers a digit.

Schall et al., Deep metric learning using similarities from nonlinear rank approximations, 2019,
sec. IV-B.
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.transforms import Normalization
from kinspace.models.preprocessing import Preprocessing

__all__ = ["MnistConvNet"]

MNIST = Normalization((0.1307,) * 3, (0.3081,) * 3)  # of its 60,000 training pictures


class MnistConvNet(nn.Module):
    """Two convolutions (module docstring). size: the side of the pictures, which is fixed.

    >>> import torch
    >>> net = MnistConvNet()
    >>> net(torch.zeros(2, 3, 28, 28)).shape, net.channels
    (torch.Size([2, 3136, 1, 1]), 3136)
    """

    classifier = ()

    def __init__(self, *, size: int = 28, in_channels: int = 3) -> None:
        super().__init__()
        checks.integer("size", size, at_least=4)
        self.channels = 64 * (size // 4) ** 2
        self.preprocessing = Preprocessing.of(MNIST, size, in_channels=in_channels)
        self.conv1 = nn.Conv2d(in_channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        for layer in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, size, size) -> (batch, channels, 1, 1)."""
        size = self.preprocessing.size
        if x.shape[-2:] != (size, size):
            raise ValueError(
                f"mnist_convnet: expected pictures of {size}x{size}, got {tuple(x.shape)}; "
                "choose another side by the option size"
            )
        x = self.pool(self.conv1(x).relu_())
        x = self.pool(self.conv2(x).relu_())
        return x.flatten(1)[:, :, None, None]
