"""The miners, each against a loop over the batch."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import loops
from batches import DEGENERATE_BATCHES, Batch, random_batch
from kinspace._core import vectors
from kinspace.miners import (
    batch_hard,
    disjoint,
    distance_weighted,
    distance_weights,
    multi_similarity,
    semi_hard,
)

BATCHES = {**{f"random {seed}": random_batch(seed) for seed in range(6)}, **DEGENERATE_BATCHES}
ON_EVERY_BATCH = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
Miner = Callable[[Tensor, Tensor], Tensor]
TRIPLETS: dict[str, Miner] = {
    "batch_hard": batch_hard,
    "disjoint": disjoint,
    "semi_hard": semi_hard,
    "distance_weighted": distance_weighted,
}
EVERY_MINER = pytest.mark.parametrize("miner", TRIPLETS.values(), ids=TRIPLETS)


def table(batch: Batch) -> list[list[float]]:
    """Squared distances as plain numbers."""
    x = batch.embeddings
    return [[loops.squared_distance(a, b).item() for b in x] for a in x]


def neighbors(labels: list[int], i: int) -> tuple[list[int], list[int]]:
    return loops.others_of_class(labels, i), loops.samples_of_other_classes(labels, i)


# --- triplets ------------------------------------------------------------------------------------


@ON_EVERY_BATCH
@EVERY_MINER
def test_triplets_are_an_anchor_a_positive_and_a_negative(miner: Miner, batch: Batch) -> None:
    triplets = miner(*batch)
    assert triplets.dtype == torch.int64
    assert triplets.ndim == 2
    assert triplets.shape[1] == 3
    anchor, positive, negative = triplets.unbind(1)
    assert anchor.ne(positive).all()
    assert batch.labels[anchor].eq(batch.labels[positive]).all()
    assert batch.labels[anchor].ne(batch.labels[negative]).all()


@ON_EVERY_BATCH
def test_batch_hard_takes_the_farthest_positive_and_the_nearest_negative(batch: Batch) -> None:
    labels, apart = batch.labels.tolist(), table(batch)
    expected = []
    for i in range(len(labels)):
        positive, negative = neighbors(labels, i)
        if positive and negative:
            far = positive[loops.first_largest([apart[i][j] for j in positive])]
            near = negative[loops.first_smallest([apart[i][j] for j in negative])]
            expected.append([i, far, near])
    assert batch_hard(*batch).tolist() == expected


@ON_EVERY_BATCH
def test_semi_hard_takes_the_nearest_negative_beyond_the_positive(batch: Batch) -> None:
    labels, apart = batch.labels.tolist(), table(batch)
    expected = []
    for i in range(len(labels)):
        positive, negative = neighbors(labels, i)
        for j in positive if negative else []:
            beyond = [k for k in negative if apart[i][k] > apart[i][j]]
            if beyond:
                chosen = beyond[loops.first_smallest([apart[i][k] for k in beyond])]
            else:
                chosen = negative[loops.first_largest([apart[i][k] for k in negative])]
            expected.append([i, j, chosen])
    assert sorted(semi_hard(*batch).tolist()) == sorted(expected)


@ON_EVERY_BATCH
def test_disjoint_triplets_share_no_sample(batch: Batch) -> None:
    triplets = disjoint(*batch)
    assert triplets.flatten().unique().numel() == triplets.numel()
    found = sorted(map(tuple, triplets.tolist()))
    assert found == sorted(loops.threes(batch.labels.tolist()))


def test_disjoint_uses_a_whole_batch_of_threes() -> None:
    labels = torch.tensor([4, 1, 3]).repeat(6)
    assert disjoint(torch.zeros(18, 1), labels).flatten().sort().values.tolist() == [*range(18)]


@ON_EVERY_BATCH
def test_distance_weighted_gives_every_ordered_positive_pair_one_negative(batch: Batch) -> None:
    labels = batch.labels.tolist()
    expected = [
        [i, j]
        for i in range(len(labels))
        for j in neighbors(labels, i)[0]
        if neighbors(labels, i)[1]
    ]
    assert sorted(distance_weighted(*batch)[:, :2].tolist()) == sorted(expected)


@EVERY_MINER
def test_miners_are_not_part_of_the_graph(miner: Miner) -> None:
    embeddings, labels = random_batch(0)
    leaf = embeddings.clone().requires_grad_()
    assert not miner(leaf, labels).requires_grad
    assert torch.equal(leaf, embeddings)


@pytest.mark.parametrize("miner", [batch_hard, semi_hard, distance_weights])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_changes_no_choice(
    miner: Miner, half: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)  # by the product that it would halve
    batch = random_batch(1, classes=8, per_class=8, dim=16)
    embeddings = batch.embeddings.float()
    expected = miner(embeddings, batch.labels)
    with torch.autocast("cpu", dtype=half):
        assert torch.equal(miner(embeddings, batch.labels), expected)


@EVERY_MINER
def test_a_miner_names_what_is_wrong(miner: Miner) -> None:
    embeddings, labels = random_batch(0)
    with pytest.raises(ValueError, match=r"^embeddings: expected a matrix"):
        miner(embeddings[0], labels)
    with pytest.raises(ValueError, match=r"^labels: expected shape \(12,\)"):
        miner(embeddings, labels[:3])
    with pytest.raises(ValueError, match=r"^labels: expected integers"):
        miner(embeddings, labels.float())


@pytest.mark.parametrize("miner", [distance_weights, distance_weighted])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -1.0])
def test_a_cutoff_is_a_number_above_zero(miner: Callable[..., Tensor], wrong: float) -> None:
    for option in ("cutoff", "nonzero_cutoff"):
        with pytest.raises(ValueError, match=rf"^{option}: expected .*got {wrong}"):
            miner(*random_batch(0), **{option: wrong})


# --- distance-weighted sampling ------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"cutoff": 0.2, "nonzero_cutoff": 1.1}], ids=str)
@ON_EVERY_BATCH
def test_distance_weights_are_those_of_the_loop(batch: Batch, options: dict[str, float]) -> None:
    found = distance_weights(*batch, **options)
    directions = torch.stack(loops.units(batch.embeddings))
    for anchor, row in enumerate(found):
        expected = loops.distance_weights(directions, batch.labels, anchor, **options)
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-12)


def test_distance_weights_of_opposite_points_are_finite() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    weights = distance_weights(x, torch.tensor([0, 1, 2]), nonzero_cutoff=3.0)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(1), torch.ones(3))


def test_negatives_are_drawn_as_often_as_their_weight_says() -> None:
    embeddings, labels = random_batch(2, classes=3, per_class=3, dim=5)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.zeros(9, 9, dtype=torch.float64)
    rounds = 600
    for _ in range(rounds):
        triplets = distance_weighted(embeddings, labels, generator=generator)
        drawn.index_put_((triplets[:, 0], triplets[:, 2]), torch.ones(18).double(), accumulate=True)
    weights = distance_weights(embeddings, labels)
    spread = (weights * (1 - weights) / (2 * rounds)).sqrt()
    assert ((drawn / (2 * rounds) - weights).abs() <= 5 * spread + 1e-12).all()


def test_draws_follow_the_generator() -> None:
    batch = random_batch(3)
    first, again, other = (
        distance_weighted(*batch, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# --- multi-similarity ----------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.1, 0.5, 0.0, -0.2])
def test_multi_similarity_keeps_what_is_nearly_wrong(margin: float) -> None:
    for batch in BATCHES.values():
        directions = torch.stack(loops.units(batch.embeddings))
        similarities = directions @ directions.T
        index, pulled, pushed = multi_similarity(similarities, batch.labels, margin=margin)
        labels, numbers = batch.labels.tolist(), similarities.tolist()
        for i in range(len(labels)):
            same, different = neighbors(labels, i)
            nearest = max([numbers[i][j] for j in different], default=-math.inf)
            farthest = min([numbers[i][j] for j in same], default=math.inf)
            kept = [j for j in same if numbers[i][j] < nearest + margin]
            assert sorted(index[i][pulled[i]].tolist()) == kept
            kept = [j for j in different if numbers[i][j] > farthest - margin]
            assert pushed[i].nonzero().flatten().tolist() == kept


def test_multi_similarity_without_a_margin_keeps_every_pair() -> None:
    labels = torch.tensor([0, 0, 1])
    index, pulled, pushed = multi_similarity(torch.eye(3), labels, margin=None)
    assert index[:2][pulled[:2]].tolist() == [1, 0]
    assert pulled.any(1).tolist() == [True, True, False]
    assert pushed.tolist() == [[False, False, True], [False, False, True], [True, True, False]]


def test_a_positive_at_an_infinite_distance_has_the_farthest_negative() -> None:
    x = torch.tensor([[-3e38], [3e38], [0.0], [1e19]])
    triplets = semi_hard(x, torch.tensor([0, 0, 1, 2]))
    assert triplets[:, :2].tolist() == [[0, 1], [1, 0]]
    assert set(triplets[:, 2].tolist()) <= {2, 3}
