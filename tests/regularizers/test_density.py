"""Density adaptivity: the targets it learns and the densities before training."""

import pytest
import torch

from batches import NUM_CLASSES, Batch, varied_batch
from gradients import identical
from kinspace.regularizers import DensityAdaptivity, density


def test_density_learns_its_targets_and_not_the_originals() -> None:
    original = torch.linspace(0.5, 2.0, NUM_CLASSES)
    module = DensityAdaptivity(NUM_CLASSES, original)
    batch = Batch(varied_batch(0).embeddings.float(), varied_batch(0).labels)
    loss = module(*batch)
    identical(loss, density(*batch, torch.full((NUM_CLASSES,), 0.5), original))
    loss.backward()
    assert [name for name, _ in module.named_parameters()] == ["targets"]
    assert module.targets.grad is not None
    assert module.targets.grad.ne(0).any()
    original += 1.0  # the module holds a copy
    assert module.original is not None
    assert module.original[0] == 0.5


def test_relative_originals_have_mean_one() -> None:
    original = torch.linspace(1.0, 4.0, NUM_CLASSES)
    module = DensityAdaptivity(NUM_CLASSES, original, relative=True)
    assert module.original is not None
    torch.testing.assert_close(module.original, original / original.mean())


def test_density_without_originals_is_the_minus_variant() -> None:
    module = DensityAdaptivity(NUM_CLASSES, start=0.7)
    batch = Batch(varied_batch(0).embeddings.float(), varied_batch(0).labels)
    identical(module(*batch).detach(), density(*batch, torch.full((NUM_CLASSES,), 0.7)))
    assert set(module.state_dict()) == {"targets"}


def test_the_ratios_can_be_left_out_where_there_are_originals() -> None:
    module = DensityAdaptivity(NUM_CLASSES, torch.linspace(0.5, 2.0, NUM_CLASSES), ratios=False)
    assert set(module.state_dict()) == {"targets"}


@pytest.mark.parametrize("wrong", [-0.1, float("nan")])
def test_an_original_density_is_zero_or_more(wrong: float) -> None:
    original = torch.ones(NUM_CLASSES)
    original[3] = wrong
    with pytest.raises(ValueError, match=r"^original: expected"):
        DensityAdaptivity(NUM_CLASSES, original)
    with pytest.raises(ValueError, match=r"^original: expected"):
        density(*varied_batch(0), torch.ones(NUM_CLASSES), original)
