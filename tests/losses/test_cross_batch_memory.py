"""The memory of earlier batches around losses of pairs and triplets."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import reference_loops
from batches import NUM_CLASSES, Batch, random_batch
from gradients import identical
from kinspace.losses import (
    LOSSES,
    Contrastive,
    CrossBatchMemory,
    Margin,
    ProxyAnchor,
    SupCon,
    Triplet,
)
from reference_loops import Comparisons

TAKING = [
    "angular",
    "circle",
    "contrastive",
    "fast_ap",
    "histogram",
    "lifted_structure",
    "multi_similarity",
    "n_pair",
    "nca",
    "nra",
    "nt_xent",
    "ranked_list",
    "recall_surrogate",
    "smooth_ap",
    "supcon",
    "triplet",
    "tuplet_margin",
]
SIZE = 28  # two batches of 12 and a part of a third


def memory_around(loss: nn.Module, size: int = SIZE) -> CrossBatchMemory:
    return CrossBatchMemory(loss, size, dim=4).double()


def remembered(batches: list[Batch], size: int = SIZE) -> Batch:
    """The last samples, the last batch first and each in its order, by a plain list."""
    rows = [row for batch in reversed(batches) for row in zip(*batch, strict=True)][:size]
    return Batch(torch.stack([x for x, _ in rows]), torch.stack([label for _, label in rows]))


@pytest.mark.parametrize("name", TAKING)
def test_every_step_is_that_of_a_loop_over_the_last_samples(name: str) -> None:
    criterion = memory_around(LOSSES[name]())
    seen: list[Batch] = []
    for step in range(4):
        batch = random_batch(step)
        seen.append(batch)
        leaf, other = (batch.embeddings.clone().requires_grad_() for _ in range(2))
        loss = criterion(leaf, batch.labels)
        loss.backward()
        reference, labels = remembered(seen)
        comparisons = Comparisons(other, batch.labels, reference, labels, True)
        expected = getattr(reference_loops, f"{name}_loss")(comparisons)
        expected.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-7, atol=1e-10)
        assert torch.equal(criterion.memory, reference)
        assert torch.equal(criterion.memory_labels, labels)
        assert not criterion.memory.requires_grad


@pytest.mark.parametrize("name", [name for name in TAKING if name != "lifted_structure"])
def test_the_first_value_is_that_of_the_loss_alone(name: str) -> None:
    batch = random_batch(3)
    options = {} if name != "contrastive" else {"reduction": "mean"}
    found = memory_around(LOSSES[name](**options))(*batch)
    torch.testing.assert_close(found, LOSSES[name](**options)(*batch))


@pytest.mark.parametrize(
    "loss", [Contrastive(), Triplet(mining="semi_hard"), Margin(NUM_CLASSES)], ids=str
)
def test_a_restored_memory_goes_on_with_the_same_next_steps(loss: nn.Module) -> None:
    criterion = memory_around(copy.deepcopy(loss))
    for step in range(2):
        criterion(*random_batch(step))
    file = io.BytesIO()
    torch.save(criterion.state_dict(), file)
    file.seek(0)
    restored = memory_around(copy.deepcopy(loss))
    restored.load_state_dict(torch.load(file, weights_only=True))
    identical(restored.state_dict(), criterion.state_dict())
    for step in range(2, 4):
        identical(restored(*random_batch(step)), criterion(*random_batch(step)))


def test_a_smaller_memory_takes_the_newest_of_a_larger_one() -> None:
    large, small = memory_around(SupCon()), memory_around(SupCon(), size=15)
    large(*random_batch(0))
    large(*random_batch(1))
    state = large.state_dict()
    small.load_state_dict(state)
    assert torch.equal(small.memory, large.memory[:15])
    assert len(state["memory"]) == 24


def test_evaluation_leaves_the_memory_alone() -> None:
    criterion = memory_around(SupCon())
    criterion(*random_batch(0))
    before = {key: value.clone() for key, value in criterion.state_dict().items()}
    criterion.eval()
    first, again = criterion(*random_batch(1)), criterion(*random_batch(1))
    identical(first, again)
    identical(dict(criterion.state_dict()), before)


def test_two_calls_may_come_before_one_backward() -> None:
    batches = [random_batch(step) for step in range(2)]

    def gradients(together: bool) -> list[Tensor | None]:
        criterion = memory_around(Contrastive())
        leaves = [batch.embeddings.clone().requires_grad_() for batch in batches]
        values = []
        for leaf, batch in zip(leaves, batches, strict=True):
            values.append(criterion(leaf, batch.labels))
            if not together:
                values.pop().backward()
        if together:
            torch.stack(values).sum().backward()
        return [leaf.grad for leaf in leaves]

    identical(gradients(together=True), gradients(together=False))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_embeddings_are_remembered_as_they_are(half: torch.dtype) -> None:
    criterion = CrossBatchMemory(SupCon(), SIZE, 4)
    x, labels = random_batch(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = criterion(x.to(half), labels)
    assert value.dtype == torch.float32
    assert torch.equal(criterion.memory, x.to(half).float())


def test_the_memory_can_be_emptied() -> None:
    criterion = memory_around(SupCon())
    first = criterion(*random_batch(0))
    criterion.reset()
    assert len(criterion.memory) == 0
    identical(criterion(*random_batch(0)), first)


def test_wrong_losses_sizes_and_batches_are_named() -> None:
    with pytest.raises(ValueError, match=r"^loss: expected one that takes a reference, got Proxy"):
        CrossBatchMemory(ProxyAnchor(3, 4), 10, 4)
    wrong: dict[str, Any]
    for wrong in ({"size": 0, "dim": 4}, {"size": 3, "dim": 0.5}):
        with pytest.raises(ValueError, match=r"^(size|dim): expected "):
            CrossBatchMemory(SupCon(), **wrong)
    x, labels = random_batch(0)
    with pytest.raises(ValueError, match=r"^embeddings: expected at most 10 rows, .*got 12"):
        memory_around(SupCon(), size=10)(x, labels)
    with pytest.raises(ValueError, match=r"^embeddings: expected 4 columns .*got shape \(12, 3\)"):
        memory_around(SupCon())(x[:, :3], labels)
