"""The GPU kernels of pooling and normalization; without a GPU in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from interpreted import call_interpreted
from kinspace.models import kernels
from kinspace.models.lrn import local_response_norm
from kinspace.models.max_pool import MaxPool, _rounded_up

SHAPES = [(2, 5, 7, 9), (1, 16, 8, 8), (2, 3, 4, 5), (1, 3, 3, 3)]


def spread_out(*shape: int) -> torch.Tensor:
    """Values with many ties, in channels-last."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return x.round(decimals=1).relu().contiguous(memory_format=torch.channels_last)


def compare_pooling() -> None:
    for shape in SHAPES:
        for stride, padding in ((2, 0), (1, 1)):
            x = spread_out(*shape).requires_grad_()
            want = functional.max_pool2d(x, 3, stride, padding, ceil_mode=True)
            grad = torch.randn_like(want)
            want.backward(grad)
            size = (want.shape[2], want.shape[3])
            got, place = kernels.max_pool_forward(x.detach(), size, stride, padding)
            back = kernels.max_pool_backward(grad, place, x.shape, stride, padding)
            assert torch.equal(got, want)
            torch.testing.assert_close(back, x.grad, rtol=0, atol=1e-5)
    nan = torch.full((1, 1, 3, 3), 2.0).contiguous(memory_format=torch.channels_last)
    nan[0, 0, 1, 1] = torch.nan
    assert kernels.max_pool_forward(nan, (1, 1), 2, 0)[0].isnan().all()


def compare_normalization() -> None:
    for shape in [*SHAPES, (1, 1, 2, 2), (1, 2, 3, 3)]:
        for size, alpha, beta, k in ((5, 1e-4, 0.75, 1.0), (3, 0.5, 0.5, 2.0)):
            x = (30 * spread_out(*shape)).requires_grad_()
            want = functional.local_response_norm(x, size, alpha, beta, k)
            grad = torch.randn_like(want)
            want.backward(grad)
            got = kernels.lrn_forward(x.detach(), size, alpha, beta, k)
            back = kernels.lrn_backward(x.detach(), grad, size, alpha, beta, k)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(back, x.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", ["compare_pooling", "compare_normalization"])
def test_interpreted_kernels_give_what_torch_gives(what: str) -> None:
    call_interpreted("test_models_kernels", what)


@pytest.mark.parametrize(("stride", "padding"), [(2, 0), (1, 1)])
def test_sizes_round_up_as_torch_rounds_them(stride: int, padding: int) -> None:
    for length in range(3, 40):
        want = MaxPool(stride, padding)(torch.zeros(1, 1, length, length)).shape[2]
        assert _rounded_up(length, stride, padding) == want


def test_maps_on_a_cpu_go_through_torch() -> None:
    assert not kernels.ready(spread_out(1, 2, 4, 4))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (4, 64, 57, 57), (2, 480, 29, 29)])
def test_maps_on_a_gpu_give_what_torch_gives(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = spread_out(*shape).to("cuda", dtype).requires_grad_()
    other = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    assert kernels.ready(x)
    for stride, padding in ((2, 0), (1, 1)):
        got = MaxPool(stride, padding)(x)
        want = functional.max_pool2d(other, 3, stride, padding, ceil_mode=True)
        assert torch.equal(got, want)
        grad = torch.randn_like(want)
        got.backward(grad)
        want.backward(grad)
        # torch adds up to nine slopes in the map's own precision
        torch.testing.assert_close(x.grad, other.grad, rtol=0.05, atol=20 * torch.finfo(dtype).eps)
        x.grad = other.grad = None
    exact = other.detach().double().requires_grad_()
    got, want = local_response_norm(x, alpha=0.1), local_response_norm(exact, alpha=0.1)
    got.backward(grad := torch.randn_like(got))
    want.backward(grad.double())
    assert x.grad is not None
    assert exact.grad is not None
    for mine, true in ((got, want), (x.grad, exact.grad)):
        assert (mine.double() - true).norm() < 4 * torch.finfo(dtype).eps * true.norm()
