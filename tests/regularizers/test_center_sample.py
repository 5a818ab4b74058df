"""A sample of the class centers, for spreads over more classes than fit in memory."""

import pytest
import torch
from torch import Tensor

from batches import varied_batch
from gradients import identical
from kinspace.regularizers import CenterSample, LogExpSpread, sample_centers


def test_a_center_sample_holds_the_classes_of_the_batch_and_changes_with_each_call() -> None:
    sample = CenterSample(5)
    centers = torch.arange(20.0)[:, None]
    labels = torch.tensor([7, 3, 7, 11])
    draws = [set(sample(centers, labels).flatten().tolist()) for _ in range(6)]
    for draw in draws:
        assert len(draw) == 5
        assert {3.0, 7.0, 11.0} <= draw
    assert len({frozenset(draw) for draw in draws}) > 1
    assert sample.rng.calls == 6


def test_a_center_sample_of_more_than_there_are_is_all_of_them() -> None:
    centers = torch.randn(4, 2)
    for most in (None, 4, 9):
        sample = CenterSample(most)
        assert sample(centers) is centers
        assert sample.rng.calls == 0


def test_a_center_sample_carries_the_gradient_to_its_rows() -> None:
    centers = torch.randn(9, 3, requires_grad=True)
    sample = CenterSample(4)
    sample(centers, torch.tensor([2])).sum().backward()
    assert centers.grad is not None
    assert centers.grad.any(1).sum() == 4
    assert centers.grad[2].eq(1).all()


@pytest.mark.parametrize("wrong", [torch.tensor([9]), torch.tensor([-1]), torch.tensor([0.5])])
def test_a_center_sample_names_labels_that_are_no_centers(wrong: Tensor) -> None:
    with pytest.raises(ValueError, match=r"^(labels|include): expected"):
        CenterSample(4)(torch.randn(9, 3), wrong)


@pytest.mark.parametrize("wrong", [0, 1, -3, 2.0])
def test_a_center_sample_is_of_two_or_more(wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"^max_centers: expected .*got {wrong}"):
        LogExpSpread(max_centers=wrong)


def test_sample_centers_draws_each_center_as_often() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(10)
    for _ in range(2000):
        counts[sample_centers(10, 3, generator=generator)] += 1
    assert ((counts / 2000 - 0.3).abs() < 0.05).all()


def test_a_center_sample_does_not_touch_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    LogExpSpread(max_centers=3)(*varied_batch(0))
    identical(torch.random.get_rng_state(), before)
