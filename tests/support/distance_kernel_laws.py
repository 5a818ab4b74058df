"""Laws of the kernel of squared distances. Run on a GPU, or in Triton's interpreter on the CPU."""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch
from torch import Tensor

from kinspace import use_kernels
from kinspace._core.vectors import squared_distance_table, squared_distances
from kinspace._kernels import squared_distance_table as kernel

# rows of both sets (None: one set) and dimensions, around the sizes of a tile
SHAPES = [(40, None, 70), (33, 50, 5), (1, 3, 17), (64, None, 16), (31, 65, 33)]


def sets(rows: int, columns: int | None, dim: int, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    sizes = [rows] if columns is None else [rows, columns]
    made = [torch.randn(size, dim, generator=generator).to(device) for size in sizes]
    if rows > 2:
        made[0][1] = made[0][0]  # a distance of 0
        made[0][2] = made[0][0] + 1e-4  # and a close pair far from the others
    return [each.requires_grad_() for each in made]


def table(given: list[Tensor]) -> Tensor:
    return squared_distance_table(given[0], given[-1], own=len(given) == 1)


def check_values_and_gradients(device: str = "cpu") -> None:
    """Those of the loop over differences in float64, however the gradient lies in memory."""
    for shape in SHAPES:
        given = sets(*shape, device)
        exact = [each.detach().double().requires_grad_() for each in given]
        expected = (exact[0][:, None] - exact[-1]).square().sum(2)
        grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0)).to(device)
        wanted = torch.autograd.grad(expected, exact, grad.double())
        found = table(given)
        assert found.grad_fn is not None
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
        for pushed in (grad, grad.T.contiguous().T):
            slopes = torch.autograd.grad(found, given, pushed, retain_graph=True)
            for slope, want in zip(slopes, wanted, strict=True):
                torch.testing.assert_close(slope.double(), want, rtol=1e-5, atol=1e-4)


def check_second_derivatives(device: str = "cpu") -> None:
    """Its gradient can be differentiated, and gives what the formula's gives."""
    for shape in SHAPES:
        given = sets(*shape, device)

        def twice(given: list[Tensor] = given) -> list[Tensor]:
            value = table(given).div(-100).exp().sum()
            first = torch.autograd.grad(value, given, create_graph=True)
            return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), given)]

        found = twice()
        with use_kernels(False):
            expected = twice()
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def check_ways(device: str = "cpu") -> None:
    """Used where it can be; switched off, transformed, large or in float64 the formula computes."""
    (x,) = sets(40, None, 70, device)
    with mock.patch.object(kernel, "forward", wraps=kernel.forward) as forward:
        expected = squared_distances(x)
        assert forward.call_count == 1
        with use_kernels(False):
            torch.testing.assert_close(squared_distances(x), expected, rtol=1e-3, atol=1e-4)
        torch.func.grad(lambda y: squared_distances(y).sum())(x.detach())
        squared_distances(x.double())
        with mock.patch.object(kernel, "WORK", 40 * 40 * 70 - 1):
            squared_distances(x)
        assert forward.call_count == 1


def check_numbers_that_are_not_finite(device: str = "cpu") -> None:
    """The diagonal stays 0; what is not finite shows elsewhere."""
    x = torch.zeros(40, 70, device=device)
    x[3, 5] = torch.inf
    with np.errstate(invalid="ignore"):  # of the interpreter
        found = squared_distance_table(x, x, own=True)
    assert torch.equal(found.diagonal().cpu(), torch.zeros(40))
    assert found[3, 4].isinf()
