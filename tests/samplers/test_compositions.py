"""What the batches of each sampler hold, and what an epoch of them covers."""

from collections import Counter
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kinspace.clustering import ClusterIndex
from kinspace.losses import magnet_loss
from kinspace.samplers import (
    classes_by_samples,
    clusters_of,
    hierarchical,
    n_pairs,
    neighborhoods,
    random,
    whole_classes,
)
from reference_cases import FOLDER
from samplers import LONG_TAIL, index_of, labels_of, remember

some_sizes = st.lists(st.integers(1, 12) | st.integers(1, 60), min_size=1, max_size=25)
seeds = st.integers(0, 2**32)


def check_classes_by_samples(
    batch: list[int], labels: np.ndarray, classes: int, samples: int
) -> None:
    assert len(batch) == len(set(batch)) == classes * samples
    sizes = Counter(labels.tolist())
    counts = Counter(labels[batch].tolist())
    short = [label for label, count in counts.items() if count < min(samples, sizes[label])]
    assert max(counts.values()) <= samples
    assert len(short) <= 1
    if min(sizes.values()) >= samples:
        assert list(counts.values()) == [samples] * classes
    starts = [label for label, _ in pairwise([*labels[batch], -1]) if label != _]
    assert len(starts) == len(counts)  # the samples of a class lie side by side


@given(some_sizes, st.integers(1, 8), st.integers(1, 9), seeds)
def test_classes_by_samples_has_m_classes_of_n_samples_and_small_ones_whole(
    sizes: list[int], classes: int, samples: int, seed: int
) -> None:
    assume(classes <= len(sizes))
    assume(sum(min(size, samples) for size in sizes) >= classes * samples)
    labels = labels_of(sizes)
    sampler = classes_by_samples(labels, classes=classes, samples=samples, seed=seed)
    batches = list(sampler)
    for batch in batches:
        check_classes_by_samples(batch, labels, classes, samples)
    assert set(chain.from_iterable(batches)) == set(range(len(labels)))
    small = {3 * number + 1: size for number, size in enumerate(sizes) if size < samples}
    whole = {
        label
        for batch in batches
        for label, count in Counter(labels[batch].tolist()).items()
        if count == small.get(label)
    }
    assert whole == set(small)


@given(some_sizes, st.integers(1, 8), st.integers(1, 9))
def test_classes_by_samples_is_no_longer_than_it_has_to_be(
    sizes: list[int], classes: int, samples: int
) -> None:
    assume(classes <= len(sizes))
    assume(sum(min(size, samples) for size in sizes) >= classes * samples)
    length = len(classes_by_samples(labels_of(sizes), classes=classes, samples=samples))
    groups = [-(-size // samples) for size in sizes if size >= samples]
    small = [size for size in sizes if size < samples]
    room = classes * samples - (samples - 1 if small else 0)  # a rest too small for a group
    least = max(-(-(sum(groups) * samples + sum(small)) // (classes * samples)), *groups, 0, 0)
    assert least <= length <= max(-(-(sum(groups) * samples + sum(small)) // room), least)


def test_classes_by_samples_mixes_the_classes() -> None:
    labels = np.repeat(np.arange(100), 59)
    together = np.zeros((100, 100), dtype=int)
    for batch in classes_by_samples(labels, classes=16, samples=8):
        present = np.unique(labels[batch])
        together[np.ix_(present, present)] += 1
    np.fill_diagonal(together, 0)
    # 8 batches with 15 others each: drawn freely, a class would meet 71 others, few of them often
    assert (together > 0).sum(1).min() > 50
    assert together.max() <= 6


def test_classes_by_samples_mixes_small_classes_anew_in_every_epoch() -> None:
    labels = labels_of([2] * 20)
    sampler = classes_by_samples(labels, classes=1, samples=4)  # two classes a batch
    met: set[tuple[int, ...]] = set()
    for _ in range(20):
        met |= {tuple(sorted(set(labels[batch].tolist()))) for batch in sampler}
    assert len(met) > 100  # of the 190 there are; 10 were the batches the same every time


def test_classes_by_samples_treats_samples_alike_over_many_epochs() -> None:
    labels = labels_of([7, 7, 7, 7, 5, 3, 3, 2])
    sampler = classes_by_samples(labels, classes=3, samples=4)
    counts = np.bincount([number for _ in range(400) for batch in sampler for number in batch])
    for label in np.unique(labels):
        members = counts[labels == label]
        assert members.max() < 1.15 * members.min()


def test_classes_by_samples_is_exact_on_a_set_like_online_products() -> None:
    draw = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(2000), 2), draw.integers(2000, size=7000)])
    for classes, samples in [(16, 8), (32, 4)]:
        batches = list(classes_by_samples(labels, classes=classes, samples=samples))
        for batch in batches:
            check_classes_by_samples(batch, labels, classes, samples)
        assert set(chain.from_iterable(batches)) == set(range(len(labels)))


@given(some_sizes, st.integers(0, 60), seeds)
def test_whole_classes_has_each_class_once_and_fills_the_last_batch(
    sizes: list[int], extra: int, seed: int
) -> None:
    labels = labels_of(sizes)
    limit = max(sizes) + extra
    batches = list(whole_classes(labels, batch_size=limit, seed=seed))
    of_label = Counter(labels.tolist())
    for number, batch in enumerate(batches):
        counts = Counter(labels[batch].tolist())
        assert len(batch) == len(set(batch)) <= limit
        assert all(count == of_label[label] for label, count in counts.items())
        assert len(batch) > limit - max(sizes) or len(batch) == len(labels)
        if number + 1 < len(batches):
            following = of_label[labels[batches[number + 1][0]]]
            assert len(batch) + following > limit  # full: the next class did not fit
    seen = Counter(chain.from_iterable(batches))
    assert set(seen) == set(range(len(labels)))
    assert all(count == 1 or number in batches[-1] for number, count in seen.items())


def test_whole_classes_fills_the_last_batch_to_the_brim() -> None:
    sampler = whole_classes(labels_of([2] * 4), batch_size=6)
    assert [len(batch) for _ in range(5) for batch in sampler] == [6, 6] * 5


def test_whole_classes_holds_two_classes_when_the_batch_is_twice_the_largest() -> None:
    labels = labels_of(LONG_TAIL)
    sampler = whole_classes(labels, batch_size=80)
    assert all(len(set(labels[batch])) >= 2 for _ in range(20) for batch in sampler)


@given(some_sizes, st.integers(1, 12), seeds)
def test_n_pairs_has_two_samples_of_each_class_side_by_side(
    sizes: list[int], pairs: int, seed: int
) -> None:
    assume(pairs <= sum(size >= 2 for size in sizes))
    labels = labels_of(sizes)
    sampler = n_pairs(labels, pairs=pairs, seed=seed)
    batches = list(sampler)
    for batch in batches:
        assert len(batch) == len(set(batch)) == 2 * pairs
        assert (labels[batch[::2]] == labels[batch[1::2]]).all()
        assert len(set(labels[batch])) == pairs
    assert len(set(chain.from_iterable(batches))) == len(labels) - sizes.count(1)


@given(st.integers(1, 200), st.integers(1, 250), st.booleans(), seeds)
def test_random_has_each_sample_once(
    samples: int, batch_size: int, drop_last: bool, seed: int
) -> None:
    assume(not drop_last or batch_size <= samples)
    sampler = random(np.zeros(samples, int), batch_size=batch_size, drop_last=drop_last, seed=seed)
    *full, last = [len(batch) for batch in sampler]
    assert all(size == batch_size for size in full)
    rest = samples % batch_size
    assert last == (batch_size if drop_last or rest == 0 else rest)
    seen = list(chain.from_iterable(sampler))
    assert len(seen) == len(set(seen)) == samples - (rest if drop_last else 0)


def check_neighborhood(batch: list[int], index: Any, clusters: int, samples: int) -> int:
    """The seed of the batch."""
    groups = np.array(batch).reshape(clusters, samples)
    of_group = index.clusters[torch.from_numpy(groups)]
    assert (of_group == of_group[:, :1]).all()
    chosen = of_group[:, 0]
    assert torch.equal(chosen, index.nearest_impostors(int(chosen[0]), clusters))
    for group, cluster in zip(groups.tolist(), chosen.tolist(), strict=True):
        if (index.clusters == cluster).sum() >= samples:
            assert len(set(group)) == samples
    return int(chosen[0])


@settings(max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=3, max_size=20), st.integers(2, 5), st.integers(1, 6))
def test_neighborhoods_hold_the_seed_and_its_nearest_impostors(
    sizes: list[int], clusters: int, samples: int
) -> None:
    index = index_of(sizes)
    most = len(index.cluster_labels) - max(Counter(index.cluster_labels.tolist()).values()) + 1
    assume(clusters <= most)
    sampler = neighborhoods(index, clusters=clusters, samples=samples)
    assert len(sampler) == -(-sum(sizes) // (clusters * samples))
    for batch in sampler:
        check_neighborhood(batch, index, clusters, samples)
        remember(index, batch)


@pytest.mark.parametrize("nearest", [0.0, 0.25, 0.5, 1.0])
def test_a_share_of_the_impostors_is_the_nearest_and_the_others_are_any(nearest: float) -> None:
    index = ClusterIndex(1)
    index.refresh(torch.arange(40.0)[:, None], torch.arange(20).repeat_interleave(2))
    of_sample = index.clusters.tolist()
    further = set()
    sampler = neighborhoods(index, clusters=5, samples=2, nearest=nearest, batches_per_epoch=30)
    for batch in sampler:
        clusters = list(dict.fromkeys(of_sample[sample] for sample in batch))
        assert len(clusters) == 5
        known = index.nearest_impostors(clusters[0], 5).tolist()
        count = 1 + round(4 * nearest)
        assert clusters[:count] == known[:count]
        further |= set(clusters[count:])
    assert (len(further) > 10) == (nearest < 1)


def test_neighborhoods_draw_seeds_by_their_probability() -> None:
    index = index_of([4] * 6)
    index.remember(torch.arange(24), (index.clusters >= 6) * (1.0 + index.clusters))
    sampler = neighborhoods(index, clusters=3, samples=2, batches_per_epoch=1000)
    drawn = np.zeros(12)
    for batch in sampler:
        drawn[check_neighborhood(batch, index, 3, 2)] += 1
    expected = index.seed_probabilities().numpy()
    assert (drawn[:6] == 0).all()
    assert abs(drawn / 1000 - expected).max() < 0.06  # four standard errors


def test_neighborhoods_draw_all_samples_of_a_cluster_alike() -> None:
    index = ClusterIndex(1)
    index.refresh(torch.randn(10, 2), torch.tensor([0] * 3 + [1] * 7))
    sampler = neighborhoods(index, clusters=2, samples=5, batches_per_epoch=1000)
    counts = np.bincount(list(chain.from_iterable(sampler)))
    assert abs(counts[:3] / 5000 - 1 / 3).max() < 0.03
    assert abs(counts[3:] / 5000 - 1 / 7).max() < 0.03


@pytest.mark.parametrize("number", [0, 1])
def test_neighborhoods_are_those_of_the_worked_cases(number: int) -> None:
    case = np.load(FOLDER / f"magnet_sampling__00{number}.npz")
    clusters = torch.from_numpy(case["in_assign"])
    clusters[:10] = torch.arange(10)  # the second case has a cluster without a sample
    index = SimpleNamespace(
        clusters=clusters,
        cluster_labels=torch.from_numpy(case["in_cluster_class"]),
        members=lambda cluster: (clusters == cluster).nonzero()[:, 0],
        nearest_impostors=lambda seed, m: torch.from_numpy(case["out_neighbours"])[seed],
        seed_probabilities=lambda: torch.from_numpy(case["out_p"]),
    )
    drawn = np.zeros(10)
    for batch in neighborhoods(index, clusters=4, samples=2, batches_per_epoch=500):
        drawn[check_neighborhood(batch, index, 4, 2)] += 1
    assert abs(drawn / 500 - case["out_p"]).max() < 0.08


def test_clusters_of_a_batch_fit_the_magnet_loss() -> None:
    index = index_of(LONG_TAIL)
    batch = torch.tensor(next(iter(neighborhoods(index, clusters=4, samples=3))))
    clusters, cluster_labels = clusters_of(index, batch)
    assert torch.equal(cluster_labels[clusters], index.cluster_labels[index.clusters[batch]])
    assert len(cluster_labels) == 4
    embeddings = torch.randn(12, 3, dtype=torch.float64)
    whole = magnet_loss(embeddings, index.clusters[batch], index.cluster_labels)
    torch.testing.assert_close(magnet_loss(embeddings, clusters, cluster_labels), whole)


@given(st.lists(some_sizes, min_size=2, max_size=5), st.integers(1, 3), st.integers(1, 4), seeds)
def test_hierarchical_has_a_part_of_each_of_some_parents(
    families: list[list[int]], classes: int, samples: int, seed: int
) -> None:
    for sizes in families:
        assume(classes <= len(sizes))
        assume(sum(min(size, samples) for size in sizes) >= classes * samples)
    sizes = [size for family in families for size in family]
    labels = labels_of(sizes)
    family_of = np.repeat(np.arange(len(families)), [len(family) for family in families])
    parents = family_of[(labels - 1) // 3]
    sampler = hierarchical(labels, parents, classes=classes, samples=samples, seed=seed)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    for batch in batches:
        assert len(set(batch)) == len(batch) == 2 * classes * samples
        for part in (batch[: classes * samples], batch[classes * samples :]):
            assert len(set(parents[part])) == 1
            check_classes_by_samples(part, labels, classes, samples)
        assert len(set(parents[batch])) == 2
    assert set(chain.from_iterable(batches)) == set(range(len(labels)))


def test_hierarchical_names_what_cannot_be() -> None:
    labels, parents = [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]
    with pytest.raises(ValueError, match=r"^parents: expected 6, one for each .*got 5"):
        hierarchical(labels, parents[:5])
    with pytest.raises(ValueError, match=r"^parents_per_batch: expected at most 2, .*got 3"):
        hierarchical(labels, parents, parents_per_batch=3)
    with pytest.raises(ValueError, match=r"^classes: expected parents of 2 x 2 .*1 classes .* 2 "):
        hierarchical(labels, parents, classes=2, samples=2)
