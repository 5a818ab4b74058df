"""The oracle itself: it reproduces the worked cases, and keeps the conventions it states."""

import inspect
import math
from collections.abc import Callable
from itertools import combinations, cycle
from typing import Any

import pytest
import torch
from torch import Tensor

import loops
from batches import (
    DEGENERATE_BATCHES,
    NUM_CLASSES,
    Batch,
    all_triplets,
    random_batch,
    random_centers,
    two_clusters_a_class,
)
from methods import METHODS, Method
from reference_cases import (
    MAPPINGS,
    NOT_OFFERED,
    Case,
    case_names,
    loss_name,
    mapped_cases,
    not_offered,
    read,
)

CASES = mapped_cases()

# The fixed public signatures, as the specification prints them.
SIGNATURES = [
    "n_pair_loss(embeddings, labels, *, norm_weight=0.0, anchors='all')",
    "almn_loss(embeddings, labels, centers, *, beta=3.0, norm_weight=0.0005, margin='clipped')",
    "virtual_points(embeddings, labels, centers, *, beta=3.0, margin='clipped')",
    "update_centers(centers, embeddings, labels, *, rate=0.5)",
    "fixed_margin_loss(embeddings, labels, centers, *, multiplier=2, norm_weight=0.0005)",
    "nra_loss(embeddings, labels, *, alpha=4.0, eps=0.0001, detach_range=False, sharpness=None)",
    "magnet_loss(embeddings, clusters, cluster_labels, *, alpha=1.0, eps=1e-08, sharpness=1.0)",
    "contrastive_loss(embeddings, labels, *, margin=1.0, reduction='mean_each', squared=True,"
    " distance=None)",
    "bier_loss(embeddings, labels, *, groups=3, scale=2.0, margin=0.5, cost=25.0)",
    "hdc_loss(embeddings, labels, *, groups=3, shares=(1.0, 0.5, 0.2), margin=1.0)",
    "triplet_loss(embeddings, labels, *, margin=1.0, mining='all', reduction='mean', squared=True,"
    " distance=None)",
    "hierarchical_triplet_loss(embeddings, labels, means, spreads, *, margin=0.1, levels=16)",
    "pddm_loss(embeddings, labels, pairwise, joint, *, margin=0.5, distance_margin=1.0,"
    " distance_weight=0.5)",
    "lifted_structure_loss(embeddings, labels, *, margin=1.0)",
    "angular_loss(embeddings, labels, *, degrees=45.0)",
    "proxy_nca_loss(embeddings, labels, proxies, *, scale=1.0, positive_in_denominator=False)",
    "proxy_anchor_loss(embeddings, labels, proxies, *, alpha=32.0, margin=0.1)",
    "multi_similarity_loss(embeddings, labels, *, alpha=2.0, beta=50.0, base=0.5,"
    " mining_margin=0.1, distance='cosine')",
    "circle_loss(embeddings, labels, *, margin=0.25, scale=256.0)",
    "margin_loss(embeddings, triplets, *, margin=0.2, boundary=1.2, distance='euclidean')",
    "histogram_loss(embeddings, labels, *, bins=101)",
    "nca_loss(embeddings, labels, *, distance='squared_euclidean')",
    "ncm_loss(embeddings, labels, means)",  # ours, not printed, as the next
    "cluster_nca_loss(embeddings, clusters, cluster_labels, *, eps=1e-08)",
    "softmax_loss(embeddings, labels, weight, bias=None)",
    "normalized_softmax_loss(embeddings, labels, weight, *, scale=20.0)",  # ours, not printed
    "supcon_loss(embeddings, labels, *, temperature=0.1, distance='cosine')",
    "arcface_loss(embeddings, labels, weight, *, scale=64.0, margin=0.5)",
    "cosface_loss(embeddings, labels, weight, *, scale=64.0, margin=0.35)",
    "soft_triple_loss(embeddings, labels, centers, *, scale=20.0, gamma=0.1, margin=0.01)",
    "smooth_ap_loss(embeddings, labels, *, temperature=0.01)",
    "center_loss(embeddings, labels, centers)",
    "clustering_loss(embeddings, labels, *, margin_weight=1.0)",
    "density(embeddings, labels, targets, original=None, *, eta=0.5, reduction='mean')",
    "log_exp_spread(centers, *, sharpness=8.0, margin=None)",
    "power_spread(centers, *, power=4.0)",
    "hyperspherical_energy(centers, *, power=1.0)",
    "uniform_spread(centers)",
    "orthogonal(embeddings, labels)",
    "divergence(embeddings, *, groups=8, margin=1.0)",
    "adversarial_penalty(embeddings, hidden, output, *, groups=3, weight_penalty=100.0)",
    "entropy(embeddings, *, bandwidth=1.0)",
    "global_statistics(embeddings, labels, *, margin=0.4, mean_weight=0.8)",  # ours, not printed
    "k_skewed_mean(values, k)",
    "log_exp_mean(values, sharpness, dim=-1)",
    "power_mean(values, power, dim=-1)",
]


def close(actual: float, expected: float, tolerance: float = 1e-9) -> bool:
    return abs(actual - expected) <= tolerance * max(abs(expected), 1e-3)


# --- the worked cases ----------------------------------------------------------------------------


def test_every_worked_case_is_mapped_or_listed_as_not_offered() -> None:
    stems = case_names()
    for stem in stems:
        assert (not_offered(stem) is None) == any(
            case.id == stem or case.id.startswith(f"{stem}-") for case in CASES
        ), stem
    known = set(stems) | {loss_name(stem) for stem in stems}
    assert set(NOT_OFFERED) <= known
    assert set(MAPPINGS) <= known


def test_every_case_has_an_id_of_its_own() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("stem", ["npair_eq1__000", "npair_mc__000", "angular__000"])
def test_the_cases_pair_a_sample_with_the_next_of_its_class(stem: str) -> None:
    _, arrays = read(stem)
    partner = arrays.get("in_anchor", arrays.get("in_pos"))
    assert partner is not None
    assert partner.tolist() == loops.next_same(arrays["in_y"].tolist())


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "loss"], ids=lambda case: case.id)
def test_reproduces_the_value_and_the_gradients_of_a_worked_case(case: Case) -> None:
    tensors = {
        name: tensor.clone().requires_grad_(name in case.grads)
        for name, tensor in case.tensors.items()
    }
    loss = getattr(loops, case.function)(*tensors.values(), **case.options)
    assert case.loss is not None
    assert math.isclose(loss.item(), case.loss, rel_tol=1e-9, abs_tol=1e-15)
    if not case.grads:
        return
    found = torch.autograd.grad(loss, [tensors[name] for name in case.grads])
    for grad, expected in zip(found, case.grads.values(), strict=True):
        assert (grad - expected).abs().max() <= 1e-6 * expected.abs().max()


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "output"], ids=lambda case: case.id)
def test_reproduces_the_output_of_a_worked_case(case: Case) -> None:
    output = getattr(loops, case.function)(*case.tensors.values(), **case.options)
    torch.testing.assert_close(output, case.output, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("stem", ["dml_da__000", "dml_da__001"])
def test_contrastive_plus_weighted_density_is_density_adaptive_learning(stem: str) -> None:
    params, arrays = read(stem)
    embeddings = arrays["in_X"].clone().requires_grad_()
    targets = arrays["in_target"].clone().requires_grad_()
    labels = arrays["in_y"]
    loss = loops.contrastive_loss(
        embeddings, labels, margin=params["m_p"], reduction=params["reduction"]
    ) + params["lam"] * loops.density(
        embeddings, labels, targets, arrays["in_d0"], eta=params["eta"]
    )
    assert math.isclose(loss.item(), arrays["loss"].item(), rel_tol=1e-9)
    found = torch.autograd.grad(loss, [embeddings, targets])
    for grad, name in zip(found, ["grad_X", "grad_target"], strict=True):
        assert (grad - arrays[name]).abs().max() <= 1e-6 * arrays[name].abs().max()


def test_angles_and_margins_are_those_of_the_worked_intermediates() -> None:
    _, arrays = read("almn_intermediates__001")
    centers, labels = arrays["in_C"], arrays["in_y"].tolist()
    for i, label in enumerate(labels):
        theta = loops.angle(centers[label], arrays["in_X"][i])
        assert close(theta, arrays["out_theta_i"][i].item())


# --- the names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda text: text.partition("(")[0])
def test_has_the_public_signature(signature: str) -> None:
    function = getattr(loops, signature.partition("(")[0])
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    assert f"{function.__name__}{inspect.Signature(parameters)}" == signature


# --- the conventions -----------------------------------------------------------------------------

Call = Callable[[Tensor, Tensor], Tensor]


def on_batch(function: Callable[..., Tensor], **options: Any) -> Call:
    return lambda embeddings, labels: function(embeddings, labels, **options)


def with_centers(function: Callable[..., Tensor], **options: Any) -> Call:
    def call(embeddings: Tensor, labels: Tensor) -> Tensor:
        centers = random_centers(1, dim=embeddings.shape[1])
        return function(embeddings, labels, centers, **options)

    return call


def on_rows(function: Callable[..., Tensor], **options: Any) -> Call:
    return lambda embeddings, _: function(embeddings, **options)


def magnet(embeddings: Tensor, labels: Tensor) -> Tensor:
    return loops.magnet_loss(embeddings, *two_clusters_a_class(labels))


def cluster_nca(embeddings: Tensor, labels: Tensor) -> Tensor:
    return loops.cluster_nca_loss(embeddings, *two_clusters_a_class(labels))


def margin(embeddings: Tensor, labels: Tensor) -> Tensor:
    return loops.margin_loss(embeddings, all_triplets(labels))


def hierarchical_triplet(embeddings: Tensor, labels: Tensor) -> Tensor:
    means = random_centers(1, dim=embeddings.shape[1], scale=0.4)
    spreads = torch.linspace(0.1, 0.4, NUM_CLASSES, dtype=torch.float64)
    return loops.hierarchical_triplet_loss(embeddings, labels, means, spreads)


def pddm(embeddings: Tensor, labels: Tensor) -> Tensor:
    pairwise = random_centers(1, num_classes=6, dim=embeddings.shape[1] + 1).view(2, 3, -1)
    joint = random_centers(2, num_classes=3, dim=8)
    return loops.pddm_loss(embeddings, labels, pairwise, joint)


def density(embeddings: Tensor, labels: Tensor) -> Tensor:
    targets = torch.full((NUM_CLASSES,), 0.5, dtype=torch.float64)
    return loops.density(embeddings, labels, targets, torch.linspace(0.5, 2.0, NUM_CLASSES))


def adversarial(embeddings: Tensor, labels: Tensor) -> Tensor:
    sizes = sorted(loops.learner_sizes(3, embeddings.shape[1]))
    pairs = list(combinations(sizes, 2))
    hidden = random_centers(1, num_classes=sum(larger + 1 for _, larger in pairs), dim=5)
    output = random_centers(2, num_classes=6, dim=sum(smaller for smaller, _ in pairs))
    return loops.adversarial_penalty(embeddings, hidden, output)


CALLS: dict[str, Call] = {
    "n_pair_loss": on_batch(loops.n_pair_loss, norm_weight=0.1),
    "almn_loss": with_centers(loops.almn_loss),
    "almn_loss_printed": with_centers(loops.almn_loss, margin="printed"),
    "virtual_points": with_centers(loops.virtual_points),
    "fixed_margin_loss": with_centers(loops.fixed_margin_loss, multiplier=3),
    "nra_loss": on_batch(loops.nra_loss),
    "nra_loss_linear": on_batch(loops.nra_loss, alpha=1.0, detach_range=True),
    "magnet_loss": magnet,
    "cluster_nca_loss": cluster_nca,
    "contrastive_loss": on_batch(loops.contrastive_loss),
    "bier_loss": on_batch(loops.bier_loss),
    "hdc_loss": on_batch(loops.hdc_loss),
    "triplet_loss": on_batch(loops.triplet_loss, reduction="mean_active", squared=False),
    "triplet_loss_semi_hard": on_batch(loops.triplet_loss, mining="semi_hard", squared=False),
    "triplet_loss_batch_hard": on_batch(loops.triplet_loss, mining="batch_hard"),
    "triplet_loss_disjoint": on_batch(loops.triplet_loss, mining="disjoint"),
    "hierarchical_triplet_loss": hierarchical_triplet,
    "pddm_loss": pddm,
    "lifted_structure_loss": on_batch(loops.lifted_structure_loss),
    "angular_loss": on_batch(loops.angular_loss),
    "proxy_nca_loss": with_centers(loops.proxy_nca_loss),
    "proxy_anchor_loss": with_centers(loops.proxy_anchor_loss),
    "multi_similarity_loss": on_batch(loops.multi_similarity_loss),
    "circle_loss": on_batch(loops.circle_loss),
    "margin_loss": margin,
    "histogram_loss": on_batch(loops.histogram_loss, bins=11),
    "nca_loss": on_batch(loops.nca_loss),
    "ncm_loss": with_centers(loops.ncm_loss),
    "softmax_loss": with_centers(loops.softmax_loss),
    "normalized_softmax_loss": with_centers(loops.normalized_softmax_loss),
    "center_loss": with_centers(loops.center_loss),
    "clustering_loss": on_batch(loops.clustering_loss),
    "density": density,
    "orthogonal": on_batch(loops.orthogonal),
    "global_statistics": on_batch(loops.global_statistics),
    "divergence": on_rows(loops.divergence, groups=2, margin=2.3),
    "adversarial_penalty": adversarial,
    "entropy": on_rows(loops.entropy),
    "log_exp_spread": on_rows(loops.log_exp_spread),
    "log_exp_spread_margin": on_rows(loops.log_exp_spread, margin=0.1),
    "power_spread": on_rows(loops.power_spread),
    "hyperspherical_energy": on_rows(loops.hyperspherical_energy, power=2.0),
    "uniform_spread": on_rows(loops.uniform_spread),
}


def by_table(method: Method) -> Call:
    """As the table of methods calls it."""

    def call(embeddings: Tensor, labels: Tensor) -> Tensor:
        # centers that do not follow the embeddings, which are differentiated
        arguments = method.arguments(Batch(torch.ones_like(embeddings), labels), 1)
        rows = next(iter(arguments))
        return method.loop(*{**arguments, rows: embeddings}.values())

    return call


CALLS |= {method.name: by_table(method) for method in METHODS if method.name not in CALLS}


@pytest.mark.parametrize("batch", DEGENERATE_BATCHES.values(), ids=DEGENERATE_BATCHES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_is_finite_and_connected_on_degenerate_batches(call: Call, batch: Batch) -> None:
    embeddings = batch.embeddings.clone().requires_grad_()
    value = call(embeddings, batch.labels)
    (grad,) = torch.autograd.grad(value.sum(), embeddings)
    assert value.isfinite().all()
    assert grad.isfinite().all()


# These hold angles, weights or a range constant in the gradient, which finite differences do not;
# of the adversarial one it is reversed.
FROZEN = {
    "adversarial_penalty",
    "almn_loss",
    "almn_loss_printed",
    "bier_loss",
    "adacos_loss",
    "ranked_list_loss",
    "virtual_points",
    "circle_loss",
    "nra_loss_linear",
}


@pytest.mark.parametrize("name", sorted(set(CALLS) - FROZEN))
def test_gradient_is_that_of_finite_differences(name: str) -> None:
    batch = random_batch(5, classes=3, per_class=2, dim=3)
    embeddings = batch.embeddings.requires_grad_()
    torch.autograd.gradcheck(lambda x: CALLS[name](x, batch.labels), [embeddings])


@pytest.mark.parametrize("margin", ["clipped", "printed"])
def test_virtual_points_differentiate_everything_but_the_angles(
    monkeypatch: pytest.MonkeyPatch, margin: str
) -> None:
    batch = random_batch(6, classes=3, per_class=2, dim=3, separation=3.0)
    centers = random_centers(2, dim=3)
    loops_angle, angles = loops.angle, []

    def record(first: Tensor, second: Tensor) -> float:
        angles.append(loops_angle(first, second))
        return angles[-1]

    monkeypatch.setattr(loops, "angle", record)
    points = loops.virtual_points(batch.embeddings, batch.labels, centers, margin=margin)
    assert (points - batch.embeddings).abs().amax(dim=1).gt(0.01).any()
    replay = cycle(angles)
    monkeypatch.setattr(loops, "angle", lambda first, second: next(replay))
    torch.autograd.gradcheck(
        lambda x: loops.virtual_points(x, batch.labels, centers, margin=margin),
        [batch.embeddings.requires_grad_()],
    )


def test_every_public_loss_and_regularizer_is_called_on_degenerate_batches() -> None:
    public = {signature.partition("(")[0] for signature in SIGNATURES}
    without_batch = {"update_centers", "k_skewed_mean", "log_exp_mean", "power_mean"}
    assert public - without_batch <= set(CALLS)


# --- by hand, where no case is worked ------------------------------------------------------------


def test_center_loss_is_half_the_mean_squared_distance() -> None:
    embeddings = torch.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=torch.float64)
    centers = torch.tensor([[0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    loss = loops.center_loss(embeddings, torch.tensor([0, 1]), centers)
    assert close(loss.item(), (4.0 + 25.0) / 4.0)


def test_clustering_loss_by_hand() -> None:
    # On a line: class 0 at 0 and 1, class 1 at 3 and 10. One medoid, whichever, leaves one
    # cluster (NMI 0), so the first is the median with the lower index, row 1 (cost 1 + 2 + 9).
    # Then row 3 leaves cost 1 + 2 and the clusters {0, 1, 3}, {10}; rows 0 and 2 leave more.
    embeddings = torch.tensor([[0.0], [1.0], [3.0], [10.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    embeddings.requires_grad_()
    shared = 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3) + 0.25 * math.log(2)
    split = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    nmi = 2 * shared / (math.log(2) + split)
    for weight in (0.0, 1.0, 2.0):
        loss = loops.clustering_loss(embeddings, labels, margin_weight=weight)
        assert close(loss.item(), -3.0 + weight * (1.0 - nmi) + (1.0 + 7.0))
    (grad,) = torch.autograd.grad(loss, embeddings)
    # Clusters: -(x1 - x0) - (x2 - x1); classes: (x1 - x0) + (x3 - x2).
    assert grad.flatten().tolist() == [0.0, 1.0, -2.0, 1.0]


def test_clustering_loss_of_a_perfect_clustering_is_zero() -> None:
    batch = random_batch(3, classes=3, separation=1e3)
    assert loops.clustering_loss(batch.embeddings, batch.labels).item() == 0.0


def test_mutual_information_of_trivial_partitions() -> None:
    assert loops.mutual_information([0, 0], [5, 5]) == 1.0
    assert loops.mutual_information([0, 0], [0, 1]) == 0.0
    assert close(loops.mutual_information([0, 0, 1, 1], [4, 4, 2, 2]), 1.0)
    assert close(loops.mutual_information([0, 0, 1, 1], [0, 1, 0, 1]), 0.0)


def test_mutual_information_is_that_of_the_worked_cases() -> None:
    for stem in ("clustering_metrics__000", "clustering_metrics__001"):
        _, arrays = read(stem)
        found = loops.mutual_information(
            arrays["in_labels"].tolist(), arrays["in_clusters"].tolist()
        )
        assert close(found, arrays["out_nmi_arithmetic"].item())


def test_log_exp_spread_with_a_margin_by_hand() -> None:
    centers = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    loss = loops.log_exp_spread(centers, sharpness=2.0, margin=0.1)
    assert close(loss.item(), math.log(1.0 + math.exp(-0.2)) / 2.0)


def test_means_at_their_limits() -> None:
    values = torch.tensor([[1.0, 4.0], [2.0, 0.0]], dtype=torch.float64)
    assert loops.log_exp_mean(values, 0.0).tolist() == [2.5, 1.0]
    assert loops.log_exp_mean(values, math.inf).tolist() == [4.0, 2.0]
    assert loops.log_exp_mean(values, -math.inf, dim=0).tolist() == [1.0, 0.0]
    torch.testing.assert_close(
        loops.power_mean(values, 0.0), torch.tensor([2.0, 0.0], dtype=torch.float64)
    )
    assert loops.power_mean(values, -1.0)[1].item() == 0.0


def test_hyperspherical_energy_of_equal_centers_is_capped() -> None:
    centers = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    loss = loops.hyperspherical_energy(centers, power=1.0)
    assert close(loss.item(), 1e6)
    assert torch.autograd.grad(loss, centers)[0].abs().max() == 0.0
