"""HDC's GPU kernel; without a GPU in Triton's interpreter."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from gradients import disagreement, evaluate
from interpreted import call_interpreted
from kinspace.losses import hdc, hdc_loss

SLOW = pytest.mark.slow
# dimensions, learners, shares, samples a class, margin
CASES = [
    (10, 3, (1.0, 0.5, 0.2), 4, 1.0),
    (10, 4, (1.0, 1.0, 0.9, 0.1), 13, 3.0),
    (9, 1, (1.0,), 3, 1.0),
    (2, 3, (1.0, 0.5, 0.2), 3, 3.0),  # two learners: there are no more dimensions
    (4, 2, (1.0, 0.5), 1, 3.0),
    (4, 2, (1.0, 0.5), 1000, 1.0),
]


def compare_kernel(
    device: str = "cpu", size: int = 14, times: int = 1, some: int = len(CASES)
) -> None:
    """Value and gradient by the kernel in float32, and by PyTorch in float64."""
    programs = 1
    if device == "cuda":
        programs = torch.cuda.get_device_properties(device).multi_processor_count
    for dim, groups, shares, per_class, margin in CASES[:some]:
        torch.manual_seed(size)
        x = torch.randn(size, dim * times, device=device)
        x[0], x[1] = 0, x[2]
        arguments = {"embeddings": x, "labels": torch.arange(size, device=device) // per_class}
        options = {"groups": groups, "shares": shares, "margin": margin}
        expected = evaluate(hdc_loss, arguments, options)
        with mock.patch.object(hdc, "_programs", return_value=programs):
            found = evaluate(hdc_loss, arguments, options, dtype=torch.float32)
        problem = disagreement(found, expected, value=1e-5, gradient=1e-4, gradient_floor=1e-6)
        assert problem is None, (problem, size, per_class, options)


def compare_two() -> None:
    compare_kernel(some=2)


@pytest.mark.parametrize("what", ["compare_two", pytest.param("compare_kernel", marks=SLOW)])
def test_the_interpreted_kernel_gives_what_torch_gives(what: str) -> None:
    call_interpreted("test_hdc", what)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("size", [7, 40, 600])
@pytest.mark.parametrize("times", [1, 50])
def test_the_kernel_on_a_gpu_gives_what_torch_gives(size: int, times: int) -> None:
    compare_kernel("cuda", size, times)
