"""The miners, each against a loop over the batch."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import loops
from batches import DEGENERATE_BATCHES, Batch, all_triplets, random_batch
from kinspace._core import vectors
from kinspace.miners import (
    MINERS,
    angular,
    batch_hard,
    disjoint,
    distance_weighted,
    distance_weights,
    easy_positive,
    hardest_of_class,
    hardest_pairs,
    mined_counts,
    multi_similarity,
    pair_margin,
    semi_hard,
    triplet_margin,
)

BATCHES = {**{f"random {seed}": random_batch(seed) for seed in range(6)}, **DEGENERATE_BATCHES}
ON_EVERY_BATCH = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
Miner = Callable[[Tensor, Tensor], Tensor]
PAIRS = {"hardest_pairs", "multi_similarity", "pair_margin"}
TRIPLETS: dict[str, Miner] = {name: MINERS[name] for name in MINERS if name not in PAIRS}
EVERY_MINER = pytest.mark.parametrize("miner", MINERS.values(), ids=MINERS)
EVERY_MINER_OF_TRIPLETS = pytest.mark.parametrize("miner", TRIPLETS.values(), ids=TRIPLETS)


def table(batch: Batch) -> list[list[float]]:
    """Squared distances as plain numbers."""
    x = batch.embeddings
    return [[loops.squared_distance(a, b).item() for b in x] for a in x]


def neighbors(labels: list[int], i: int) -> tuple[list[int], list[int]]:
    return loops.others_of_class(labels, i), loops.samples_of_other_classes(labels, i)


# --- triplets ------------------------------------------------------------------------------------


@ON_EVERY_BATCH
@EVERY_MINER_OF_TRIPLETS
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
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_pairs_are_the_same_ones_and_then_the_different_ones(name: str, batch: Batch) -> None:
    pairs = MINERS[name](*batch)
    assert pairs.dtype == torch.int64
    assert pairs.ndim == 2
    assert pairs.shape[1] == 2
    first, second = pairs.unbind(1)
    assert first.ne(second).all()
    same = batch.labels[first].eq(batch.labels[second])
    assert torch.equal(same, same.sort(descending=True).values)


def test_every_public_miner_is_in_the_registry() -> None:
    from kinspace import miners

    assert set(miners.__all__) - {"MINERS", "distance_weights", "mined_counts"} == set(MINERS)


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


@pytest.mark.parametrize("miner", [batch_hard, semi_hard, distance_weights, multi_similarity])
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
        numbers, labels = (directions @ directions.T).tolist(), batch.labels.tolist()
        expected = []
        for i in range(len(labels)):
            same, different = neighbors(labels, i)
            nearest = max([numbers[i][j] for j in different], default=-math.inf)
            farthest = min([numbers[i][j] for j in same], default=math.inf)
            expected += [[i, j] for j in same if numbers[i][j] < nearest + margin]
            expected += [[i, j] for j in different if numbers[i][j] > farthest - margin]
        assert sorted(multi_similarity(*batch, margin=margin).tolist()) == sorted(expected)


def test_multi_similarity_without_a_margin_keeps_every_pair() -> None:
    labels = torch.tensor([0, 0, 1])
    found = multi_similarity(torch.eye(3), labels, margin=None).tolist()
    assert sorted(found) == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]


# --- all triplets and pairs of a kind ------------------------------------------------------------


def distances_of(batch: Batch) -> list[list[float]]:
    return [[math.sqrt(square) for square in row] for row in table(batch)]


KINDS: dict[str, Callable[[float, float], bool]] = {
    "all": lambda beyond, margin: beyond <= margin,
    "semi_hard": lambda beyond, margin: 0 < beyond <= margin,
    "hard": lambda beyond, margin: beyond <= 0,
    "easy": lambda beyond, margin: beyond > margin,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_triplet_margin_takes_every_triplet_of_a_kind(kind: str, margin: float) -> None:
    for batch in BATCHES.values():
        apart = distances_of(batch)
        expected = [
            [a, p, n]
            for a, p, n in all_triplets(batch.labels).tolist()
            if KINDS[kind](apart[a][n] - apart[a][p], margin)
        ]
        found = triplet_margin(*batch, kind=kind, margin=margin).tolist()
        assert sorted(found) == expected


@pytest.mark.parametrize("margins", [(0.2, 0.8), (0.0, 2.0), (1.0, 1.0)])
def test_pair_margin_takes_the_pairs_beyond_the_margins(margins: tuple[float, float]) -> None:
    far, near = margins
    for batch in BATCHES.values():
        apart, labels = distances_of(batch), batch.labels.tolist()
        expected = []
        for i in range(len(labels)):
            same, different = neighbors(labels, i)
            expected += [[i, j] for j in same if apart[i][j] > far]
            expected += [[i, j] for j in different if apart[i][j] < near]
        found = pair_margin(*batch, positive_margin=far, negative_margin=near)
        assert sorted(found.tolist()) == sorted(expected)


@pytest.mark.parametrize("degrees", [10.0, 40.0])
def test_angular_takes_the_triplets_with_a_wide_angle(degrees: float) -> None:
    for batch in BATCHES.values():
        x = loops.units(batch.embeddings)
        expected = []
        for a, p, n in all_triplets(batch.labels).tolist():
            chord = loops.distance(x[a], x[p]).item()
            height = loops.distance(x[n], (x[a] + x[p]) / 2).item()
            if math.degrees(math.atan2(chord, 2 * height)) > degrees and chord:
                expected.append([a, p, n])
        assert sorted(angular(*batch, degrees=degrees).tolist()) == expected


@ON_EVERY_BATCH
def test_hardest_of_class_takes_the_farthest_pair_of_each_class(batch: Batch) -> None:
    labels, apart = batch.labels.tolist(), table(batch)
    hard = {a: (p, n) for a, p, n in batch_hard(*batch).tolist()}
    expected = []
    for label in sorted(set(labels)):
        anchors = [i for i in hard if labels[i] == label]
        if anchors:
            a = anchors[loops.first_largest([apart[i][hard[i][0]] for i in anchors])]
            expected.append([a, *hard[a]])
    assert hardest_of_class(*batch).tolist() == expected


@pytest.mark.parametrize("negative", ["hard", "semi_hard"])
@ON_EVERY_BATCH
def test_easy_positive_takes_the_nearest_positive(batch: Batch, negative: str) -> None:
    labels, apart = batch.labels.tolist(), table(batch)
    expected = []
    for i in range(len(labels)):
        same, different = neighbors(labels, i)
        if not same:
            continue
        easy = same[loops.first_smallest([apart[i][j] for j in same])]
        if negative == "semi_hard":
            different = [j for j in different if apart[i][j] > apart[i][easy]]
        if different:
            near = different[loops.first_smallest([apart[i][j] for j in different])]
            expected.append([i, easy, near])
    assert easy_positive(*batch, negative=negative).tolist() == expected


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_hardest_pairs_takes_a_share_of_each_kind(share: float) -> None:
    for seed in range(4):
        batch = random_batch(seed)
        apart, labels = table(batch), batch.labels.tolist()
        count = range(len(labels))
        same = [[i, j] for i in count for j in neighbors(labels, i)[0]]
        different = [[i, j] for i in count for j in neighbors(labels, i)[1]]
        same.sort(key=lambda pair: -apart[pair[0]][pair[1]])
        different.sort(key=lambda pair: apart[pair[0]][pair[1]])
        expected = same[: math.ceil(share * len(same))]
        expected += different[: math.ceil(share * len(different))]
        assert hardest_pairs(*batch, share=share).tolist() == expected


def test_a_share_is_at_most_the_whole() -> None:
    with pytest.raises(ValueError, match=r"^share: expected a number from 0 to 1, got 1.5"):
        hardest_pairs(*random_batch(0), share=1.5)


# --- with a reference ----------------------------------------------------------------------------

REFERRING = {name: miner for name, miner in MINERS.items() if name != "disjoint"}


@pytest.mark.parametrize("name", REFERRING)
def test_with_the_batch_as_its_own_reference_a_miner_finds_the_same(name: str) -> None:
    for batch in BATCHES.values():
        options = {} if name != "distance_weighted" else {"generator": torch.Generator()}
        expected = MINERS[name](*batch, **options)
        found = MINERS[name](
            *batch,
            **{key: torch.Generator() for key in options},
            reference=batch.embeddings,
            reference_labels=batch.labels,
            includes_batch=True,
        )
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", REFERRING)
def test_in_a_reference_the_indices_are_rows_of_it(name: str) -> None:
    for seed, batch in enumerate(BATCHES.values()):
        other = random_batch(seed + 9, classes=5, dim=batch.embeddings.shape[1])
        found = MINERS[name](*batch, reference=other.embeddings, reference_labels=other.labels)
        own = batch.labels[found[:, 0]]
        if found.shape[1] == 3:
            assert other.labels[found[:, 1]].eq(own).all()
            assert other.labels[found[:, 2]].ne(own).all()


@pytest.mark.parametrize("name", ["batch_hard", "semi_hard", "easy_positive", "hardest_of_class"])
def test_a_reference_alone_gives_what_an_anchor_before_it_finds(name: str) -> None:
    """Each anchor by itself in front of the reference, in one batch with it."""
    for seed, batch in enumerate(BATCHES.values()):
        other = random_batch(seed + 9, classes=5, dim=batch.embeddings.shape[1])
        for row in range(min(3, len(batch.labels))):
            x, label = batch.embeddings[row : row + 1], batch.labels[row : row + 1]
            found = MINERS[name](
                x, label, reference=other.embeddings, reference_labels=other.labels
            )
            joined = torch.cat([x, other.embeddings]), torch.cat([label, other.labels])
            miner = batch_hard if name == "hardest_of_class" else MINERS[name]
            expected = miner(*joined)
            expected = expected[expected[:, 0] == 0] - torch.tensor([0, 1, 1])
            assert sorted(found.tolist()) == sorted(expected.tolist())


def test_a_positive_at_an_infinite_distance_has_the_farthest_negative() -> None:
    x = torch.tensor([[-3e38], [3e38], [0.0], [1e19]])
    triplets = semi_hard(x, torch.tensor([0, 0, 1, 2]))
    assert triplets[:, :2].tolist() == [[0, 1], [1, 0]]
    assert set(triplets[:, 2].tolist()) <= {2, 3}


def test_what_was_mined_is_counted() -> None:
    x, labels = random_batch(4)
    triplets = batch_hard(x, labels)
    counts = mined_counts(triplets)
    assert counts == {"triplets": len(triplets), "anchors": len(set(triplets[:, 0].tolist()))}
    pairs = multi_similarity(x, labels)
    same = sum(bool(labels[i] == labels[j]) for i, j in pairs)
    counts = mined_counts(pairs, labels)
    assert (counts["positive_pairs"], counts["negative_pairs"]) == (same, len(pairs) - same)
    assert mined_counts(triplets[:0]) == {"triplets": 0, "anchors": 0}
    with pytest.raises(ValueError, match=r"^tuples: expected shape .*got \(12,\)"):
        mined_counts(labels)
