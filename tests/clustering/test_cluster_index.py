"""The cluster index: what it remembers, whom it calls near, and where it starts."""

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from kinspace.clustering import ClusterIndex, class_kmeans, nearest_impostors, seed_probabilities
from reference_cases import read

CASES = ["magnet_sampling__000", "magnet_sampling__001"]


def random_set(samples: int = 60, classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    return torch.randn(samples, 5, generator=generator) + labels[:, None], labels


def filled(**options: Any) -> ClusterIndex:
    index = ClusterIndex(3, **options)
    index.refresh(*random_set())
    return index


# --- seed probabilities --------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_seed_probabilities_are_those_of_the_worked_cases(case: str) -> None:
    _, arrays = read(case)
    found = seed_probabilities(arrays["in_loss_cache"], arrays["in_assign"], 10)
    torch.testing.assert_close(found, arrays["out_p"], rtol=1e-12, atol=0)


def test_a_cluster_not_seen_counts_as_the_mean_of_those_seen() -> None:
    losses = torch.tensor([4.0, 2.0, math.nan, math.nan, 0.0])
    found = seed_probabilities(losses, torch.tensor([0, 0, 1, 2, 3]), 4)
    assert found.tolist() == pytest.approx([3 / 6, 1.5 / 6, 1.5 / 6, 0])


def test_a_loss_of_zero_is_not_unseen() -> None:
    found = seed_probabilities(torch.tensor([0.0, 1.0, math.nan]), torch.tensor([0, 1, 2]), 3)
    assert found.tolist() == pytest.approx([0, 2 / 3, 1 / 3])


@pytest.mark.parametrize("losses", [[0.0, 0.0, 0.0], [math.nan] * 3, [0.0, math.nan, math.nan]])
def test_with_nothing_to_go_by_all_clusters_are_alike(losses: list[float]) -> None:
    found = seed_probabilities(torch.tensor(losses), torch.tensor([0, 1, 1]), 4)
    assert found.tolist() == [0.25] * 4


# --- impostors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_impostors_are_those_of_the_worked_cases(case: str) -> None:
    params, arrays = read(case)
    centers, labels = arrays["in_mu"], arrays["in_cluster_class"]
    for seed, expected in enumerate(arrays["out_neighbours"]):
        assert torch.equal(nearest_impostors(centers, labels, seed, params["M"]), expected)
        single = nearest_impostors(centers.float(), labels, seed, params["M"])
        assert torch.equal(single, expected)


def impostors_by_a_loop(centers: Tensor, labels: Tensor, seed: int, m: int) -> list[int]:
    others = [k for k in range(len(centers)) if labels[k] != labels[seed]]
    far = {k: float((centers[k].double() - centers[seed].double()).square().sum()) for k in others}
    return [seed, *sorted(others, key=lambda k: (far[k], k))[: m - 1]]


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equally_near_impostors_the_lower_comes_first(dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    # on a grid: many clusters are as near as others, some in one place
    centers = torch.randint(-2, 3, (200, 3), generator=generator).to(dtype) * scale
    labels = torch.randint(0, 40, (200,), generator=generator)
    for seed in range(0, 200, 9):
        for m in (1, 2, 7, 50):
            found = nearest_impostors(centers, labels, seed, m).tolist()
            assert found == impostors_by_a_loop(centers, labels, seed, m)


def test_impostors_that_differ_in_the_last_digit_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = 1000 + 1e-3 * torch.randn(300, 64, generator=generator)
    labels = torch.arange(300) // 2
    for seed in range(0, 300, 17):
        with torch.autocast("cpu", torch.bfloat16):
            found = nearest_impostors(centers, labels, seed, 12).tolist()
        assert found == impostors_by_a_loop(centers, labels, seed, 12)


def test_there_may_be_fewer_impostors_than_asked_for() -> None:
    centers, labels = torch.tensor([[0.0], [1.0], [5.0], [3.0]]), torch.tensor([0, 0, 1, 2])
    assert nearest_impostors(centers, labels, 0, 9).tolist() == [0, 3, 2]
    assert nearest_impostors(centers, torch.zeros(4, dtype=torch.long), 2, 9).tolist() == [2]


def test_two_impostors_may_be_of_one_class() -> None:
    centers = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    assert nearest_impostors(centers, torch.tensor([0, 1, 1, 2]), 0, 3).tolist() == [0, 1, 2]


# --- the index -----------------------------------------------------------------------------------


def test_a_refresh_clusters_every_class() -> None:
    x, labels = random_set()
    index = filled()
    found = class_kmeans(x, labels, 3)
    assert torch.equal(index.clusters, found.clusters)
    assert torch.equal(index.centers, found.centers)
    assert torch.equal(index.cluster_labels, found.cluster_labels)


def test_each_refresh_starts_from_other_seeds() -> None:
    index = filled(iterations=1)
    before = index.clusters
    index.refresh(*random_set())
    assert not torch.equal(before, index.clusters)


def test_the_number_of_clusters_may_come_from_the_data() -> None:
    index = ClusterIndex("auto", max_clusters=4)
    x = torch.tensor([[0.0], [0.1], [9.0], [9.1], [5.0], [5.0], [5.1], [5.1]])
    index.refresh(x, torch.tensor([3, 3, 3, 3, 1, 1, 1, 1]))
    assert index.cluster_labels.tolist() == [1, 1, 3, 3]


def test_members_are_the_samples_of_a_cluster() -> None:
    index = filled()
    for cluster in range(len(index.cluster_labels)):
        expected = (index.clusters == cluster).nonzero()[:, 0]
        assert torch.equal(index.members(cluster), expected)


def test_the_index_gives_the_impostors_of_its_centers() -> None:
    index = filled()
    for seed in range(len(index.cluster_labels)):
        expected = impostors_by_a_loop(index.centers, index.cluster_labels, seed, 5)
        assert index.nearest_impostors(seed, 5).tolist() == expected


def test_the_last_loss_of_a_sample_counts() -> None:
    index = filled()
    index.remember(torch.tensor([4, 2, 4]), torch.tensor([1.0, 2.0, 3.0]))
    index.remember(torch.tensor([2]), torch.tensor([0.5], requires_grad=True))
    assert index.losses[[2, 4]].tolist() == [0.5, 3.0]
    assert int(index.losses.isnan().sum()) == 58


def test_losses_stay_with_their_samples_over_a_refresh() -> None:
    index = filled()
    losses = torch.rand(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    index.remember(torch.arange(30), losses)
    before = index.seed_probabilities()
    x, labels = random_set(seed=1)
    index.refresh(x, labels)
    assert torch.equal(index.losses[:30], losses)
    after = index.seed_probabilities()
    expected = seed_probabilities(index.losses, index.clusters, len(index.cluster_labels))
    assert torch.equal(after, expected)
    assert not torch.equal(after, before)


def next_step(index: ClusterIndex) -> dict[str, Any]:
    """All that is asked of an index, after one more step."""
    index.remember(torch.tensor([7, 9]), torch.tensor([0.25, 4.0]))
    before = index.seed_probabilities().tolist()
    index.refresh(*random_set(seed=5))
    return {
        "before": before,
        "probabilities": index.seed_probabilities().tolist(),
        "clusters": index.clusters.tolist(),
        "centers": index.centers.tolist(),
        "impostors": [index.nearest_impostors(seed, 6).tolist() for seed in range(10)],
        "members": [index.members(cluster).tolist() for cluster in range(10)],
    }


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_restored_index_takes_exactly_the_same_next_step(steps: int) -> None:
    index = ClusterIndex(3, iterations=2)
    for step in range(steps):
        index.refresh(*random_set(seed=step))
        index.remember(torch.arange(20), torch.arange(20) / (step + 1))
    file = io.BytesIO()
    torch.save(index.state_dict(), file)
    file.seek(0)
    restored = ClusterIndex(3, iterations=2)
    restored.load_state_dict(torch.load(file, weights_only=True))
    if not steps:
        index.refresh(*random_set())
        restored.refresh(*random_set())
    assert next_step(restored) == next_step(index)


def test_a_saved_state_does_not_change_with_the_index() -> None:
    index = filled()
    index.remember(torch.tensor([0]), torch.tensor([1.0]))
    state = index.state_dict()
    index.remember(torch.tensor([0]), torch.tensor([2.0]))
    assert state["losses"][0] == 1.0  # type: ignore[index]
    other = ClusterIndex(3)
    other.load_state_dict(state)
    other.remember(torch.tensor([0]), torch.tensor([5.0]))
    assert state["losses"][0] == 1.0  # type: ignore[index]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_index_on_a_gpu_tells_the_same() -> None:
    index, other = filled(), ClusterIndex(3)
    x, labels = random_set()
    other.refresh(x.cuda(), labels.cuda())
    assert other.centers.is_cuda
    for one in (index, other):
        one.remember(torch.tensor([1, 2]).to(one.centers.device), torch.tensor([1.0, 2.0]))
    assert torch.equal(index.seed_probabilities(), other.seed_probabilities())
    assert torch.equal(index.nearest_impostors(2, 6), other.nearest_impostors(2, 6))
    assert torch.equal(index.members(2), other.members(2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ClusterIndex(0), "clusters_per_class: expected at least 1, got 0"),
        (lambda: ClusterIndex("K"), "expected a whole number or 'auto', got 'K'"),  # type: ignore[arg-type]
        (lambda: ClusterIndex(2).members(0), r"expected clusters; call refresh\("),
        (lambda: ClusterIndex(2).seed_probabilities(), r"expected clusters; call refresh\("),
        (lambda: filled().members(18), r"cluster: expected less than 18 \(the clusters\), got 18"),
        (lambda: filled().nearest_impostors(-1, 3), "seed: expected at least 0, got -1"),
        (lambda: filled().nearest_impostors(99, 3), "seed: expected less than 18"),
        (lambda: filled().nearest_impostors(0, 0), "m: expected at least 1, got 0"),
        (
            lambda: filled().refresh(*random_set(30)),
            "embeddings: expected 60 rows, the samples of the last refresh, got 30; make a new",
        ),
        (
            lambda: filled().remember(torch.tensor([60]), torch.tensor([1.0])),
            "samples: expected 0 to 59",
        ),
        (
            lambda: filled().remember(torch.tensor([1, 2]), torch.tensor([1.0])),
            r"expected two vectors of one length, got \(2,\) and \(1,\)",
        ),
        (
            lambda: filled().remember(torch.tensor([1]), torch.tensor([math.nan])),
            "losses: expected finite numbers from 0 on",
        ),
        (
            lambda: filled().remember(torch.tensor([1]), torch.tensor([-1.0])),
            "losses: expected finite numbers from 0 on",
        ),
        (lambda: filled().load_state_dict({"clusters": 1}), "state: expected .*'losses'"),
        (
            lambda: nearest_impostors(torch.zeros(3, 1), torch.zeros(2), 0, 1),
            r"cluster_labels: expected shape \(3,\), one for each center, got \(2,\)",
        ),
    ],
)
def test_says_what_is_wrong(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


def test_disagreement_is_of_clusters_of_the_same_class_and_ends_with_a_refresh() -> None:
    index = ClusterIndex(2)
    x = torch.tensor([[0.0], [1.0], [8.0], [9.0], [4.0], [5.0]])
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    index.refresh(x, labels)
    everything = torch.arange(6)
    assert index.compare(everything, x) == 0.0
    moved = x.clone()
    moved[0], moved[4] = 9.0, 9.5  # to the other cluster of its class, and to another class
    moved[5] = 9.6
    assert index.compare(everything, moved) == pytest.approx(0.1 * 2 / 6)
    again = ClusterIndex(2)
    again.load_state_dict(index.state_dict())
    assert again.disagreement == index.disagreement
    index.refresh(x, labels)
    assert index.disagreement == 0.0
