"""Laws of every kernel: it gives what its formula gives, and gives way to it where it has to.

Run on a GPU, or in Triton's interpreter on the CPU (`interpreted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from kinspace import use_kernels
from kinspace._kernels import KERNELS
from kinspace.models import layers
from kinspace.models.googlenet import Inception

LAST = torch.channels_last
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHAPES = [(2, 5, 7, 9), (1, 16, 8, 8), (2, 70, 5, 3), (3, 1, 4, 4), (1, 3, 3, 3)]
PARTS = [(8, 16, 24), (3, 5, 1), (16, 70, 8)]  # with and without multiples of the kernel's unit


class Call(NamedTuple):
    """A call of a formula that its kernel takes."""

    inputs: list[Tensor]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


def halves(*shape: int) -> Tensor:
    """Multiples of 1/2 in channels-last: many are equal, and many sums with a bias exactly 0.

    And no sum of few is rounded: Triton's interpreter cuts off where a GPU rounds to bfloat16.
    """
    return (2 * torch.randn(shape)).round().div(2).contiguous(memory_format=LAST)


def biases(sizes: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    return [halves(1, size, 1, 1).flatten().to(dtype) for size in sizes]


def one_map(dtype: torch.dtype) -> Iterator[Call]:
    for shape in [*SHAPES, (1, 200, 2, 3), (2, 3, 1, 1)]:
        for of_bias in {torch.float32, dtype}:
            yield Call([halves(*shape).to(dtype), *biases(shape[1:2], of_bias)])


def parts_of_a_map(dtype: torch.dtype) -> Iterator[Call]:
    for sizes in PARTS:
        yield Call([halves(2, sum(sizes), 3, 5).to(dtype), *biases(sizes, torch.float32)])


def joined_maps(dtype: torch.dtype) -> Iterator[Call]:
    for sizes in PARTS:
        maps = [halves(2, size, 3, 5).to(dtype) for size in sizes]
        yield Call([*maps, *biases(sizes[1:], torch.float32)])


def pooled_maps(dtype: torch.dtype) -> Iterator[Call]:
    for shape, (stride, padding) in product(SHAPES, ((2, 0), (1, 1))):
        yield Call([halves(*shape).to(dtype)], {"stride": stride, "padding": padding})


def normalized_maps(dtype: torch.dtype) -> Iterator[Call]:
    windows = ({}, {"size": 3, "alpha": 0.5, "beta": 0.5, "k": 2.0}, {"size": 1, "alpha": 0.1})
    for shape, options in product([*SHAPES, (1, 2, 3, 3)], windows):
        yield Call([(10 * halves(*shape)).to(dtype)], options)


CALLS: dict[str, Callable[[torch.dtype], Iterator[Call]]] = {
    "bias_relu": one_map,
    "join_bias_relu": joined_maps,
    "local_response_norm": normalized_maps,
    "max_pool": pooled_maps,
    "split_bias_relu": parts_of_a_map,
}
EXACT = {"bias_relu", "join_bias_relu", "max_pool", "split_bias_relu"}  # but for sums of a bias


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


# --- calling -------------------------------------------------------------------------------------


@contextmanager
def counted(name: str) -> Iterator[dict[str, int]]:
    """How often the kernel computed a value and a gradient, known after this context."""
    kernel = import_module(KERNELS[name])
    counts: dict[str, int] = {}
    with (
        mock.patch.object(kernel, "forward", wraps=kernel.forward) as forward,
        mock.patch.object(kernel, "vjp", wraps=kernel.vjp) as vjp,
    ):
        yield counts
    counts |= {"forward": forward.call_count, "vjp": vjp.call_count}


@contextmanager
def small_tiles(device: str) -> Iterator[None]:
    """Tiles so small that even small maps take several of them, where kernels are interpreted."""
    kernel = import_module("kinspace._kernels.bias_relu")
    sizes = {"TILE": 256, "PROGRAMS": 5} if device == "cpu" else {"TILE": kernel.TILE}
    with mock.patch.multiple(kernel, **sizes):
        yield


def outputs_of(name: str, inputs: Sequence[Tensor], options: dict[str, Any]) -> list[Tensor]:
    found = getattr(layers, name)(*inputs, **options)
    return [found] if isinstance(found, Tensor) else list(found)


def leaves_of(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [each.detach().clone().requires_grad_() for each in inputs]


def same(name: str, found: Tensor, expected: Tensor, what: str) -> None:
    """A bias is added up in another order; a normalization rounds in each step."""
    assert found.dtype == expected.dtype, (name, what)
    assert found.shape == expected.shape, (name, what)
    if name in EXACT and expected.ndim == 4:
        assert torch.equal(found, expected), (name, what)
        return
    gap = (found.double() - expected.double()).norm()
    rounding = 4 * torch.finfo(expected.dtype).eps
    assert gap <= rounding * expected.double().norm() + 1e-6, (name, what, gap)


def calls_of(name: str, dtype: torch.dtype, device: str) -> Iterator[Call]:
    torch.manual_seed(0)
    for inputs, options in CALLS[name](dtype):
        yield Call([each.to(device) for each in inputs], options)


# --- laws ----------------------------------------------------------------------------------------


def check_values_and_gradients(name: str, dtype: str, device: str = "cpu") -> None:
    """Those of the kernel are those of the formula, however the gradient lies in memory."""
    with small_tiles(device):
        for number, (inputs, options) in enumerate(calls_of(name, DTYPES[dtype], device)):
            leaves = leaves_of(inputs)
            with use_kernels(False), counted(name) as counts:
                expected = outputs_of(name, leaves, options)
                grads = [halves(*each.shape).to(each) for each in expected]
                wanted = torch.autograd.grad(expected, leaves, grads)
            assert counts == {"forward": 0, "vjp": 0}
            for kind in list(layouts(grads[0]))[: None if number < 3 else 1]:
                given = [layouts(each)[kind] for each in grads]
                with counted(name) as counts:
                    found = outputs_of(name, leaves, options)
                    slopes = torch.autograd.grad(found, leaves, given)
                assert counts == {"forward": 1, "vjp": 1}, (name, inputs[0].shape)
                for one, other in zip(found, expected, strict=True):
                    same(name, one, other, f"value, {options}")
                    assert one.is_contiguous(memory_format=LAST)
                for one, other in zip(slopes, wanted, strict=True):
                    same(name, one, other, f"gradient, {kind}, {options}")


def second_derivatives(
    name: str, inputs: Sequence[Tensor], options: dict[str, Any], grads: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients with their graph, and the gradients of a sum of them."""
    leaves, pushed = leaves_of(inputs), [each.clone().requires_grad_() for each in grads]
    outputs = outputs_of(name, leaves, options)
    first = torch.autograd.grad(outputs, leaves, pushed, create_graph=True)
    torch.manual_seed(1)
    ways = [torch.randn(each.shape).mul(2).round().div(2).to(each) for each in first]
    found = torch.autograd.grad(first, [*leaves, *pushed], ways, allow_unused=True)
    second = [
        torch.zeros_like(leaf) if each is None else each
        for leaf, each in zip([*leaves, *pushed], found, strict=True)
    ]
    return [each.detach() for each in first], second


def check_second_derivatives(name: str, dtype: str, device: str = "cpu") -> None:
    """A gradient of the kernel can be differentiated, as that of the formula."""
    for inputs, options in calls_of(name, DTYPES[dtype], device):
        with use_kernels(False):
            grads = [halves(*each.shape).to(each) for each in outputs_of(name, inputs, options)]
            expected = second_derivatives(name, inputs, options, grads)
        with counted(name) as counts:
            found = second_derivatives(name, inputs, options, grads)
        assert counts["forward"] == 1
        for mine, wanted in zip(found, expected, strict=True):
            for one, other in zip(mine, wanted, strict=True):
                same(name, one, other, f"second derivative, {options}")


def check_no_graph(name: str, device: str = "cpu") -> None:
    """Without a graph, and with inputs of which only some are differentiated."""
    for inputs, options in calls_of(name, torch.float32, device):
        with use_kernels(False):
            expected = outputs_of(name, inputs, options)
        grads = [halves(*each.shape).to(each) for each in expected]
        for mode in (torch.no_grad, torch.inference_mode):
            with mode(), counted(name) as counts:
                found = outputs_of(name, inputs, options)
            assert counts == {"forward": 1, "vjp": 0}
            for one, other in zip(found, expected, strict=True):
                same(name, one, other, mode.__name__)
        for chosen in range(len(inputs)):
            results = []
            for enabled in (True, False):
                leaves = [each.clone() for each in inputs]
                leaves[chosen].requires_grad_()
                with use_kernels(enabled):
                    outputs = outputs_of(name, leaves, options)
                    used = [pair for pair in zip(outputs, grads, strict=True) if pair[0].grad_fn]
                    found = torch.autograd.grad(
                        [y for y, _ in used], leaves[chosen], [g for _, g in used]
                    )
                results += found
            same(name, *results, f"gradient by input {chosen} alone")


def check_fallbacks(name: str, device: str = "cpu") -> None:
    """Off, traced, transformed or in forward mode it is the formula that computes."""
    inputs, options = next(iter(calls_of(name, torch.float32, device)))
    function = getattr(layers, name)

    def total(*given: Tensor) -> Tensor:
        found = function(*given, **options)
        parts = [found] if isinstance(found, Tensor) else found
        return sum((each.square().sum() for each in parts), given[0].new_zeros(()))

    everything = tuple(range(len(inputs)))
    tangents = [torch.ones_like(each) for each in inputs]
    with use_kernels(False):
        expected = total(*inputs)
        slopes = torch.func.grad(total, argnums=everything)(*inputs)
        _, along = torch.func.jvp(total, tuple(inputs), tuple(tangents))

    def compiled() -> Tensor:
        torch._dynamo.reset()
        traced = torch.compile(total, fullgraph=True, backend="aot_eager")
        leaves = leaves_of(inputs)
        value = traced(*leaves)
        torch.testing.assert_close(torch.autograd.grad(value, leaves), slopes)
        return value.detach()

    def by_grad() -> Tensor:
        found, value = torch.func.grad_and_value(total, argnums=everything)(*inputs)
        torch.testing.assert_close(found, slopes)
        return value

    def by_vmap() -> Tensor:
        return torch.func.vmap(total)(*(each[None] for each in inputs))[0]

    def by_jvp() -> Tensor:
        value, found = torch.func.jvp(total, tuple(inputs), tuple(tangents))
        torch.testing.assert_close(found, along)
        return value

    def by_dual_numbers() -> Tensor:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(*pair) for pair in zip(inputs, tangents, strict=True)]
            value, found = forward_ad.unpack_dual(total(*duals))
        torch.testing.assert_close(found, along)
        return value

    with counted(name) as counts:
        total(*inputs)
    assert counts["forward"] == 1  # what is tried below does not come to the formula by itself
    for way in (compiled, by_grad, by_vmap, by_jvp, by_dual_numbers):
        with counted(name) as counts:
            torch.testing.assert_close(way(), expected)
        assert counts == {"forward": 0, "vjp": 0}, way.__name__
    with use_kernels(False), counted(name) as counts:
        torch.testing.assert_close(total(*inputs), expected)
    assert counts == {"forward": 0, "vjp": 0}


def check_other_maps(name: str, device: str = "cpu") -> None:
    """What the kernel does not take goes to the formula: another layout or dtype, no pixels."""
    inputs, options = next(iter(calls_of(name, torch.float32, device)))
    others = [
        ([each.contiguous() for each in inputs], options),
        ([each.double() for each in inputs], options),
        ([each[:0] if each.ndim == 4 else each for each in inputs], options),
    ]
    if name == "max_pool":
        others.pop()  # PyTorch's takes no empty map
    if name == "local_response_norm" and device == "cpu":  # where it takes all of these
        others = [(inputs, {"size": 4}), ([inputs[0][0]], {})]
    for given, asked in others:
        with counted(name) as counts:
            outputs_of(name, given, asked)
        assert counts == {"forward": 0, "vjp": 0}


def check_derivatives(name: str) -> None:
    """Values, gradients and second derivatives in every dtype."""
    for dtype in DTYPES:
        check_values_and_gradients(name, dtype)
        check_second_derivatives(name, dtype)


def check_ways(name: str) -> None:
    """With and without a graph, transformed, switched off, and on what the kernel does not take."""
    check_no_graph(name)
    check_fallbacks(name)
    check_other_maps(name)


def check_switched_off() -> None:
    """With KINSPACE_KERNELS=0 no kernel is used until it is asked for."""
    assert not use_kernels.enabled()
    for name in CALLS:
        inputs, options = next(iter(calls_of(name, torch.float32, "cpu")))
        with counted(name) as counts:
            outputs_of(name, inputs, options)
        assert counts["forward"] == 0, name
        with use_kernels(True), counted(name) as counts:
            outputs_of(name, inputs, options)
        assert counts["forward"] == 1, name


# --- not a number --------------------------------------------------------------------------------


def check_numbers_that_are_not_finite(device: str = "cpu") -> None:
    """NaN wins in a maximum and stays NaN behind a ReLU, as in PyTorch."""
    pixels = halves(2, 5, 7, 9).permute(0, 2, 3, 1).flatten()
    pixels[:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0])
    y = pixels.view(2, 7, 9, 5).permute(0, 3, 1, 2).to(device)
    (bias,) = biases([5], torch.float32)
    for name, given, options in (
        ("bias_relu", [y, bias.to(device)], {}),
        ("max_pool", [y], {"stride": 2}),
    ):
        with counted(name) as counts:
            found = outputs_of(name, given, options)[0]
        assert counts["forward"] == 1
        with use_kernels(False):
            expected = outputs_of(name, given, options)[0]
        assert expected.isnan().any()
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def relu_gradients(y: Tensor, bias: Tensor, grad: Tensor, graph: bool) -> list[Tensor]:
    leaves = leaves_of([y, bias])
    found = torch.autograd.grad(layers.bias_relu(*leaves), leaves, grad, create_graph=graph)
    return [each.detach() for each in found]


def check_gradients_that_are_not_finite(graph: str = "", device: str = "cpu") -> None:
    """Stopped where a ReLU gives 0, and passed on where it gives NaN, as in PyTorch."""
    y = torch.tensor([-1.0, -1.0, 1.0, torch.nan]).view(1, 1, 2, 2).to(device)
    y = y.contiguous(memory_format=LAST)
    grad = torch.tensor([torch.nan, torch.inf, 3.0, 5.0]).view(1, 1, 2, 2).to(device)
    bias = torch.zeros(1, device=device)
    with counted("bias_relu") as counts:
        found = relu_gradients(y, bias, grad, bool(graph))
    assert counts == {"forward": 1, "vjp": 0 if graph else 1}
    with use_kernels(False):
        expected = relu_gradients(y, bias, grad, bool(graph))
    assert expected[0].flatten().tolist() == [0, 0, 3, 5]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


# --- a block of GoogLeNet ------------------------------------------------------------------------


def with_biases(net: nn.Module) -> nn.Module:
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):  # zero at the start: one left out would not show
            nn.init.normal_(parameter, std=0.1)
    return net.to(memory_format=LAST)  # type: ignore[call-overload,no-any-return]


def results(net: nn.Module, x: Tensor, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
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


def check_a_block() -> None:
    """All kernels together, with parts of the net frozen, twice the same, and under autocast."""
    torch.manual_seed(0)
    block, x = with_biases(Inception(8, 5, (6, 7), (3, 4), 9)), halves(2, 8, 6, 5)
    for frozen in ("none", "bias", "weight", "branch2"):
        for name, parameter in block.named_parameters():
            parameter.requires_grad_(frozen not in name)
        with use_kernels(False):
            wanted = results(block, x)
        found, again = results(block, x), results(block, x)
        assert max(gaps(found, wanted).values()) < 1e-6, frozen
        assert all(torch.equal(found[key], again[key]) for key in found)
    half = results(block.requires_grad_(), x, torch.bfloat16)
    assert half["branch1.conv.bias"].dtype == torch.float32
    assert max(gaps(half, results(block, x)).values()) < 0.1


def check_a_result_that_is_changed() -> None:
    """The backward pass needs what was there, and says so."""
    y = halves(2, 3, 4, 5).requires_grad_()
    value = layers.bias_relu(y, torch.zeros(3))
    value.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()
