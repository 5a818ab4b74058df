"""A loss with weighted regularizers: what each of them is shown, and what comes back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from batches import random_batch
from gradients import identical
from kinspace._core.class_index import ClassIndex
from kinspace.losses import (
    LOSSES,
    Contrastive,
    Magnet,
    NormalizedSoftmax,
    ProxyAnchor,
    ProxyNCA,
    magnet_loss,
    nra_loss,
)
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.regularizers import REGULARIZERS, PowerSpread

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
TAKES = {"embeddings", "centers", "clusters"}


def normal(seed: int = 4, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))


def built(name: str) -> nn.Module:
    torch.manual_seed(0)  # the same regressors
    return make_regularizer(name, {}, num_classes=3, dim=4)


class Seen(nn.Module):
    """A regularizer that says nothing of what it takes; it keeps what it was given."""

    def forward(self, vectors: Tensor, labels: Tensor) -> Tensor:
        self.vectors, self.labels = vectors, labels
        return vectors.square().sum()


class SeenEmbeddings(Seen):
    takes = "embeddings"


class SeenCenters(Seen):
    takes = "centers"


class SeenPictures(Seen):
    takes = "pictures"


# --- what a regularizer is given -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [Seen, SeenEmbeddings])
def test_a_regularizer_is_given_embeddings_of_length_one_also_beside_proxies(
    kind: type[Seen],
) -> None:
    term, x = kind(), normal(scale=36.0)
    loss = ProxyAnchor(3, 4)
    found = Objective(loss, [Term("seen", term, 0.5)])(x, LABELS)
    torch.testing.assert_close(term.vectors, x / x.norm(dim=1, keepdim=True))
    assert term.labels is LABELS
    torch.testing.assert_close(found.parts["seen"], torch.tensor(6.0))
    torch.testing.assert_close(found.total, loss(x, LABELS) + 3.0)


@pytest.mark.parametrize("loss", [ProxyAnchor, ProxyNCA, NormalizedSoftmax])
def test_a_regularizer_of_centers_is_given_the_proxies(loss: type[nn.Module]) -> None:
    criterion, term = loss(3, 4), SeenCenters()
    found = Objective(criterion, [Term("seen", term)])(normal(), LABELS)
    assert term.vectors is criterion.proxies
    assert term.labels is LABELS
    expected = torch.autograd.grad(criterion.proxies.square().sum(), criterion.proxies)
    (slope,) = torch.autograd.grad(found.total - found.parts["loss"], criterion.proxies)
    (alone,) = torch.autograd.grad(criterion(normal(), LABELS), criterion.proxies)
    torch.testing.assert_close(slope - alone, *expected)


def test_a_regularizer_of_centers_may_be_given_the_class_means_of_the_batch() -> None:
    term, x = SeenCenters(), normal().requires_grad_()
    labels = torch.tensor([7, 0, 7, 7, 5, 0])
    total = Objective(Contrastive(), [Term("seen", term, centers="batch")])(x, labels).total
    expected = torch.stack([x[labels == label].mean(0) for label in (0, 5, 7)])
    torch.testing.assert_close(term.vectors, expected)
    assert term.labels.tolist() == [0, 1, 2]
    (slope,) = torch.autograd.grad(total - Contrastive()(x, labels), x)
    torch.testing.assert_close(slope, torch.autograd.grad(expected.square().sum(), x)[0])


def test_class_means_are_those_of_the_batch_also_beside_proxies() -> None:
    term, x = SeenCenters(), normal()
    Objective(ProxyAnchor(3, 4), [Term("seen", term, centers="batch")])(x, LABELS)
    torch.testing.assert_close(term.vectors, x.view(3, 2, 4).mean(1))


def test_a_regularizer_that_takes_something_else_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^takes of seen: expected one of 'embeddings', 'centers', got 'pictures'"
    ):
        Term("seen", SeenPictures())


def test_a_loss_without_proxies_is_refused_by_what_takes_them() -> None:
    with pytest.raises(ValueError, match=r"^seen: expected a loss with proxies .*got Contrastive"):
        Objective(Contrastive(), [Term("seen", SeenCenters())])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": float("nan")}, "weight of seen: expected a finite number, got nan"),
        ({"centers": "all"}, "centers of seen: expected one of 'proxies', 'batch', got 'all'"),
    ],
)
def test_a_term_says_what_is_wrong(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Term("seen", Seen(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [["loss"], ["seen", "seen"]], ids=str)
def test_terms_have_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(ValueError, match="terms: expected different names, none of them 'loss'"):
        Objective(Contrastive(), [Term(name, Seen()) for name in names])


@pytest.mark.parametrize("name", [*LOSSES, *REGULARIZERS])
def test_every_module_says_what_it_takes(name: str) -> None:
    assert getattr({**LOSSES, **REGULARIZERS}[name], "takes", "embeddings") in TAKES


@pytest.mark.parametrize("name", REGULARIZERS)
def test_no_regularizer_depends_on_the_length_of_the_embeddings(name: str) -> None:
    found = [
        Objective(Contrastive(), [Term(name, built(name), centers="batch")])(
            normal(3, scale), LABELS
        ).parts[name]
        for scale in (1.0, 36.0)
    ]
    torch.testing.assert_close(*found)


# --- what comes back -----------------------------------------------------------------------------


def test_a_total_is_the_loss_and_the_weighted_regularizers() -> None:
    terms = [
        Term("log_exp_spread", built("log_exp_spread"), 2.0),
        Term("orthogonal", built("orthogonal"), 0.5),
    ]
    total, parts, sample_losses = Objective(ProxyAnchor(3, 4), terms)(normal(), LABELS)
    expected = parts["loss"] + 2.0 * parts["log_exp_spread"] + 0.5 * parts["orthogonal"]
    torch.testing.assert_close(total.detach(), expected)
    assert total.requires_grad
    assert not any(part.requires_grad for part in parts.values())
    assert sample_losses is None


def test_a_loss_of_each_sample_gives_the_mean_and_the_losses_of_the_samples() -> None:
    x = normal().requires_grad_()
    term = Term("orthogonal", built("orthogonal"), 0.5)
    none, mean = (
        Objective(make_loss("nra", {"reduction": reduction}, num_classes=3, dim=4), [term])
        for reduction in ("none", "mean")
    )
    found, expected = none(x, LABELS), mean(x, LABELS)
    assert found.sample_losses is not None
    assert not found.sample_losses.requires_grad
    identical(found.sample_losses, nra_loss(x, LABELS, reduction="none").detach())
    torch.testing.assert_close(found.parts["loss"], found.sample_losses.mean())
    torch.testing.assert_close(found.total, expected.total)
    torch.testing.assert_close(
        torch.autograd.grad(found.total, x), torch.autograd.grad(expected.total, x)
    )
    assert expected.sample_losses is None


def test_clusters_are_handed_to_the_loss_that_takes_them() -> None:
    embeddings, labels = random_batch(2, classes=3)
    clusters, classes = torch.arange(len(labels)) % 3, torch.tensor([0, 1, 1])
    objective = Objective(Magnet(reduction="none"))
    assert objective.takes_clusters
    assert not Objective(Contrastive()).takes_clusters
    found = objective(embeddings, labels, clusters=clusters, cluster_labels=classes)
    expected = magnet_loss(embeddings, clusters, classes, reduction="none")
    assert found.sample_losses is not None
    torch.testing.assert_close(found.sample_losses, expected)
    torch.testing.assert_close(found.total, expected.mean())


def test_an_objective_owns_the_parameters_of_its_parts() -> None:
    objective = Objective(ProxyAnchor(3, 4), [Term("density", built("density"))])
    names = {name for name, _ in objective.named_parameters()}
    assert names == {"loss.proxies", "terms.density.targets"}
    assert "density=1" in repr(objective)


def test_class_means_have_no_row_for_a_class_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where lists of classes are as long as the batch, as on a GPU."""
    x, labels = torch.eye(4), torch.tensor([5, 5, 9, 9])
    objective = Objective(Contrastive(), [Term("power_spread", PowerSpread(), centers="batch")])
    expected = objective(x, labels).total
    monkeypatch.setattr(ClassIndex, "_fixed", True)
    assert objective(x, labels).total == expected


# --- weights by the gradients --------------------------------------------------------------------


def gradient_norm(value: Tensor, by: Tensor) -> float:
    [gradient] = torch.autograd.grad(value, by, retain_graph=True)
    return float(gradient.norm())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_share_is_that_of_the_gradient_of_the_loss_whatever_its_scale(scale: float) -> None:
    term = make_regularizer("density", {"start": 2.0}, num_classes=3)

    class Scaled(Contrastive):
        def forward(self, *given: Tensor, **named: Tensor | None) -> Tensor:  # type: ignore[override]
            return scale * super().forward(*given)

    objective = Objective(Scaled(), [Term("density", term, share=0.25)])
    x = normal().requires_grad_()
    value = objective(x, LABELS)
    of_loss = gradient_norm(scale * Contrastive()(x, LABELS), x)
    of_term = gradient_norm(term(torch.nn.functional.normalize(x, dim=1), LABELS), x)
    weight = float(value.parts["density_weight"])
    assert weight * of_term == pytest.approx(0.25 * of_loss, rel=1e-4)
    expected = float(value.parts["loss"]) + weight * float(value.parts["density"])
    assert float(value.total.detach()) == pytest.approx(expected, rel=1e-5)


def test_the_share_follows_the_mean_of_the_steps_and_is_kept() -> None:
    loss = ProxyAnchor(3, 4)
    objective = Objective(loss, [Term("power_spread", PowerSpread(), share=0.5)])
    ratios = []
    for seed in range(3):
        x = normal(seed).requires_grad_()
        spread = PowerSpread()(loss.proxies)
        ratios.append(
            (gradient_norm(loss(x, LABELS), loss.proxies), gradient_norm(spread, loss.proxies))
        )
        weight = objective(x, LABELS).parts["power_spread_weight"]
    means = [sum(norms) / 3 for norms in zip(*ratios, strict=True)]
    assert float(weight) == pytest.approx(0.5 * means[0] / means[1], rel=1e-5)
    other = Objective(ProxyAnchor(3, 4), [Term("power_spread", PowerSpread(), share=0.5)])
    other.load_state_dict(objective.state_dict())
    found = other.eval()(x.detach(), LABELS).parts["power_spread_weight"]
    identical(found, weight)  # an evaluation moves nothing


def test_a_share_is_above_zero() -> None:
    with pytest.raises(ValueError, match="share of density: expected"):
        Term("density", built("density"), share=0.0)


def test_densities_of_clusters_have_the_targets_of_their_classes() -> None:
    module = make_regularizer("density", {"clusters": True}, num_classes=3, dim=4)
    torch.nn.init.uniform_(module.targets)  # type: ignore[arg-type]
    objective = Objective(Magnet(), [Term("density", module, 1.0)])
    labels = torch.tensor([0, 0, 0, 0, 2, 2])
    clusters, of = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 2])
    x = normal()
    unit = torch.nn.functional.normalize(x, dim=1)
    found = objective(x, labels, clusters=clusters, cluster_labels=of).parts["density"]
    targets = module.targets.detach()[of]  # type: ignore[union-attr, index]
    means = torch.stack([unit[clusters == k].mean(0) for k in range(3)])
    spreads = torch.stack(
        [(unit[clusters == k] - means[k]).square().sum(1).mean() for k in range(3)]
    )
    torch.testing.assert_close(found, ((spreads - targets) ** 2 - targets).mean())
