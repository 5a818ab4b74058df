"""Caffe's GoogLeNet: its keys, its sizes, its arithmetic."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kinspace.models import GoogLeNet

# Read off the converted Caffe file: inputs, then the outputs of branch1, branch2.0, branch2.1,
# branch3.0, branch3.1, branch4.1.
BLOCKS = """
3a 192  64  96 128 16  32  32
3b 256 128 128 192 32  96  64
4a 480 192  96 208 16  48  64
4b 512 160 112 224 24  64  64
4c 512 128 128 256 24  64  64
4d 512 112 144 288 32  64  64
4e 528 256 160 320 32 128 128
5a 832 256 160 320 32 128 128
5b 832 384 192 384 48 128 128
"""


def caffe_shapes() -> dict[str, tuple[int, ...]]:
    convolutions = {"conv1": (64, 3, 7), "conv2": (64, 64, 1), "conv3": (192, 64, 3)}
    for line in BLOCKS.split("\n")[1:-1]:
        name, *numbers = line.split()
        inputs, one, three0, three, five0, five, pooled = map(int, numbers)
        block = f"inception{name}"
        convolutions |= {
            f"{block}.branch1": (one, inputs, 1),
            f"{block}.branch2.0": (three0, inputs, 1),
            f"{block}.branch2.1": (three, three0, 3),
            f"{block}.branch3.0": (five0, inputs, 1),
            f"{block}.branch3.1": (five, five0, 5),
            f"{block}.branch4.1": (pooled, inputs, 1),
        }
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (1000, 1024), "fc.bias": (1000,)}
    for name, (outputs, inputs, kernel) in convolutions.items():
        shapes[f"{name}.conv.weight"] = (outputs, inputs, kernel, kernel)
        shapes[f"{name}.conv.bias"] = (outputs,)
    return shapes


def test_its_keys_and_shapes_are_those_of_the_converted_caffe_file() -> None:
    shapes = caffe_shapes()
    assert len(shapes) == 116
    with_classifier = GoogLeNet(1000).state_dict()
    assert {key: tuple(value.shape) for key, value in with_classifier.items()} == shapes
    assert set(GoogLeNet().state_dict()) == {key for key in shapes if not key.startswith("fc.")}
    assert sum(value.numel() for value in with_classifier.values()) == 6_998_552


def caffe_pooled(side: int) -> int:
    """Caffe's size after a 3x3 pooling of stride 2 without padding: rounded up."""
    return math.ceil((side - 3) / 2) + 1


@pytest.mark.parametrize(("side", "expected"), [(227, 7), (224, 7), (256, 8), (97, 3)])
def test_pooling_rounds_sizes_up_as_caffe_does(side: int, expected: int) -> None:
    rounded = (side + 6 - 7) // 2 + 1  # the first convolution rounds down
    for _ in range(4):
        rounded = caffe_pooled(rounded)
    assert rounded == expected
    with torch.device("meta"):
        assert GoogLeNet()(torch.zeros(1, 3, side, side)).shape == (1, 1024, expected, expected)


def by_hand(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """The forward pass written out from the layout's description, with torch's own functions."""

    def conv(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight, bias = weights[f"{name}.conv.weight"], weights[f"{name}.conv.bias"]
        return functional.conv2d(x, weight, bias, stride, weight.shape[-1] // 2).relu()

    def pool(x: Tensor) -> Tensor:
        return functional.max_pool2d(x, 3, 2, ceil_mode=True)

    def norm(x: Tensor) -> Tensor:
        return functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)

    def inception(name: str, x: Tensor) -> Tensor:
        name = f"inception{name}.branch"
        return torch.cat(
            [
                conv(f"{name}1", x),
                conv(f"{name}2.1", conv(f"{name}2.0", x)),
                conv(f"{name}3.1", conv(f"{name}3.0", x)),
                conv(f"{name}4.1", functional.max_pool2d(x, 3, 1, 1)),
            ],
            1,
        )

    x = norm(pool(conv("conv1", x, 2)))
    x = pool(norm(conv("conv3", conv("conv2", x))))
    x = pool(inception("3b", inception("3a", x)))
    for name in ("4a", "4b", "4c", "4d", "4e"):
        x = inception(name, x)
    x = inception("5b", inception("5a", pool(x)))
    return functional.linear(x.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])


def test_it_computes_what_the_layout_says() -> None:
    net = GoogLeNet(1000).double()
    with torch.no_grad():
        for key, value in net.named_parameters():
            if key.endswith("bias"):
                value.normal_()  # zero at the start: a bias left out would not show
    pictures = 100 * torch.randn(2, 3, 70, 61, dtype=torch.float64)
    expected = by_hand(dict(net.named_parameters()), pictures)
    torch.testing.assert_close(net(pictures), expected, rtol=1e-9, atol=1e-9)
    net, pictures = (value.to(memory_format=torch.channels_last) for value in (net, pictures))
    torch.testing.assert_close(net(pictures), expected, rtol=1e-9, atol=1e-9)
