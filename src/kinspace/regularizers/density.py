"""Density adaptivity: classes are kept from collapsing, toward densities that are learnt.

    D_c  = mean_{i in c} ||f_i - mu_c||^2,   mu_c = mean_{i in c} f_i
    L_DA = mean_c (D_c - t_c)^2 - mean_c t_c + 1/C^2 sum_{c,e} (o_e^eta t_c - o_c^eta t_e)^2

over the C classes with at least two samples in the batch; none: 0. t_c is the learnt target of
class c, o_c the average intra-class distance of its pretrained features before the embedding
layer, once, over the training set. The last term keeps the ratios of the targets near those of
the originals; without originals it is left out (Eq. 6, the paper's "minus" variants). The
gradient passes through mu_c.

Li et al., Deep metric learning with density adaptivity, IEEE TMM 2019, Eq. 5-8. It is a
regularizer for any loss; the paper's weight is 10 and its embeddings are unit vectors. The paper
prints sums over the classes and over their pairs: `reduction="sum"`. Match it to the loss: beside
a loss that is a sum over all pairs the means with weight 10 do almost nothing.

The double sum takes O(C): with a = o^eta and the projection p = (a.t / a.a) a it is
2 (a.a) ||t - p||^2, which unlike 2 (a.a)(t.t) - 2 (a.t)^2 loses no digits as t comes to fit a.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision
from kinspace.pairs import sized_classes
from kinspace.slopes import with_slopes

__all__ = ["DensityAdaptivity", "density"]

REDUCTIONS = ("mean", "sum")


@full_precision
def density(
    embeddings: Tensor,
    labels: Tensor,
    targets: Tensor,
    original: Tensor | None = None,
    *,
    eta: float = 0.5,
    reduction: str = "mean",
) -> Tensor:
    """The density penalty (module docstring); targets and original have one entry a class.

    One class of density 1 and target 0.5: 0.25 - 0.5.

    >>> density(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 0]), torch.tensor([0.5]))
    tensor(-0.2500)
    """
    checks.vectors("embeddings", embeddings)
    checks.one_of_each_class("targets", targets)
    checks.finite("eta", eta, at_least=0)
    checks.choice("reduction", reduction, REDUCTIONS)
    scale = None if original is None else _scale(original, len(targets), eta)
    return _penalty(embeddings, labels, targets, scale, reduction)


def _scale(original: Tensor, num_classes: int, eta: float) -> Tensor:
    """original^eta, of densities that are ones."""
    checks.one_of_each_class("original", original, num_classes)
    if not torch.compiler.is_compiling() and not bool((original >= 0).all()):
        raise ValueError("original: expected densities of 0 or more, got a negative one or NaN")
    return original.detach().pow(eta)


@full_precision
def _penalty(
    embeddings: Tensor, labels: Tensor, targets: Tensor, scale: Tensor | None, reduction: str
) -> Tensor:
    """The penalty with original^eta as the scale."""
    labels = checks.with_labels(embeddings, labels, len(targets))
    value, by_embeddings, by_targets = _value_and_slopes(
        embeddings, labels, targets, scale, reduction
    )
    return with_slopes(value, (embeddings, by_embeddings), (targets, by_targets))


@torch.no_grad()
def _value_and_slopes(
    x: Tensor, labels: Tensor, targets: Tensor, scale: Tensor | None, reduction: str
) -> tuple[Tensor, Callable[[], Tensor], Callable[[], Tensor]]:
    classes, places, sizes = sized_classes(labels)
    share = 1 / sizes.to(x.dtype)
    counted = (sizes > 1).to(x.dtype)
    count = counted.sum().clamp_(min=1) if reduction == "mean" else torch.ones_like(share[0])
    means = x.new_zeros(len(sizes), x.shape[1]).index_add_(0, places, x).mul_(share[:, None])
    offsets = x - means.index_select(0, places)
    own = targets.index_select(0, classes).to(x.dtype)
    apart = share.new_zeros(len(share)).index_add_(0, places, offsets.square().sum(1))
    excess = torch.addcmul(-own, apart, share)  # D_c - t_c
    value = excess.square().sub_(own).mul_(counted).sum() / count
    steering = None
    if scale is not None:
        steering, ratios = _misfit(own, scale.index_select(0, classes).to(x.dtype), counted, count)
        value += ratios
    each = counted.div_(count)

    def by_embeddings() -> Tensor:
        # the means take no part: the offsets from them sum to 0
        return offsets.mul_((excess * each * share).mul_(4).index_select(0, places)[:, None])

    def by_targets() -> Tensor:
        slope = excess.mul(-2).sub_(1).mul_(each)
        if steering is not None:
            slope += steering
        return torch.zeros_like(targets).index_add_(0, classes, slope.to(targets.dtype))

    return value, by_embeddings, by_targets


def _misfit(own: Tensor, scale: Tensor, counted: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The slope by the targets of what keeps their ratios, and its value."""
    scale, own = scale * counted, own * counted
    energy = scale.square().sum()
    along = (scale * own).sum() / energy.clamp(min=torch.finfo(own.dtype).tiny)
    misfit = torch.addcmul(own, scale, along, value=-1)
    weight = energy.mul_(2) / count.square()
    return (weight * misfit).mul_(2), misfit.square().sum() * weight


class DensityAdaptivity(nn.Module):
    """`density` with its learnt targets; give them to the optimizer too.

    original: the classes' densities before training, one entry a class, kept in the state.
    relative: divide them by their mean, so that the last term does not depend on their scale.

    >>> penalty = DensityAdaptivity(num_classes=2)
    >>> penalty(torch.tensor([[0.0], [2.0]]), torch.tensor([1, 1]))
    tensor(-0.2500, grad_fn=<_SlopedBackward>)
    """

    original: Tensor | None

    def __init__(
        self,
        num_classes: int,
        original: Tensor | None = None,
        eta: float = 0.5,
        *,
        start: float = 0.5,
        relative: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        checks.whole("num_classes", num_classes, at_least=1)
        self.eta = checks.finite("eta", eta, at_least=0)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)
        checks.finite("start", start)
        self.targets = nn.Parameter(torch.full((num_classes,), float(start)))
        if original is not None:
            _scale(original, num_classes, eta)
            original = original.detach().clone()
            original = original / original.mean() if relative else original
        self.register_buffer("original", original)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        checks.vectors("embeddings", embeddings)
        scale = None if self.original is None else self.original.pow(self.eta)
        return _penalty(embeddings, labels, self.targets, scale, self.reduction)

    def extra_repr(self) -> str:
        return f"num_classes={len(self.targets)}, eta={self.eta}, reduction={self.reduction!r}"
