"""PDDM beyond the laws of every loss: its mining, its blocks, and what it says of wrong layers."""

import pytest
import torch
from torch import Tensor

import loops
from batches import random_batch
from gradients import disagreement, evaluate
from kinspace.losses import PDDM, pddm, pddm_loss
from methods import METHODS

ARGUMENTS = next(method for method in METHODS if method.name == "pddm_loss").arguments


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ARGUMENTS(random_batch(1, classes=3, per_class=5), 0)
    expected = evaluate(pddm_loss, arguments)
    for block in (1, 150):  # one row at a time, and several with a shorter last block
        monkeypatch.setattr(pddm, "BLOCK", block)
        assert disagreement(evaluate(pddm_loss, arguments), expected) is None


def test_only_the_quadruplet_gets_a_gradient() -> None:
    batch = random_batch(2, classes=4, per_class=4)
    found = evaluate(pddm_loss, ARGUMENTS(batch, 0), {"margin": 9.0, "distance_margin": 9.0})
    moved = found.gradients["embeddings"].any(1).nonzero().flatten()
    classes = batch.labels[moved].tolist()
    assert len(moved) in (3, 4)  # k and l may be one sample
    assert len(set(classes)) in (2, 3)


def scores(x: Tensor, pairwise: Tensor, joint: Tensor) -> Tensor:
    """The similarity of each row to each other, (rows, rows)."""
    one, other = x.repeat_interleave(len(x), 0), x.repeat(len(x), 1)
    return pddm._similarity(one, other, pairwise, joint).view(len(x), len(x))


def test_the_similarity_is_that_of_the_loop_and_symmetric() -> None:
    x = torch.nn.functional.normalize(random_batch(3).embeddings, dim=1)
    _, _, pairwise, joint = ARGUMENTS(random_batch(3), 1).values()
    table = scores(x, pairwise, joint)
    torch.testing.assert_close(table, table.T, rtol=1e-12, atol=1e-12)
    for i, j in [(0, 1), (4, 2), (5, 5)]:
        expected = loops.pair_score(x[i], x[j], pairwise, joint)
        torch.testing.assert_close(table[i, j], expected, rtol=1e-12, atol=1e-12)


def test_the_module_gives_its_layers_to_the_function() -> None:
    torch.manual_seed(0)
    batch = random_batch(4)
    module = PDDM(4, width=5, margin=0.3, distance_margin=0.7, distance_weight=2.0).double()
    options = {"margin": 0.3, "distance_margin": 0.7, "distance_weight": 2.0}
    loss = module(*batch)
    assert torch.equal(loss, pddm_loss(*batch, module.pairwise, module.joint, **options))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in module.parameters())


def test_fresh_scores_differ_by_about_the_margin() -> None:
    torch.manual_seed(0)
    module = PDDM(64, width=256)
    x = torch.nn.functional.normalize(torch.randn(40, 64), dim=1)
    found = scores(x, module.pairwise, module.joint)
    assert 0.05 < found[~torch.eye(40, dtype=torch.bool)].std() < 1


@pytest.mark.parametrize("width", [5, 128])
@pytest.mark.parametrize("per_class", [3, 11])
def test_float32_has_the_digits_of_float64(width: int, per_class: int) -> None:
    torch.manual_seed(13)
    x, labels = torch.randn(13, 35), torch.arange(13) // per_class
    x[0] = 0
    module = PDDM(35, width=width, margin=3.0, distance_margin=3.0)
    for layer in module.parameters():  # biases too
        layer.data += 0.1 * torch.randn_like(layer)
    arguments = {"embeddings": x, "labels": labels, **dict(module.named_parameters())}
    options = {"margin": 3.0, "distance_margin": 3.0}
    expected = evaluate(pddm_loss, arguments, options)
    found = evaluate(pddm_loss, arguments, options, dtype=torch.float32)
    problem = disagreement(found, expected, value=1e-5, gradient=1e-4)
    assert problem is None, problem
    assert expected.value > 0


@pytest.mark.parametrize(
    ("name", "wrong", "came"),
    [
        ("pairwise", torch.zeros(2, 3, 4), "(2, 3, 4)"),
        ("pairwise", torch.zeros(3, 5), "(3, 5)"),
        ("pairwise", torch.zeros(2, 3, 5).long(), "int64"),
        ("pairwise", [1.0], "[1.0]"),
        ("joint", torch.zeros(3, 7), "(3, 7)"),
        ("joint", torch.zeros(3, 8).long(), "int64"),
    ],
)
def test_wrong_layers_are_named_with_what_came(name: str, wrong: Tensor, came: str) -> None:
    layers = {"pairwise": torch.zeros(2, 3, 5), "joint": torch.zeros(3, 8), name: wrong}
    with pytest.raises(ValueError, match=rf"^{name}: expected") as caught:
        pddm_loss(*random_batch(5), **layers)
    assert came in str(caught.value)


def test_a_module_names_its_layers_when_the_dimension_differs() -> None:
    with pytest.raises(ValueError, match=r"^pairwise: expected .*3 dimensions, got .*\(2, 7, 5\)"):
        PDDM(4, width=7)(*random_batch(5, dim=3))
