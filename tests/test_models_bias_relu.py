"""Bias and ReLU in one kernel each way; without a GPU in Triton's interpreter."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from interpreted import call_interpreted
from kinspace.models import GoogLeNet, bias_relu, kernels
from kinspace.models.googlenet import ConvReLU, Inception

SHAPES = [(2, 5, 7, 9), (1, 16, 8, 8), (2, 70, 5, 3), (1, 200, 2, 3), (3, 1, 4, 4), (2, 3, 1, 1)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LAST = torch.channels_last
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def halves(*shape: int) -> Tensor:
    """Multiples of 1/2 in channels-last: many sums with a bias of such are exactly zero.

    And no sum is rounded: Triton's interpreter cuts off where a GPU rounds to bfloat16.
    """
    return (2 * torch.randn(shape)).round().div(2).contiguous(memory_format=LAST)


def layouts(grad: Tensor) -> dict[str, Tensor]:
    """The same values, lying in memory in different ways."""
    batch, channels, height, width = grad.shape
    part = torch.empty(batch, channels + 7, height, width).to(grad).contiguous(memory_format=LAST)
    spread = torch.empty(batch, 2 * channels, height, width).to(part).contiguous(memory_format=LAST)
    wide = torch.empty(batch, channels, height, width + 2).to(part).contiguous(memory_format=LAST)
    part, spread, wide = part[:, 3:-4], spread[:, ::2], wide[..., 1:-1]
    for view in (part, spread, wide):
        view.copy_(grad)
    return {
        "channels-last": grad.contiguous(memory_format=LAST),
        "a part of a concatenation": part,
        "channels-first": grad.contiguous(),
        "every second channel": spread,
        "a window": wide,
    }


def compare_one_map() -> None:
    bias_relu.TILE, bias_relu.PROGRAMS = 256, 5  # several tiles a program
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 0])
    for shape, dtype in product(SHAPES, DTYPES):
        for bias_dtype in {torch.float32, dtype}:
            bias = halves(1, shape[1], 1, 1).flatten().to(bias_dtype).requires_grad_()
            y = halves(*shape).to(dtype)
            y.permute(0, 2, 3, 1).view(-1)[:4] = odd
            want = (y.float() + bias.detach().float().view(-1, 1, 1)).to(dtype).relu()
            grad = torch.randn(shape).to(dtype)
            grad[want == 0] = torch.nan  # stopped there
            slope = torch.ops.aten.threshold_backward(grad, want, 0)
            total = slope.float().sum((0, 2, 3)).to(bias_dtype)
            for name, given in layouts(grad).items():
                leaf = y.clone(memory_format=torch.preserve_format).requires_grad_()
                got = bias_relu._BiasReLU.apply(leaf.clone(), bias)
                by_map, by_bias = torch.autograd.grad(got, [leaf, bias], given)
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
                assert torch.equal(by_map, slope), name
                assert by_map.is_contiguous(memory_format=LAST)
                rounding = 2 * torch.finfo(bias_dtype).eps
                torch.testing.assert_close(by_bias, total, rtol=rounding, atol=1e-5)


def plain(self: ConvReLU, x: Tensor) -> Tensor:
    return self.conv(x).relu_()  # type: ignore[no-any-return]


def plain_block(self: Inception, x: Tensor) -> Tensor:
    branches = (self.branch1, self.branch2, self.branch3, self.branch4)
    return torch.cat([branch(x) for branch in branches], 1)


def compare_parts() -> None:
    """Maps of several branches, together and apart; with and without multiples of the unit."""
    bias_relu.TILE, bias_relu.PROGRAMS = 256, 5
    for sizes, dtype in product([(8, 16, 24), (3, 5, 1), (16, 70, 8)], DTYPES):
        whole = halves(2, sum(sizes), 3, 5).to(dtype).requires_grad_()
        biases = [halves(1, size, 1, 1).flatten().requires_grad_() for size in sizes]
        grads = [torch.randn(2, size, 3, 5).to(dtype) for size in sizes]
        want = bias_relu.split_bias_relu(whole, biases)  # not ready: through PyTorch
        found = bias_relu._Split.apply(whole, *biases)
        for one, other in zip(found, want, strict=True):
            assert torch.equal(one, other.to(dtype))
            assert one.is_contiguous(memory_format=LAST)
        compare_slopes(found, want, [whole, *biases], grads, dtype)
        maps = [halves(2, size, 3, 5).to(dtype).requires_grad_() for size in sizes]
        want = [bias_relu.join_bias_relu(maps[0], maps[1:], biases[1:])]
        found = [bias_relu._Join.apply(*maps, *biases[1:])]
        assert torch.equal(found[0], want[0].to(dtype))
        assert found[0].is_contiguous(memory_format=LAST)
        compare_slopes(found, want, [*maps, *biases[1:]], [torch.cat(grads, 1)], dtype)


def compare_slopes(
    found: Any, want: Any, leaves: list[Tensor], grads: list[Tensor], dtype: torch.dtype
) -> None:
    mine = torch.autograd.grad(found, leaves, grads)
    grads = [grad.to(value.dtype) for grad, value in zip(grads, want, strict=True)]
    true = torch.autograd.grad(want, leaves, grads)
    for one, other in zip(mine, true, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=4 * torch.finfo(dtype).eps, atol=1e-5)


def with_biases(net: torch.nn.Module) -> torch.nn.Module:
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):  # zero at the start: one left out would not show
            torch.nn.init.normal_(parameter, std=0.1)
    return net.to(memory_format=LAST)  # type: ignore[call-overload,no-any-return]


def results(
    net: torch.nn.Module, x: Tensor, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """The value, of dtype under autocast, and every gradient of half its squared norm."""
    net.zero_grad()
    with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
        value = net(x)
    assert value.dtype == dtype
    value.backward(value.detach())  # in channels-last, unlike the slope of a mean
    found = {"value": value.detach()} | {key: p.grad for key, p in net.named_parameters()}
    return {key: tensor for key, tensor in found.items() if tensor is not None}


def gaps(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, float]:
    """How far each lies from what is wanted, relative to its norm."""
    assert found.keys() == wanted.keys()
    return {
        key: ((found[key].double() - true.double()).norm() / true.double().norm()).item()
        for key, true in wanted.items()
    }


def compare_a_block() -> None:
    ready = mock.patch.object(kernels, "ready", lambda x: x.is_contiguous(memory_format=LAST))
    block, x = with_biases(Inception(8, 5, (6, 7), (3, 4), 9)), halves(2, 8, 6, 5)
    for frozen in ("none", "bias", "weight", "branch2"):
        for name, parameter in block.named_parameters():
            parameter.requires_grad_(frozen not in name)
        wanted = results(block, x)
        branches = mock.patch.object(Inception, "forward", plain_block)
        with ready, branches, mock.patch.object(ConvReLU, "forward", plain):
            middle = results(block, x)  # pooling by the kernel alone
        with ready:
            found = results(block, x)
            again = results(block, x)
        assert max(gaps(found, wanted).values()) < 1e-6, frozen
        assert max(gaps(found, middle).values()) < 1e-6, frozen
        assert all(torch.equal(found[key], again[key]) for key in found)
    with ready:
        with torch.no_grad():
            torch.testing.assert_close(block(x), wanted["value"])
        with torch.inference_mode():
            torch.testing.assert_close(block(x), wanted["value"])
        half = results(block.requires_grad_(), x, torch.bfloat16)
        assert half["branch1.conv.bias"].dtype == torch.float32
        assert max(gaps(half, results(block, x)).values()) < 0.1
        value = block.branch1(x)
        value.mul_(2)  # the backward pass needs what was there
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.sum().backward()


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("compare_one_map", marks=pytest.mark.slow),
        "compare_parts",
        "compare_a_block",
    ],
)
def test_interpreted_kernels_give_what_torch_gives(what: str) -> None:
    call_interpreted("test_models_bias_relu", what)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_copied_only_where_channels_do_not_lie_side_by_side(
    shape: tuple[int, ...],
) -> None:
    grad = torch.randn(shape)
    for name, given in layouts(grad).items():
        pixels = bias_relu._by_pixel(given)
        assert torch.equal(pixels, grad.permute(0, 2, 3, 1).flatten(0, 2))
        assert pixels.stride(1) == 1 or shape[1] == 1
        if name in ("channels-last", "a part of a concatenation"):
            assert pixels.data_ptr() == given.data_ptr()


def test_maps_on_a_cpu_go_through_torch() -> None:
    y, bias = halves(2, 3, 4, 5).double(), torch.randn(3, dtype=torch.float64)
    want = (y + bias.view(-1, 1, 1)).relu()
    assert torch.equal(bias_relu.bias_relu(y.clone(), bias), want)
    layer, x = with_biases(ConvReLU(3, 4, 3)).double(), y
    assert torch.equal(layer(x), plain(layer, x))
    assert torch.autograd.gradcheck(
        lambda x, *parameters: torch.func.functional_call(
            layer, dict(zip(("conv.weight", "conv.bias"), parameters, strict=True)), x
        ),
        (x.requires_grad_(), *layer.parameters()),
    )


def test_a_layer_compiles_into_one_graph() -> None:
    torch._dynamo.reset()
    layer, x = with_biases(ConvReLU(3, 4, 3)), halves(2, 3, 4, 5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))


@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (4, 64, 57, 57), (3, 208, 14, 14)])
def test_maps_on_a_gpu_give_what_torch_gives(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    y = torch.randn(shape).contiguous(memory_format=LAST).to("cuda", dtype).requires_grad_()
    bias = torch.randn(shape[1], device="cuda", requires_grad=True)
    want = (y.float() + bias.view(-1, 1, 1)).to(dtype).relu()
    grad = torch.randn(shape).to(want)
    by_map, _ = torch.autograd.grad(want, [y, bias], grad)
    by_bias = by_map.double().sum((0, 2, 3))
    for given in layouts(grad).values():
        fresh = y.clone()
        assert kernels.ready(fresh)
        got = bias_relu.bias_relu(fresh, bias)
        assert got.data_ptr() == fresh.data_ptr()
        found = torch.autograd.grad(got, [y, bias], given)
        assert torch.equal(got, want)
        assert torch.equal(found[0], by_map)
        assert (found[1].double() - by_bias).norm() < 1e-5 * by_bias.norm()


@needs_gpu
def test_a_whole_net_on_a_gpu_gives_what_torch_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    net = with_biases(GoogLeNet()).cuda()
    x = torch.randn(8, 3, 96, 96).contiguous(memory_format=LAST).cuda()
    fused, fused_half = results(net, x), results(net, x, torch.bfloat16)
    monkeypatch.setattr(ConvReLU, "forward", plain)
    monkeypatch.setattr(Inception, "forward", plain_block)
    exact, plain_half = results(net, x), results(net, x, torch.bfloat16)
    assert max(gaps(fused, exact).values()) < 1e-4
    # rounding turns some ReLUs over: the gradients of first layers are some percent off, either way
    mine, theirs = gaps(fused_half, exact), gaps(plain_half, exact)
    assert mine["value"] < 0.03
    assert sum(mine.values()) < 1.25 * sum(theirs.values())


@needs_gpu
def test_a_layer_can_be_captured_into_a_graph() -> None:
    layer = with_biases(ConvReLU(16, 24, 3)).cuda()
    x = halves(4, 16, 9, 9).cuda()

    def step() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", torch.bfloat16):
            value = layer(x)
        slopes = torch.autograd.grad(value.float().square().sum(), list(layer.parameters()))
        return value.detach(), *slopes  # a graph kept alive would bind the next to its stream

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are compiled before the capture
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    x.copy_(halves(4, 16, 9, 9))
    graph.replay()
    for found, wanted in zip(captured, step(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
