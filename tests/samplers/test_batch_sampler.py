"""Laws of all samplers: length, coverage, seeds, resuming, sharding, error texts."""

from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from kinspace.clustering import ClusterIndex
from kinspace.samplers import (
    SAMPLERS,
    BatchSampler,
    Plan,
    classes_by_samples,
    n_pairs,
    neighborhoods,
    random,
    whole_classes,
)
from samplers import ALL, CASES, LONG_TAIL, Case, index_of, labels_of, trained

each_case = pytest.mark.parametrize("case", ALL)


def test_the_cases_cover_the_registry() -> None:
    assert set(CASES) == set(SAMPLERS) | {"hierarchical"}  # which takes the parents too
    assert all(case.name == name for name, cases in CASES.items() for case in cases)


@each_case
def test_has_as_many_batches_as_its_length_says(case: Case) -> None:
    sampler: BatchSampler = case.build()
    for _ in range(3):
        expected = len(sampler)
        batches = []
        for batch in sampler:
            batches.append(batch)
            sampler.advance()
        assert len(batches) == expected > 1
        assert all(type(number) is int for batch in batches for number in batch)


@pytest.mark.parametrize("case", [param for param in ALL if param.values[0].covers])
def test_sees_every_sample_and_class_in_every_epoch(case: Case) -> None:
    sampler = case.build()
    for _ in range(3):
        seen = set(chain.from_iterable(sampler))
        assert len(seen) == sum(case.sizes) - case.never


@each_case
def test_repeats_itself_with_the_same_seed_only(case: Case) -> None:
    steps = 2 * len(case.build())
    batches = trained(case, case.build(seed=3), steps)
    assert trained(case, case.build(seed=3), steps) == batches
    assert trained(case, case.build(seed=4), steps) != batches


@each_case
def test_draws_every_epoch_anew(case: Case) -> None:
    sampler = case.build()
    epochs = [list(sampler) for _ in range(4)]
    assert all(one != other for one, other in pairwise(epochs))
    orders = [sorted(map(sorted, epoch)) for epoch in epochs]  # not just in another order
    assert all(one != other for one, other in pairwise(orders))


@each_case
def test_leaves_the_global_generators_alone(case: Case) -> None:
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one = list(case.build())
    assert (np.random.get_state()[1] == before[0]).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])
    torch.manual_seed(77)
    assert list(case.build()) == one


@each_case
def test_goes_on_with_exactly_the_next_batch_from_any_position(case: Case) -> None:
    total = 3 * len(case.build())
    expected = trained(case, case.build(seed=5), total)
    sampler = case.build(seed=5)
    for done in range(total):
        saved = case.save(sampler)
        assert trained(case, case.resume(saved, seed=1234), total - done) == expected[done:]
        sampler = case.resume(saved, seed=1234)
        assert trained(case, sampler, 1) == expected[done : done + 1]


@each_case
def test_goes_on_with_the_next_epoch_from_the_end_of_one(case: Case) -> None:
    sampler = case.build()
    trained(case, sampler, len(sampler))
    saved = case.save(sampler)
    following = list(sampler)
    assert following
    assert list(case.resume(saved)) == following


@each_case
def test_starts_the_epoch_again_where_no_batch_was_reported_done(case: Case) -> None:
    sampler = case.build()
    list(sampler)
    expected = list(sampler)
    assert list(case.resume(case.save(sampler))) == expected


@each_case
def test_goes_to_the_next_epoch_after_one_cut_short(case: Case) -> None:
    expected = case.build()
    list(expected)
    sampler = case.build()
    next(iter(sampler))
    assert list(sampler) == list(expected)


@each_case
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_shares_each_batch_among_processes_without_overlap(case: Case, world_size: int) -> None:
    whole = case.build()
    parts = [case.build(rank=rank, world_size=world_size) for rank in range(world_size)]
    for _ in range(2):
        for batch, *shares in zip(whole, *parts, strict=True):
            assert list(chain.from_iterable(shares)) == batch
            sizes = [len(share) for share in shares]
            # a neighborhood's draws of a cluster stay together
            group = case.options["samples"] if case.name == "neighborhoods" else 1
            assert max(sizes) - min(sizes) <= group
            assert min(sizes) >= 1


@each_case
def test_goes_on_with_another_number_of_processes(case: Case) -> None:
    sampler = case.build(rank=1, world_size=2)
    for _ in islice(sampler, 2):
        sampler.advance()
    saved = case.save(sampler)
    parts = [case.resume(saved, rank=rank, world_size=3) for rank in range(3)]
    whole = case.resume(saved)
    assert [list(chain(*shares)) for shares in zip(*parts, strict=True)] == list(whole)


@pytest.mark.parametrize("case", [cases[1] for cases in CASES.values()], ids=list(CASES))
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_goes_on_exactly_while_the_workers_of_a_loader_work_ahead(case: Case) -> None:
    def steps(sampler: Any) -> Iterator[list[int]]:
        loader = DataLoader(
            range(1000),  # type: ignore[arg-type]
            batch_sampler=sampler,
            num_workers=2,
            prefetch_factor=2,
            collate_fn=list,  # no tensors: workers stopped while handing those over take seconds
        )
        while True:
            for batch in loader:
                case.remember(sampler, batch)
                sampler.advance()
                yield batch

    length = len(case.build())
    expected = list(islice(steps(case.build()), 2 * length + 3))
    if case.name != "neighborhoods":  # whose batches drawn ahead do not know the last losses
        assert expected == trained(case, case.build(), 2 * length + 3)
    stopped = case.build()
    done = length + 2
    assert list(islice(steps(stopped), done)) == expected[:done]
    resumed = case.resume(case.save(stopped))
    assert list(islice(steps(resumed), length + 1)) == expected[done:]


@each_case
@pytest.mark.parametrize("length", [1, 4, 50])
def test_cuts_the_same_passes_into_epochs_of_any_length(case: Case, length: int) -> None:
    total = 3 * length
    sampler = case.build(batches_per_epoch=length)
    epochs = [list(sampler) for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [len(sampler)] * 3 == [length] * 3
    passes = case.build()
    expected: list[list[int]] = []
    while len(expected) < total:
        expected += list(passes)
    assert list(chain.from_iterable(epochs)) == expected[:total]
    again = case.build(batches_per_epoch=length)
    assert trained_quietly(again, length + 1) == expected[: length + 1]
    resumed = case.resume(case.save(again), batches_per_epoch=length)
    assert trained_quietly(resumed, total - length - 1) == expected[length + 1 : total]


def trained_quietly(sampler: Any, steps: int) -> list[list[int]]:
    """The batches of training steps that leave the losses as they are."""
    batches: list[list[int]] = []
    while len(batches) < steps:
        for batch in islice(sampler, steps - len(batches)):
            batches.append(batch)
            sampler.advance()
    return batches


@each_case
def test_refuses_the_state_of_another_sampler(case: Case) -> None:
    state = case.build().state_dict()
    with pytest.raises(ValueError, match="build the sampler with the labels and options"):
        case.build(batches_per_epoch=7).load_state_dict(state)
    if case.name != "neighborhoods":
        other = Case(case.name, [*case.sizes[:-1], case.sizes[-1] + 1], case.options)
        with pytest.raises(ValueError, match=r"state_dict: expected the settings .*labels"):
            other.build().load_state_dict(state)
    with pytest.raises(ValueError, match="state_dict: expected the keys seed, epoch"):
        case.build().load_state_dict({"weight": 1})


@each_case
def test_refuses_a_report_before_the_first_batch(case: Case) -> None:
    with pytest.raises(ValueError, match="advance: expected one call for each batch"):
        case.build().advance()


@each_case
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2, "world_size": 2}, "rank: expected less than world_size, which is 2, got 2"),
        ({"rank": -1}, "rank: expected at least 0"),
        ({"world_size": 0}, "world_size: expected at least 1"),
        ({"world_size": 1000}, "world_size: expected at most .* fewer processes"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"seed": 0.5}, "seed: expected a whole number"),
        ({"batches_per_epoch": 0}, "batches_per_epoch: expected at least 1"),
    ],
)
def test_says_what_is_wrong_with_an_option(
    case: Case, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        case.build(**options)


@pytest.mark.parametrize("sampler", [classes_by_samples, whole_classes, n_pairs, random])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], r"labels: expected a vector with one label a sample, got shape \(0,\)"),
        ([[0, 1]], r"labels: expected a vector with one label a sample, got shape \(1, 2\)"),
        ([0.0, 1.0], "labels: expected integers, got float64"),
        (torch.tensor([True, False]), "labels: expected integers, got bool"),
        (np.array([0, -2]), "labels: expected 0 or more, got -2"),
    ],
)
def test_says_what_is_wrong_with_labels(
    sampler: Callable[..., Any], labels: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sampler(labels)


def index_with_an_empty_cluster() -> ClusterIndex:
    index = index_of([1, 1, 1])
    index.load_state_dict(index.state_dict() | {"clusters": torch.tensor([0, 1, 1])})
    return index


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: classes_by_samples([0, 1, 1], classes=3, samples=1),
            "classes: expected at most 2, the number of classes in labels, got 3; ask for fewer",
        ),
        (lambda: classes_by_samples([0, 1], samples=0), "samples: expected at least 1, got 0"),
        (lambda: classes_by_samples([0, 1], classes=0), "classes: expected at least 1, got 0"),
        (
            lambda: classes_by_samples([0, 0, 0, 1], classes=2, samples=3),
            "samples: expected a batch of at most 4 samples, .* got 2 x 3 = 6; ask for fewer",
        ),
        (
            lambda: whole_classes([0, 0, 0, 1], batch_size=2),
            "batch_size: expected at least 3, the samples of the largest class, got 2; use",
        ),
        (
            lambda: n_pairs([0, 0, 1], pairs=2),
            "pairs: expected at most 1, the number of classes with two samples",
        ),
        (
            lambda: random([0, 0, 1], batch_size=4, drop_last=True),
            "batch_size: expected at most 3, the number of samples, with drop_last, got 4",
        ),
        (
            lambda: len(neighborhoods(index_of([2, 2]), clusters=4)),
            "clusters: expected at most 3, a seed and the clusters of all other classes",
        ),
        (lambda: neighborhoods(index_of([2, 2]), clusters=1), "clusters: expected at least 2"),
        (
            lambda: list(neighborhoods(index_with_an_empty_cluster(), clusters=3)),
            "index: expected no cluster without a sample",
        ),
        (
            lambda: len(neighborhoods(ClusterIndex(1))),
            "index: expected clusters, got none; call its refresh",
        ),
    ],
)
def test_says_what_cannot_be_composed(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda x: torch.tensor(x).int()])
def test_takes_labels_as_a_list_an_array_or_a_tensor(kind: Callable[[Any], Any]) -> None:
    labels = labels_of(LONG_TAIL).tolist()
    expected = list(classes_by_samples(labels, classes=3, samples=4))
    assert list(classes_by_samples(kind(labels), classes=3, samples=4)) == expected


def test_every_sampler_is_a_function_that_returns_a_batch_sampler() -> None:
    for name, cases in CASES.items():
        assert type(cases[0].build()) is BatchSampler, name


def test_a_plan_of_ones_own_makes_a_sampler() -> None:
    """Here of pairs of neighbors in a shuffled row; epochs, resuming and sharding come with it."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        return np.split(rng.permutation(6), 3)

    plan = Plan(draw, batch_size=2, smallest=2, settings={"pairs": 3})
    sampler, other = BatchSampler(plan, seed=4), BatchSampler(plan)
    for batch in islice(sampler, 2):
        assert len(batch) == sampler.batch_size
        sampler.advance()
    other.load_state_dict(sampler.state_dict())
    assert list(other) == list(BatchSampler(plan, seed=4))[2:]
    halves = [BatchSampler(plan, rank=rank, world_size=2) for rank in range(2)]
    whole = list(BatchSampler(plan))
    assert [list(chain(*parts)) for parts in zip(*halves, strict=True)] == whole
    assert sorted(chain(*whole)) == list(range(6))
