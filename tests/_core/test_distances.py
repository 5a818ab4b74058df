"""Every distance that a loss may take, against a loop; and losses with it against others."""

import math

import pytest
import torch
from torch import Tensor

import loops
from batches import DEGENERATE_BATCHES, random_batch
from gradients import disagreement, evaluate
from kinspace._core.distances import (
    DISTANCES,
    distance_table,
    listed_distances,
    similarity_table,
)
from kinspace.losses import LOSSES

EVERY = pytest.mark.parametrize("word", sorted(DISTANCES))
BATCHES = {"random": random_batch(1), **DEGENERATE_BATCHES}
FLAT = ["euclidean", "squared_euclidean", "manhattan"]
METRICS = ["euclidean", "manhattan", "hyperbolic"]


@EVERY
def test_agrees_with_the_loop(word: str) -> None:
    measure = loops.measure_of(word)
    # off the kinks of the cut at 8, and below the ends of float64
    for name in set(BATCHES) - {"tiny_scale", "huge_scale"}:
        x = BATCHES[name].embeddings
        y = x.flip(0)[:5] + 0.25

        def table(x: Tensor, y: Tensor) -> Tensor:
            return distance_table(x, y, distance=word).square().sum()

        def loop(x: Tensor, y: Tensor) -> Tensor:
            return torch.stack([measure(a, b) ** 2 for a in x for b in y]).sum()

        given = {"x": x, "y": y}
        found, expected = evaluate(table, given), evaluate(loop, given)
        assert disagreement(found, expected, value=1e-9, gradient=1e-6) is None, name


@EVERY
def test_is_finite_twice_over_whatever_the_vectors(word: str) -> None:
    for name, batch in BATCHES.items():
        x = batch.embeddings.float().requires_grad_()
        distances = distance_table(x, distance=word)
        (slope,) = torch.autograd.grad(distances.sum(), x, create_graph=True)
        assert distances.isfinite().all(), name
        assert slope.isfinite().all(), name
        if slope.requires_grad:
            (second,) = torch.autograd.grad(slope.square().sum(), x)
            assert second.isfinite().all() or name in ("tiny_scale", "huge_scale"), name


@EVERY
def test_listed_pairs_have_the_distances_of_the_table(word: str) -> None:
    x, y = random_batch(1).embeddings, random_batch(2).embeddings[:7]
    first, second = torch.tensor([0, 3, 3, 11]), torch.tensor([6, 0, 2, 3])
    for other in (None, y):
        table = distance_table(x, other, distance=word)
        found = listed_distances(x, first, second, other, distance=word)
        torch.testing.assert_close(found, table[first, second])


@pytest.mark.parametrize("word", METRICS)
def test_is_a_metric(word: str) -> None:
    x = random_batch(1, classes=5, per_class=4).embeddings
    d = distance_table(x, distance=word)
    assert torch.equal(d.diagonal(), torch.zeros(20).double())
    torch.testing.assert_close(d, d.T)
    assert (d[:, None, :] <= d[:, :, None] + d[None] + 1e-12).all()


@pytest.mark.parametrize("word", FLAT)
def test_a_flat_distance_ignores_where_the_batch_lies(word: str) -> None:
    x = random_batch(1).embeddings
    torch.testing.assert_close(
        distance_table(x + 3.0, distance=word), distance_table(x, distance=word)
    )


def test_the_hyperbolic_distance_is_curved() -> None:
    """Straight through the origin lengths add; aside, the way leads nearly through the origin."""
    x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [1.0, 0.0]]).double()
    d = distance_table(x, distance="hyperbolic")
    torch.testing.assert_close(d[0, [1, 3]], torch.tensor([6.0, 2.0]).double())
    across = math.acosh(math.cosh(3.0) ** 2)
    torch.testing.assert_close(d[0, 2], torch.tensor(across).double())
    assert d[0, 2] > 5.2  # 6 less log 2, where the flat distance is 4.24
    near = distance_table(1e-4 * x, distance="hyperbolic")
    torch.testing.assert_close(near, 1e-4 * torch.cdist(x, x), rtol=1e-6, atol=0.0)


def test_a_similarity_is_the_negative_distance_and_the_cosine_itself() -> None:
    x = random_batch(1).embeddings
    for word in DISTANCES:
        shift = 1.0 if word == "cosine" else 0.0
        found = similarity_table(x, distance=word)
        torch.testing.assert_close(found, shift - distance_table(x, distance=word))


@pytest.mark.parametrize("name", ["contrastive", "triplet", "nca", "multi_similarity", "margin"])
def test_an_unknown_distance_is_answered_with_the_known_ones(name: str) -> None:
    sizes = {"num_classes": 3} if name == "margin" else {}
    with pytest.raises(ValueError, match=r"^distance: expected one of 'cosine', .*got 'l2'"):
        LOSSES[name](**sizes, distance="l2")


def test_triplet_and_contrastive_have_the_values_of_pytorch_metric_learning() -> None:
    pml = pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import distances, losses, reducers

    assert pml
    x, labels = random_batch(3)
    plain = {"normalize_embeddings": False}
    for word, theirs in {
        "manhattan": distances.LpDistance(p=1, **plain),
        "euclidean": distances.LpDistance(p=2, **plain),
        "squared_euclidean": distances.LpDistance(p=2, power=2, **plain),
        "dot": distances.DotProductSimilarity(**plain),
        "cosine": distances.CosineSimilarity(),
    }.items():
        found = LOSSES["triplet"](margin=0.3, distance=word)(x, labels)
        mean = {"distance": theirs, "reducer": reducers.MeanReducer()}
        expected = losses.TripletMarginLoss(margin=0.3, **mean)(x, labels)
        torch.testing.assert_close(found, expected)
        if not theirs.is_inverted:
            found = LOSSES["contrastive"](margin=2.0, distance=word)(x, labels)
            expected = losses.ContrastiveLoss(pos_margin=0, neg_margin=2.0, **mean)(x, labels)
            torch.testing.assert_close(found, expected)
