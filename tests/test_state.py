"""What modules remember: saved, restored, moved, and left alone in evaluation."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import loops
from batches import NUM_CLASSES, Batch, random_batch, random_centers
from kinspace.losses import (
    ALMN,
    NCM,
    Center,
    ClusterNCA,
    FixedMargin,
    Magnet,
    Margin,
    ProxyAnchor,
    almn_loss,
    center_loss,
    cluster_nca_loss,
    fixed_margin_loss,
    magnet_loss,
    ncm_loss,
    update_centers,
)
from kinspace.regularizers import (
    CenterSample,
    DensityAdaptivity,
    HypersphericalEnergy,
    LogExpSpread,
    PowerSpread,
    UniformSpread,
    density,
    sample_centers,
)
from modules import MODULES

DIM = 4
EVERY_MODULE = pytest.mark.parametrize("name", MODULES)

# What each module keeps; a module that is not here keeps nothing.
KEPT: dict[str, set[str]] = {
    "adversarial": {"hidden", "output"},
    "almn": {"centers", "seen"},
    "center": {"centers", "seen"},
    "density": {"targets", "original"},
    "fixed_margin": {"centers", "seen"},
    "hierarchical_triplet": {"centers", "seen"},
    "hyperspherical_energy": {"sample.draws._extra_state"},
    "log_exp_spread": {"sample.draws._extra_state"},
    "magnet": {"variance", "batches"},
    "margin": {"boundary", "draws._extra_state"},
    "ncm": {"centers", "seen"},
    "normalized_softmax": {"weight"},
    "pddm": {"pairwise", "joint"},
    "power_spread": {"sample.draws._extra_state"},
    "proxy_anchor": {"proxies"},
    "proxy_nca": {"proxies"},
    "softmax": {"weight", "bias"},
    "uniform_spread": {"sample.draws._extra_state"},
}

# Beside the modules of the registries, those whose draws are part of their state.
BUILDERS: dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda module=module: module.build(NUM_CLASSES, DIM)
        for name, module in MODULES.items()
    },
    "margin without a boundary weight": lambda: Margin(NUM_CLASSES, seed=3),
    "log_exp_spread of a sample": lambda: LogExpSpread(max_centers=6),
    "power_spread of a sample": lambda: PowerSpread(max_centers=6, seed=5),
    "hyperspherical_energy of a sample": lambda: HypersphericalEnergy(max_centers=6),
    "uniform_spread of a sample": lambda: UniformSpread(max_centers=6),
}
EVERY_BUILDER = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


def batch_of(seed: int) -> Batch:
    return random_batch(seed, classes=3 + seed % 4, per_class=2 + seed % 2, dim=DIM)


def train(module: nn.Module, seed: int) -> tuple[Tensor, list[Tensor]]:
    """One step of training, its optimizer's step included; the loss and all gradients."""
    batch = batch_of(seed)
    leaf = batch.embeddings.clone().requires_grad_()
    module.zero_grad()
    loss = module(leaf, batch.labels)
    loss.backward()
    assert leaf.grad is not None
    gradients = [leaf.grad, *(p.grad.clone() for p in module.parameters() if p.grad is not None)]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return loss.detach(), gradients


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def identical(first: Any, second: Any) -> None:
    torch.testing.assert_close(first, second, rtol=0.0, atol=0.0)


# --- saved and restored --------------------------------------------------------------------------


@EVERY_MODULE
def test_the_state_holds_what_the_module_learns_and_remembers(name: str) -> None:
    module = MODULES[name].build(NUM_CLASSES, DIM)
    assert set(module.state_dict()) == KEPT.get(name, set())


@EVERY_BUILDER
def test_a_restored_module_goes_on_with_the_same_next_steps(
    build: Callable[[], nn.Module],
) -> None:
    module = build().double()
    for seed in range(3):
        train(module, seed)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)  # new proxies start elsewhere
    restored = build().double()
    restored.load_state_dict(torch.load(file, weights_only=True))
    for seed in range(3, 6):
        identical(train(restored, seed), train(module, seed))
        identical(snapshot(restored), snapshot(module))


@EVERY_BUILDER
def test_a_copy_lives_a_life_of_its_own(build: Callable[[], nn.Module]) -> None:
    module = build().double()
    train(module, 0)
    before = snapshot(module)
    twin = copy.deepcopy(module)
    first = train(twin, 1)
    identical(snapshot(module), before)
    identical(train(module, 1), first)


@EVERY_BUILDER
def test_everything_moves_to_another_dtype(build: Callable[[], nn.Module]) -> None:
    module = build().to(torch.float64)
    for value in module.state_dict().values():
        assert value.dtype in (torch.float64, torch.int64, torch.bool)
    loss, gradients = train(module, 0)
    assert loss.dtype == torch.float64
    for value in (*gradients, *(v for v in snapshot(module).values() if v.is_floating_point())):
        assert value.dtype == torch.float64


@EVERY_BUILDER
def test_float32_state_serves_embeddings_of_other_dtypes(build: Callable[[], nn.Module]) -> None:
    """As in evaluation in float64, or under autocast with half precision embeddings."""
    module = build()
    kinds = {name: value.dtype for name, value in module.state_dict().items()}
    batch = batch_of(0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        leaf = batch.embeddings.to(dtype, copy=True).requires_grad_()
        loss = module(leaf, batch.labels)
        loss.backward()
        assert loss.isfinite()
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
    assert {name: value.dtype for name, value in module.state_dict().items()} == kinds


# --- in evaluation, and with several calls before a backward -------------------------------------


@EVERY_BUILDER
def test_evaluation_changes_nothing_and_repeats_itself(build: Callable[[], nn.Module]) -> None:
    module = build().double()
    train(module, 0)
    before = snapshot(module)
    module.eval()
    batch = batch_of(1)
    first, again = module(*batch), module(*batch)
    identical(first, again)
    identical(snapshot(module), before)


@EVERY_BUILDER
def test_two_calls_may_come_before_one_backward(build: Callable[[], nn.Module]) -> None:
    """Gradients are accumulated so; state that moves in place must not spoil the first call's."""
    module, other = build().double(), build().double()
    other.load_state_dict(module.state_dict())
    leaves = [batch_of(seed).embeddings.clone().requires_grad_() for seed in (0, 1)]
    losses = [module(leaf, batch_of(seed).labels) for seed, leaf in enumerate(leaves)]
    torch.stack(losses).sum().backward()
    for seed, leaf in enumerate(leaves):
        alone = batch_of(seed).embeddings.clone().requires_grad_()
        other(alone, batch_of(seed).labels).backward()
        identical(leaf.grad, alone.grad)


# --- centers that follow the embeddings ----------------------------------------------------------

CENTERED: dict[str, tuple[type[nn.Module], Callable[..., Tensor]]] = {
    "almn": (ALMN, almn_loss),
    "fixed_margin": (FixedMargin, fixed_margin_loss),
    "center": (Center, center_loss),
}
EVERY_CENTERED = pytest.mark.parametrize(("kind", "function"), CENTERED.values(), ids=CENTERED)


def class_means(batch: Batch) -> dict[int, Tensor]:
    return {
        label: batch.embeddings[batch.labels == label].mean(0)
        for label in sorted(set(batch.labels.tolist()))
    }


@EVERY_CENTERED
def test_a_class_seen_for_the_first_time_starts_at_its_batch_mean(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    module = kind(NUM_CLASSES, DIM).double()
    batch = batch_of(0)
    means = class_means(batch)
    started = torch.zeros(NUM_CLASSES, DIM, dtype=torch.float64)
    for label, mean in means.items():
        started[label] = mean
    loss = module(*batch)
    torch.testing.assert_close(loss, function(*batch, started))
    # at the mean of its samples a center has no reason to move
    torch.testing.assert_close(module.centers, started)
    assert module.seen.nonzero().flatten().tolist() == sorted(means)


@EVERY_CENTERED
def test_a_known_class_moves_by_the_rule_after_the_loss(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    module = kind(NUM_CLASSES, DIM, rate=0.3).double()
    module(*batch_of(0))
    before = module.centers.clone()
    seen = module.seen.clone()
    batch = batch_of(3)  # holds classes that were not in the first
    started = before.clone()
    for label, mean in class_means(batch).items():
        if not seen[label]:
            started[label] = mean
    assert not torch.equal(started, before)
    torch.testing.assert_close(module(*batch), function(*batch, started))
    expected = loops.update_centers(started, *batch, rate=0.3)
    torch.testing.assert_close(module.centers, expected)
    assert not torch.equal(module.centers, before)


@EVERY_CENTERED
def test_in_evaluation_a_new_class_is_measured_from_its_batch_mean(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    trained, fresh = kind(NUM_CLASSES, DIM).double(), kind(NUM_CLASSES, DIM).double().eval()
    batch = batch_of(2)
    torch.testing.assert_close(fresh(*batch), trained(*batch))
    assert not fresh.seen.any()
    assert fresh.centers.eq(0).all()


def test_ncm_leaves_out_the_classes_it_has_not_seen() -> None:
    module = NCM(NUM_CLASSES, DIM, rate=0.3).double()
    for seed in (0, 3):  # the second batch holds classes that were not in the first
        batch = batch_of(seed)
        started, seen = module.centers.clone(), module.seen.clone()
        for label, mean in class_means(batch).items():
            started[label] = started[label] if seen[label] else mean
            seen[label] = True
        assert not seen.all()
        places = seen.cumsum(0) - 1  # of the seen classes among themselves
        expected = ncm_loss(batch.embeddings, places[batch.labels], started[seen])
        torch.testing.assert_close(module(*batch), expected)
        moved = loops.update_centers(started, *batch, rate=0.3)
        torch.testing.assert_close(module.centers, moved)
        identical(module.seen, seen)


@EVERY_CENTERED
def test_centers_are_no_parameters_and_no_part_of_the_graph(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    module = kind(NUM_CLASSES, DIM).double()
    embeddings, labels = batch_of(0)
    module(embeddings.clone().requires_grad_(), labels)
    assert list(module.parameters()) == []
    assert not module.centers.requires_grad


def test_update_centers_leaves_its_arguments_alone() -> None:
    embeddings, labels = batch_of(0)
    embeddings.requires_grad_()
    centers = random_centers(0, dim=DIM)
    given = [tensor.detach().clone() for tensor in (centers, embeddings, labels)]
    moved = update_centers(centers, embeddings, labels)
    identical([centers, embeddings.detach(), labels], given)
    assert not moved.requires_grad
    assert moved.data_ptr() != centers.data_ptr()
    identical(update_centers(centers, embeddings, labels), moved)


def test_update_centers_moves_only_the_classes_of_the_batch() -> None:
    centers = random_centers(0, dim=DIM)
    embeddings = random_batch(0, dim=DIM).embeddings[:3]
    moved = update_centers(centers, embeddings, torch.tensor([5, 2, 5]))
    still = [label for label in range(NUM_CLASSES) if label not in (2, 5)]
    identical(moved[still], centers[still])
    # one sample: half way of rate 1/2 to it; two: two thirds of it to their mean
    torch.testing.assert_close(moved[2], centers[2] + 0.25 * (embeddings[1] - centers[2]))
    mean = embeddings[[0, 2]].mean(0)
    torch.testing.assert_close(moved[5], centers[5] + (mean - centers[5]) / 3)


# --- draws ---------------------------------------------------------------------------------------


def test_margin_draws_anew_at_each_call_of_training_and_alike_by_its_seed() -> None:
    batch = random_batch(0, classes=6, per_class=4, dim=DIM)
    first, second = Margin(NUM_CLASSES).double(), Margin(NUM_CLASSES).double()
    values = [first(*batch).item() for _ in range(4)]
    assert len(set(values)) > 1
    assert [second(*batch).item() for _ in range(4)] == values
    assert first.draws.calls == 4
    other = Margin(NUM_CLASSES, seed=1000).double()
    assert [other(*batch).item() for _ in range(4)] != values


def test_margin_draws_do_not_touch_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    Margin(NUM_CLASSES)(*batch_of(0))
    LogExpSpread(max_centers=3)(*batch_of(0))
    identical(torch.random.get_rng_state(), before)


def test_margin_learns_the_boundaries_of_the_classes_it_sees() -> None:
    module = Margin(NUM_CLASSES, boundary=1.0).double()
    embeddings, labels = random_batch(0, classes=3, dim=DIM)
    module(embeddings, labels).backward()
    assert module.boundary.grad is not None
    assert module.boundary.grad[3:].eq(0).all()
    assert module.boundary.grad[:3].ne(0).any()


def test_a_center_sample_holds_the_classes_of_the_batch_and_changes_with_each_call() -> None:
    sample = CenterSample(5)
    centers = torch.arange(20.0)[:, None]
    labels = torch.tensor([7, 3, 7, 11])
    draws = [set(sample(centers, labels).flatten().tolist()) for _ in range(6)]
    for draw in draws:
        assert len(draw) == 5
        assert {3.0, 7.0, 11.0} <= draw
    assert len({frozenset(draw) for draw in draws}) > 1
    assert sample.draws.calls == 6


def test_a_center_sample_of_more_than_there_are_is_all_of_them() -> None:
    centers = torch.randn(4, 2)
    for most in (None, 4, 9):
        sample = CenterSample(most)
        assert sample(centers) is centers
        assert sample.draws.calls == 0


def test_a_center_sample_carries_the_gradient_to_its_rows() -> None:
    centers = torch.randn(9, 3, requires_grad=True)
    sample = CenterSample(4)
    sample(centers, torch.tensor([2])).sum().backward()
    assert centers.grad is not None
    assert centers.grad.any(1).sum() == 4
    assert centers.grad[2].eq(1).all()


@pytest.mark.parametrize("wrong", [torch.tensor([9]), torch.tensor([-1]), torch.tensor([0.5])])
def test_a_center_sample_names_labels_that_are_no_centers(wrong: Tensor) -> None:
    with pytest.raises(ValueError, match=r"^(labels|include): expected"):
        CenterSample(4)(torch.randn(9, 3), wrong)


@pytest.mark.parametrize("wrong", [0, 1, -3, 2.0])
def test_a_center_sample_is_of_two_or_more(wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"^max_centers: expected .*got {wrong}"):
        LogExpSpread(max_centers=wrong)


def test_sample_centers_draws_each_center_as_often() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(10)
    for _ in range(2000):
        counts[sample_centers(10, 3, generator=generator)] += 1
    assert ((counts / 2000 - 0.3).abs() < 0.05).all()


# --- the running variance of Magnet --------------------------------------------------------------


def variance(batch: Batch) -> float:
    means = class_means(batch)
    offsets = [
        x - means[label] for x, label in zip(batch.embeddings, batch.labels.tolist(), strict=True)
    ]
    return float(torch.stack(offsets).square().sum() / (len(offsets) - 1))


def test_magnet_averages_the_variance_first_and_follows_it_later() -> None:
    module = Magnet(momentum=0.75).double()
    values = [variance(batch_of(seed)) for seed in range(7)]
    expected = 0.0
    for seed, value in enumerate(values):
        module(*batch_of(seed))
        share = max(1 / (seed + 1), 0.25)
        expected += share * (value - expected)
        torch.testing.assert_close(module.variance.item(), expected, rtol=1e-7, atol=0.0)
        if seed < 4:  # so far the plain average
            torch.testing.assert_close(expected, sum(values[: seed + 1]) / (seed + 1))
    assert module.batches == 7


OF_CLUSTERS = pytest.mark.parametrize(
    ("kind", "function"), [(Magnet, magnet_loss), (ClusterNCA, cluster_nca_loss)]
)


@OF_CLUSTERS
def test_a_loss_on_clusters_takes_each_class_for_one_unless_told(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    batch = batch_of(1)
    labels = batch.labels * 1000 + 5  # no row of any table
    expected = function(batch.embeddings, batch.labels, torch.arange(NUM_CLASSES))
    torch.testing.assert_close(kind()(batch.embeddings, labels), expected)
    clusters, classes = torch.arange(len(labels)) % 3, torch.tensor([0, 1, 1])
    told = kind()(batch.embeddings, labels, clusters=clusters, cluster_labels=classes)
    torch.testing.assert_close(told, function(batch.embeddings, clusters, classes))


@OF_CLUSTERS
def test_a_loss_on_clusters_is_the_mean_of_its_terms(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    embeddings, labels = batch_of(1)
    clusters, classes = torch.arange(len(labels)) % 3, torch.tensor([0, 1, 1])
    module = kind(eps=0.5)
    terms = module.terms(embeddings, clusters, classes)
    assert terms.shape == labels.shape
    torch.testing.assert_close(terms.mean(), function(embeddings, clusters, classes, eps=0.5))


@OF_CLUSTERS
def test_a_loss_on_clusters_wants_both_the_clusters_and_their_classes(
    kind: type[nn.Module], function: Callable[..., Tensor]
) -> None:
    batch = batch_of(1)
    with pytest.raises(ValueError, match="both clusters and cluster_labels, or neither"):
        kind()(*batch, clusters=batch.labels)


# --- density and proxies -------------------------------------------------------------------------


def test_density_learns_its_targets_and_not_the_originals() -> None:
    original = torch.linspace(0.5, 2.0, NUM_CLASSES)
    module = DensityAdaptivity(NUM_CLASSES, original)
    batch = Batch(batch_of(0).embeddings.float(), batch_of(0).labels)
    loss = module(*batch)
    identical(loss, density(*batch, torch.full((NUM_CLASSES,), 0.5), original))
    loss.backward()
    assert [name for name, _ in module.named_parameters()] == ["targets"]
    assert module.targets.grad is not None
    assert module.targets.grad.ne(0).any()
    original += 1.0  # the module holds a copy
    assert module.original is not None
    assert module.original[0] == 0.5


def test_relative_originals_have_mean_one() -> None:
    original = torch.linspace(1.0, 4.0, NUM_CLASSES)
    module = DensityAdaptivity(NUM_CLASSES, original, relative=True)
    assert module.original is not None
    torch.testing.assert_close(module.original, original / original.mean())


def test_density_without_originals_is_the_minus_variant() -> None:
    module = DensityAdaptivity(NUM_CLASSES, start=0.7)
    batch = Batch(batch_of(0).embeddings.float(), batch_of(0).labels)
    identical(module(*batch).detach(), density(*batch, torch.full((NUM_CLASSES,), 0.7)))
    assert set(module.state_dict()) == {"targets"}


@pytest.mark.parametrize("wrong", [-0.1, float("nan")])
def test_an_original_density_is_zero_or_more(wrong: float) -> None:
    original = torch.ones(NUM_CLASSES)
    original[3] = wrong
    with pytest.raises(ValueError, match=r"^original: expected"):
        DensityAdaptivity(NUM_CLASSES, original)
    with pytest.raises(ValueError, match=r"^original: expected"):
        density(*batch_of(0), torch.ones(NUM_CLASSES), original)


def test_proxies_are_random_and_follow_the_seed() -> None:
    torch.manual_seed(1)
    first = ProxyAnchor(50, 16).proxies
    torch.manual_seed(1)
    identical(ProxyAnchor(50, 16).proxies, first)
    assert not torch.equal(ProxyAnchor(50, 16).proxies, first)
    assert torch.linalg.matrix_rank(first) == 16
