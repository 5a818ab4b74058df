"""The head: pooling, the embedding layer, its scale, length 1 at test."""

import pytest
import torch
from torch import Tensor

from kinspace.models import POOLINGS, Head, pool


def maps(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_pooling_a_map_is_the_loop_over_its_positions() -> None:
    features = maps(2, 3, 4, 5)
    for sample in range(2):
        for channel in range(3):
            values = [features[sample, channel, i, j].item() for i in range(4) for j in range(5)]
            mean, largest = sum(values) / 20, max(values)
            for pooling, expected in (("avg", mean), ("max", largest), ("both", mean + largest)):
                found = pool(features, pooling)[sample, channel].item()
                assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pooling", ["avg", "max", "both"])
def test_tokens_are_pooled_as_the_map_of_their_patches(pooling: str) -> None:
    features = maps(2, 3, 4, 5)
    patches = features.flatten(2).transpose(1, 2)
    tokens = torch.cat([torch.full((2, 2, 3), 1e6, dtype=torch.float64), patches], 1)
    torch.testing.assert_close(pool(tokens, pooling, prefix_tokens=2), pool(features, pooling))


def test_the_class_token_is_the_first() -> None:
    tokens = maps(2, 7, 3)
    assert torch.equal(pool(tokens, "token", prefix_tokens=1), tokens[:, 0])
    with pytest.raises(ValueError, match="'token' expects a transformer's tokens, got a map"):
        pool(maps(2, 3, 4, 4), "token")


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_pass_every_pooling_as_they_are(pooling: str) -> None:
    vectors = maps(4, 3)
    assert torch.equal(pool(vectors, pooling), vectors)


def test_training_keeps_lengths_and_eval_mode_makes_them_one() -> None:
    features = maps(6, 8, 2, 2)
    free, bound = Head(8, 5).double(), Head(8, 5, normalize=True).double()
    lengths = free(features).norm(dim=1)
    assert (lengths - 1).abs().max() > 0.1
    ones = torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(bound(features).norm(dim=1), ones)
    torch.testing.assert_close(free.eval()(features).norm(dim=1), ones)
    torch.testing.assert_close(bound.eval()(features).norm(dim=1), ones)
    assert torch.equal(free(features, normalize=False).norm(dim=1), lengths)


def test_normalized_embeddings_have_the_length_asked_for_in_training_and_one_at_test() -> None:
    features = maps(6, 8, 2, 2)
    head = Head(8, 5, normalize=4.0).double()
    assert head.config()["normalize"] == 4.0
    assert head.normalize is True
    ones = torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(head(features).norm(dim=1), 4 * ones)
    torch.testing.assert_close(head.eval()(features).norm(dim=1), ones)
    # as the loss sees them, also in eval mode
    torch.testing.assert_close(head(features, normalize=True).norm(dim=1), 4 * ones)


def test_groups_are_normalized_each_by_itself_and_the_whole_as_before() -> None:
    features = maps(6, 8, 2, 2)
    head = Head(8, 6, normalize=2.0, groups=(1, 2, 3)).double()
    assert head.groups == [1, 2, 3]
    plain = head(features, normalize=False)
    for length, embeddings in ((2.0, head(features)), (1.0, head.eval()(features))):
        parts = embeddings.split([1, 2, 3], 1)
        for part, before in zip(parts, plain.split([1, 2, 3], 1), strict=True):
            expected = before / before.norm(dim=1, keepdim=True) * length / 3**0.5
            torch.testing.assert_close(part, expected)
        torch.testing.assert_close(
            embeddings.norm(dim=1), torch.full((6,), length, dtype=torch.float64)
        )


def test_the_cosine_of_the_whole_is_the_mean_cosine_of_the_groups() -> None:
    first, second = Head(8, 7, groups=3).double().eval()(maps(2, 8))
    cosines = [
        torch.nn.functional.cosine_similarity(one, other, dim=0)
        for one, other in zip(first.split([3, 2, 2]), second.split([3, 2, 2]), strict=True)
    ]
    torch.testing.assert_close(first @ second, torch.stack(cosines).mean())


def test_groups_are_in_the_config_only_where_there_are_some() -> None:
    assert "groups" not in Head(8, 6).config()
    head = Head(8, 6, groups=2, seed=3)
    assert head.config()["groups"] == [3, 3]
    again = Head(8, **head.config()).eval()
    features = torch.randn(2, 8)
    assert torch.equal(again(features), head.eval()(features))
    assert Head(6, None, groups=[2, 4]).groups == [2, 4]


def test_a_zero_feature_has_a_zero_embedding_and_a_finite_gradient() -> None:
    head = Head(4, 3).eval()
    features = torch.zeros(2, 4, requires_grad=True)
    embeddings = head(features)
    embeddings.sum().backward()
    assert torch.equal(embeddings, torch.zeros(2, 3))
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_without_a_dimension_the_features_are_the_embedding() -> None:
    head = Head(6, None)
    features = maps(3, 6, 2, 2)
    assert head.dim == 6
    assert list(head.parameters()) == []
    assert torch.equal(head(features), features.mean((2, 3)))


def test_the_seed_decides_the_layer_and_nothing_else_does() -> None:
    first = Head(8, 5, seed=3)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    again = Head(8, 5, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert first.linear is not None
    assert again.linear is not None
    assert torch.equal(first.linear.weight, again.linear.weight)
    assert not torch.equal(first.linear.weight, Head(8, 5, seed=4).linear.weight)  # type: ignore[union-attr]


def test_the_layer_starts_out_keeping_the_mean_length() -> None:
    features = torch.randn(2000, 64)
    ratio = Head(64, 256)(features).norm(dim=1) / features.norm(dim=1)
    assert ratio.mean().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("norm", [1.0, 0.25])
def test_calibration_gives_the_mean_length_asked_for(norm: float) -> None:
    head = Head(16, 8, dropout=0.5).double()
    assert head.linear is not None
    with torch.no_grad():
        head.linear.bias.normal_()
    features = 37 * maps(50, 16).abs()
    head.eval()
    before = head.embed(features, normalize=False)
    assert head.calibrate(features, norm=norm) == pytest.approx(before.norm(dim=1).mean().item())
    after = head.embed(features, normalize=False)
    assert after.norm(dim=1).mean().item() == pytest.approx(norm, rel=1e-12)
    torch.testing.assert_close(after / after.norm(dim=1, keepdim=True), head.embed(features))
    torch.testing.assert_close(
        after / before, torch.full_like(after, (after / before)[0, 0].item())
    )


def test_calibration_says_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="expected a head with an embedding layer, got dim=None"):
        Head(4, None).calibrate(torch.ones(2, 4))
    with pytest.raises(ValueError, match="a finite length above 0, got 0 on average"):
        Head(4, 2).calibrate(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="a finite length above 0, got nan"):
        Head(4, 2).calibrate(torch.full((2, 4), float("nan")))


def test_dropout_acts_in_training_only() -> None:
    head = Head(1000, None, dropout=0.5)
    features = torch.ones(1, 1000)
    assert 350 < (head(features) == 0).sum() < 650
    assert (head.eval()(features, normalize=False) == 1).all()


def test_embeddings_are_full_precision_under_autocast() -> None:
    head = Head(8, 4).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = head(torch.randn(3, 8, 2, 2).bfloat16())
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mean"}, "pooling: expected one of 'avg', 'max', 'both', 'token', got 'mean'"),
        ({"dropout": 1.0}, "dropout: expected a share below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout: expected at least 0, got -0.1"),
        ({"dim": 0}, "dim: expected at least 1, got 0"),
        ({"groups": 0}, "groups: expected at least 1, got 0"),
        ({"groups": [3, 0]}, "groups: expected at least 1, got 0"),
        ({"groups": []}, r"groups: expected a number of groups or a list of sizes, got \[\]"),
        ({"dim": 8, "groups": [3, 4]}, r"sizes of sum 8, the dimension, got \[3, 4\] of sum 7"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Head(4, **options)  # type: ignore[arg-type]


def test_another_rank_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"features: expected a map .* got shape \(3,\)"):
        Head(3, 2)(torch.zeros(3))
