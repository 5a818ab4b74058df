"""The GPU kernel of distance-weighted sampling; without a GPU in Triton's interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from torch import Tensor

from gradients import disagreement, evaluate
from interpreted import call_interpreted
from kinspace.losses import Margin
from kinspace.miners import distance_weighted_kernel as kernel
from kinspace.miners.distance_weighted import _weights, beside_negatives
from kinspace.numerics import unit
from kinspace.pairs import class_table

BY_KERNEL = mock.patch.object(kernel, "ready", return_value=True)
DEFAULTS = (0.5, 1.4)


def blocks(size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Class after class: whole tiles are of one."""
    return torch.randn(size, dim), torch.arange(size) * 3 // size


def unequal(size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Each class about half of what the ones before have left, in any order; the last has one."""
    labels = (torch.arange(size) + 1).double().log2().long()
    return torch.randn(size, dim), labels[torch.randperm(size)]


def odd(size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Rows of zeros, identical rows, and opposite ones; classes of four."""
    x = torch.randn(size, dim)
    x[0] = x[-1] = 0
    x[size // 2] = x[3]
    x[[1, 2, 4]] = 2 * torch.eye(dim)[0]  # whose products are exact
    x[[6, -2]] = -x[1]
    return x, torch.arange(size) // 4


def far(size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Two classes, each close around a pole: of no sample is a negative near."""
    x, labels = 0.01 * torch.randn(size, dim), torch.arange(size) % 2
    x[:, 0] += 1 - 2.0 * labels
    return x, labels


# samples, dimensions, cutoffs
CASES: list[tuple[Callable[[int, int], tuple[Tensor, Tensor]], int, int, tuple[float, float]]] = [
    (unequal, 13, 3, DEFAULTS),
    (unequal, 40, 16, DEFAULTS),
    (blocks, 33, 8, DEFAULTS),
    (blocks, 16, 2, (0.2, 1.1)),
    (odd, 27, 4, (0.1, 3.0)),
    (odd, 17, 1, DEFAULTS),
    (odd, 18, 5, (2.5, 1e30)),
    (far, 21, 3, DEFAULTS),
]


def compare(device: str = "cpu", times: int = 1, within: float = 1e-5, every: int = 1) -> None:
    """The kernel draws what PyTorch draws by the same numbers, but for rounding."""
    for number, (make, size, dim, cutoffs) in enumerate(CASES[::every]):
        torch.manual_seed(number)
        x, labels = (each.to(device) for each in make(times * size, dim))
        x, index = unit(x), class_table(labels)[0]
        # about where one negative's draws end, and those of the next begin
        edges = _weights(x, index, *cutoffs).cumsum(1).gather(1, torch.randint_like(index, len(x)))
        draws = (edges + 4 * within * (torch.rand_like(edges) - 0.5)).clamp_(0, 1)
        draws[::5, 0], draws[1::5, 0] = 0, 1
        with mock.patch("torch.rand", side_effect=lambda *_, draws=draws, **__: draws.clone()):
            expected = beside_negatives(x, index, None, cutoffs)
            with BY_KERNEL:
                found = beside_negatives(x, index, None, cutoffs)
        name = make.__name__, len(x), dim, cutoffs
        assert found.eq(expected).double().mean() > 0.99, name
        assert found[:, : index.shape[1]].equal(index), name
        check(found[:, index.shape[1] :], x, labels, draws, cutoffs, within)


def check(
    negative: Tensor,
    x: Tensor,
    labels: Tensor,
    draws: Tensor,
    cutoffs: tuple[float, float],
    within: float,
) -> None:
    """The draws lie at the weights of the negatives, none of which is of the anchor's class."""
    assert labels[negative].ne(labels[:, None]).all()
    weights = _weights(x, class_table(labels)[0], *cutoffs).double()
    after = weights.cumsum(1).gather(1, negative)
    before = after - weights.gather(1, negative)
    assert (before - within <= draws).all()
    assert (draws <= after + within).all()


def compare_in_small_tiles(every: int = 1) -> None:
    """Several tiles of most rows, and several of their draws."""
    with mock.patch.multiple(kernel, BLOCK=16, WIDE=8):
        compare(every=every)


def weights_that_are_no_numbers() -> None:
    """Some negative of the batch is drawn, whatever the weights are."""
    torch.manual_seed(0)
    x, labels = unequal(9, 6)
    index = class_table(labels)[0]
    draws = torch.rand(index.shape)
    for row, cutoff in ((slice(3, 4), 0.5), (slice(None), 0.5), (slice(0), 1e-30)):
        broken = unit(x)
        broken[row] = math.nan
        broken[7] = broken[8]  # at distance 0, where a cutoff so small makes no weight finite
        negative = kernel.beside_negatives(broken, index, draws, (cutoff, 1.4))[:, index.shape[1] :]
        assert 0 <= negative.min() <= negative.max() < len(x)


def compare_losses(device: str = "cpu") -> None:
    torch.manual_seed(0)
    x, labels = (each.to(device) for each in unequal(20, 8))
    arguments = {"embeddings": x, "labels": labels}
    expected = evaluate(Margin(8).to(device), arguments, dtype=torch.float32)
    with BY_KERNEL:
        found = evaluate(Margin(8).to(device), arguments, dtype=torch.float32)
    assert disagreement(found, expected) is None


def compare_some() -> None:
    compare_in_small_tiles(every=4)
    weights_that_are_no_numbers()
    compare_losses()


@pytest.mark.parametrize(
    "what",
    [
        "compare_some",
        pytest.param("compare", marks=pytest.mark.slow),
        pytest.param("compare_in_small_tiles", marks=pytest.mark.slow),
    ],
)
def test_the_interpreted_kernel_draws_what_torch_draws(what: str) -> None:
    call_interpreted("test_distance_weighted_kernel", what)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("times", "within"), [(1, 1e-5), (120, 1e-3)])  # nearly opposite rows
def test_the_kernel_on_a_gpu_draws_what_torch_draws(times: int, within: float) -> None:
    compare("cuda", times, within)
    compare_losses("cuda")


def test_the_kernel_is_for_gpus_alone() -> None:
    assert not kernel.ready(torch.zeros(3, 2))
