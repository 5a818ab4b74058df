"""Groups of dimensions, each an embedding of its own, and the losses on groups of given sizes."""

import pytest
import torch
from torch import Tensor

import loops
from batches import random_batch
from kinspace._core.subembeddings import group_sizes, unit_groups
from kinspace.losses import BIER, HDC, bier_loss, hdc_loss
from kinspace.regularizers import Divergence, divergence

SIZES = (1, 3, 2)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 19])
@pytest.mark.parametrize("groups", [1, 2, 3, 8])
def test_a_number_shares_the_dimensions_out_evenly(groups: int, dim: int) -> None:
    sizes = group_sizes(groups, dim)
    assert sum(sizes) == dim
    assert len(sizes) == min(groups, dim)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_a_zero_group_stays_zero_with_a_finite_gradient() -> None:
    x = torch.tensor([[0.0, 0.0, 3.0], [1.0, 0.0, 0.0]], requires_grad=True)
    found = unit_groups(x, [2, 1])
    found.sum().backward()
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, half], [half, 0.0, 0.0]]))
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_losses_on_groups_of_given_sizes_agree_with_the_loops() -> None:
    x, labels = random_batch(4, classes=4, per_class=4, dim=6)
    found: list[tuple[Tensor, Tensor, Tensor]] = [
        (
            bier_loss(x, labels, groups=SIZES),
            BIER(groups=SIZES)(x, labels),
            loops.bier_loss(x, labels, groups=SIZES),
        ),
        (
            hdc_loss(x, labels, groups=SIZES),
            HDC(groups=SIZES)(x, labels),
            loops.hdc_loss(x, labels, groups=SIZES),
        ),
        (
            divergence(x, groups=SIZES),
            Divergence(groups=SIZES)(x, labels),
            loops.divergence(x, groups=SIZES),
        ),
    ]
    for by_function, by_module, expected in found:
        assert torch.equal(by_module, by_function)
        torch.testing.assert_close(by_function, expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("module", [BIER, HDC, Divergence])
@pytest.mark.parametrize("groups", [0, -1, True, 2.0, "3", [], [2, 0, 1], [1.0, 2, 3]])
def test_wrong_groups_are_named(module: type, groups: object) -> None:
    with pytest.raises(ValueError, match=r"^groups: expected"):
        module(groups=groups)
