"""The layers of Caffe's GoogLeNet: normalization across channels, pooling, bias with ReLU."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradients import check_derivatives, disagreement, evaluate
from kinspace.models.googlenet import ConvReLU
from kinspace.models.layers import (
    LocalResponseNorm,
    MaxPool,
    bias_relu,
    join_bias_relu,
    local_response_norm,
    max_pool,
    split_bias_relu,
)

LAYOUTS = [torch.contiguous_format, torch.channels_last]

# --- normalization -------------------------------------------------------------------------------


def loop(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    y = x.clone()
    channels = x.shape[1]
    for i in range(channels):
        window = range(max(0, i - size // 2), min(channels, i + size // 2 + 1))
        total = sum((x[:, j] ** 2 for j in window), torch.zeros_like(x[:, 0]))
        y[:, i] = x[:, i] / (k + alpha / size * total) ** beta
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 2, 3, 8])
@pytest.mark.parametrize("beta", [0.75, 0.6])
def test_normalization_is_the_loop_over_channels_and_torchs(
    layout: torch.memory_format, channels: int, beta: float
) -> None:
    x = (20 * torch.randn(2, channels, 4, 3, dtype=torch.float64)).to(memory_format=layout)
    options = {"alpha": 0.02, "beta": beta, "k": 1.5}
    found = evaluate(local_response_norm_sum, {"x": x}, options)
    y = local_response_norm(x, size=5, **options)
    torch.testing.assert_close(y, loop(x, 5, 0.02, beta, 1.5), rtol=1e-12, atol=0)
    assert y.is_contiguous(memory_format=layout)
    assert disagreement(found, evaluate(torch_norm_sum, {"x": x}, options)) is None


def weighted(y: Tensor) -> Tensor:
    return (y * torch.arange(y.numel(), dtype=y.dtype).view(y.shape).cos()).sum()


def local_response_norm_sum(x: Tensor, **options: float) -> Tensor:
    return weighted(local_response_norm(x, size=5, **options))


def torch_norm_sum(x: Tensor, **options: float) -> Tensor:
    return weighted(functional.local_response_norm(x, 5, **options))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_normalization_has_first_and_second_derivatives(layout: torch.memory_format) -> None:
    x = torch.randn(2, 6, 2, 2, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    check_derivatives(lambda x: local_response_norm(x, size=5, alpha=0.7, beta=0.75, k=1.0), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_normalization_of_half_precision_squares_in_full(dtype: torch.dtype) -> None:
    x = (1000 * torch.rand(1, 8, 3, 3)).to(dtype).requires_grad_()  # squares overflow float16
    y = local_response_norm(x)
    assert y.dtype == dtype
    expected = local_response_norm(x.detach().float())
    torch.testing.assert_close(y.float(), expected, rtol=torch.finfo(dtype).eps, atol=0)
    y.float().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_normalization_under_autocast_keeps_what_the_convolution_gave() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), LocalResponseNorm())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(torch.rand(1, 3, 5, 5)).dtype == torch.bfloat16


def test_normalization_compiles_into_one_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(local_response_norm_sum, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 7, 3, 3, dtype=torch.float64)
    expected = evaluate(local_response_norm_sum, {"x": x}, {"alpha": 0.5})
    assert disagreement(evaluate(compiled, {"x": x}, {"alpha": 0.5}), expected) is None


def test_a_net_with_normalization_has_its_gradients_when_compiled() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 7, 3), LocalResponseNorm(alpha=0.5), nn.Conv2d(7, 2, 1))
    x = torch.randn(2, 3, 5, 5)
    expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x).square().sum(), list(net.parameters()))
    for mine, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, wanted)


def test_normalization_refuses_an_even_window() -> None:
    with pytest.raises(ValueError, match="size: expected an odd number of channels, got 4"):
        LocalResponseNorm(4)


# --- pooling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stride", "padding"), [(2, 0), (1, 1)])
def test_pooling_takes_the_largest_of_each_window_and_rounds_sizes_up(
    stride: int, padding: int
) -> None:
    for length in range(3, 12):
        x = torch.randn(2, 3, length, length + 1)
        found = MaxPool(stride, padding)(x)
        padded = functional.pad(x, (padding,) * 4, value=-torch.inf)
        rows, columns = (range(0, side + 2 * padding - 3 + stride, stride) for side in x.shape[2:])
        expected = torch.stack(
            [
                torch.stack([padded[..., i : i + 3, j : j + 3].amax((2, 3)) for j in columns], -1)
                for i in rows
            ],
            2,
        )
        assert torch.equal(found, expected)
        assert torch.equal(max_pool(x, stride=stride, padding=padding), found)


def test_pooling_has_first_and_second_derivatives() -> None:
    x = torch.randperm(2 * 25).double().view(1, 2, 5, 5).requires_grad_()  # no ties
    check_derivatives(lambda x: max_pool(x, stride=2).square(), x)


# --- bias and ReLU -------------------------------------------------------------------------------


def maps_and_biases(*sizes: int) -> tuple[list[Tensor], list[Tensor]]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    return [normal(2, size, 3, 4) for size in sizes], [normal(size) for size in sizes]


def plain(y: Tensor, bias: Tensor) -> Tensor:
    return (y + bias[:, None, None]).relu()


def test_bias_and_relu_of_one_map() -> None:
    (y,), (bias,) = maps_and_biases(3)
    assert torch.equal(bias_relu(y, bias), plain(y, bias))
    assert torch.autograd.gradcheck(bias_relu, (y, bias))
    assert torch.autograd.gradgradcheck(bias_relu, (y, bias))


def test_bias_and_relu_of_the_parts_of_a_map() -> None:
    maps, biases = maps_and_biases(3, 1, 2)
    whole = torch.cat(maps, 1).detach().requires_grad_()
    found = split_bias_relu(whole, *biases)
    for part, y, bias in zip(found, maps, biases, strict=True):
        assert torch.equal(part, plain(y, bias))
    assert torch.autograd.gradcheck(split_bias_relu, (whole, *biases))


def test_bias_and_relu_of_maps_that_are_joined_to_a_first_one() -> None:
    maps, biases = maps_and_biases(3, 1, 2)
    found = join_bias_relu(*maps, *biases[1:])
    expected = [maps[0], *(plain(y, bias) for y, bias in zip(maps[1:], biases[1:], strict=True))]
    assert torch.equal(found, torch.cat(expected, 1))
    assert torch.autograd.gradcheck(join_bias_relu, (*maps, *biases[1:]))


def test_a_convolution_with_relu_is_one_graph_and_torchs() -> None:
    torch._dynamo.reset()
    layer, x = ConvReLU(3, 4, 3), torch.randn(2, 3, 4, 5)
    nn.init.normal_(layer.conv.bias)  # zero at the start: one left out would not show
    expected = layer.conv(x).relu()
    torch.testing.assert_close(layer(x), expected)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
