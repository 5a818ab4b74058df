"""Learners: groups of dimensions, and the losses on them with sizes of one's own."""

import pytest
import torch
from torch import Tensor

import loops
from batches import random_batch
from kinspace.learners import group_sizes, unit_groups
from kinspace.losses import BIER, HDC, bier_loss, hdc_loss
from kinspace.regularizers import Divergence, divergence

SIZES = (1, 3, 2)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 19])
@pytest.mark.parametrize("groups", [1, 2, 3, 8])
def test_a_number_deals_the_dimensions_out_evenly(groups: int, dim: int) -> None:
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


def test_learners_of_sizes_of_ones_own_agree_with_the_loops() -> None:
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


def test_boosting_looks_away_from_what_the_learners_before_get_right() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    right = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    wrong = right[[0, 2, 1, 3]]
    second = {}  # what the wrong second learner costs, after each first one
    for name, first in (("right", right), ("wrong", wrong)):
        alone = bier_loss(first, labels, groups=1) / 2
        second[name] = bier_loss(torch.cat([first, wrong], 1), labels, groups=2) - alone
    assert 0 < 10 * second["right"] < second["wrong"]


def test_a_cascade_passes_on_the_hardest_share_of_the_pairs() -> None:
    """Of six different pairs one fifth is one, for the first learner the nearest two samples."""
    angles = torch.tensor([0.0, 0.1, 0.5, 1.2], dtype=torch.float64)
    first = torch.stack([angles.cos(), angles.sin()], 1)
    second = torch.tensor([[1.0, 0.2], [1.0, 0.3], [1.0, 0.5], [1.0, 0.9]], dtype=torch.float64)
    x = torch.cat([first, second], 1).requires_grad_()
    hdc_loss(x, torch.arange(4), groups=2, shares=(1.0, 0.2)).backward()
    assert x.grad is not None
    assert x.grad[:, :2].any(1).all()
    assert x.grad[:, 2:].any(1).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "shares", [(1.0, 0.5), (0.5, 0.4, 0.3), (1.0, 0.2, 0.5), (1.0, 0.5, 0.0), 0.5, (1.0, 0.5, None)]
)
def test_wrong_shares_are_named(shares: object) -> None:
    with pytest.raises(ValueError, match=r"^shares: expected"):
        HDC(shares=shares)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [BIER, HDC, Divergence])
@pytest.mark.parametrize("groups", [0, -1, True, 2.0, "3", [], [2, 0, 1], [1.0, 2, 3]])
def test_wrong_groups_are_named(module: type, groups: object) -> None:
    with pytest.raises(ValueError, match=r"^groups: expected"):
        module(groups=groups)
