"""Margin loss as a module: the negatives it draws and the boundaries it learns."""

import importlib

import pytest
import torch

from batches import NUM_CLASSES, random_batch, varied_batch
from gradients import disagreement, evaluate, identical
from kinspace._core.class_index import ClassIndex
from kinspace.losses import Margin

DIM = 4


def test_margin_draws_anew_at_each_call_of_training_and_alike_by_its_seed() -> None:
    batch = random_batch(0, classes=6, per_class=4, dim=DIM)
    first, second = Margin(NUM_CLASSES).double(), Margin(NUM_CLASSES).double()
    values = [first(*batch).item() for _ in range(4)]
    assert len(set(values)) > 1
    assert [second(*batch).item() for _ in range(4)] == values
    assert first.rng.calls == 4
    other = Margin(NUM_CLASSES, seed=1000).double()
    assert [other(*batch).item() for _ in range(4)] != values


def test_margin_draws_do_not_touch_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    Margin(NUM_CLASSES)(*varied_batch(0))
    identical(torch.random.get_rng_state(), before)


def test_margin_learns_the_boundaries_of_the_classes_it_sees() -> None:
    module = Margin(NUM_CLASSES, boundary=1.0).double()
    embeddings, labels = random_batch(0, classes=3, dim=DIM)
    module(embeddings, labels).backward()
    assert module.boundary.grad is not None
    assert module.boundary.grad[3:].eq(0).all()
    assert module.boundary.grad[:3].ne(0).any()


def test_lists_as_long_as_the_batch_give_the_same_on_the_same_negatives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they are on a GPU, where the host does not wait for a length."""

    def likeliest(weights: torch.Tensor, count: int, _: object) -> torch.Tensor:
        return weights.argmax(1, keepdim=True).expand(-1, count)

    miner = importlib.import_module("kinspace.miners.distance_weighted")
    monkeypatch.setattr(miner, "_sample", likeliest)
    module = Margin(NUM_CLASSES).double()
    for classes, per_class in ((4, 5), (1, 5), (4, 1), (1, 1)):
        batch = random_batch(3, classes=classes, per_class=per_class, dim=DIM)
        expected = evaluate(module, batch._asdict())
        with monkeypatch.context() as patched:
            patched.setattr(ClassIndex, "_fixed", True)
            found = evaluate(module, batch._asdict())
        assert disagreement(found, expected) is None
