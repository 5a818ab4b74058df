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

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision
from kinspace.pairs import class_slots, class_sums

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
    targets = checks.one_of_each_class("targets", targets).to(embeddings.dtype)
    labels = checks.with_labels(embeddings, labels, len(targets))
    checks.finite("eta", eta, at_least=0)
    checks.choice("reduction", reduction, REDUCTIONS)
    densities, classes, counted = _densities(embeddings, labels)
    # sums over the classes of the batch in rows as many as samples: no shape depends on values
    own = targets.index_select(0, classes)
    count = counted.sum().clamp(min=1)
    if reduction == "sum":
        count = torch.ones_like(count)
    gap = torch.where(counted, (densities - own).square() - own, 0).sum() / count
    if original is None:
        return gap
    original = checks.one_of_each_class("original", original, len(targets)).to(embeddings.dtype)
    if not torch.compiler.is_compiling() and not bool((original >= 0).all()):
        raise ValueError("original: expected densities of 0 or more, got a negative one or NaN")
    scale = torch.where(counted, original.detach().index_select(0, classes).pow(eta), 0)
    own = torch.where(counted, own, 0)
    energy = scale.square().sum()
    misfit = own - scale * ((scale * own).sum() / energy.clamp(min=torch.finfo(own.dtype).tiny))
    return gap + 2 * energy * misfit.square().sum() / count.square()


def _densities(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per class of the batch: density, label, and whether it has two samples. All (batch,)."""
    slots = class_slots(labels)
    sums, counts = class_sums(embeddings, slots, len(labels))
    share = 1 / counts.clamp(min=1)
    means = sums * share[:, None]
    offsets = (embeddings - means.index_select(0, slots)).square().sum(1)
    densities = torch.zeros_like(share).index_add(0, slots, offsets) * share
    classes = torch.zeros_like(labels).scatter_(0, slots, labels)
    return densities, classes, counts >= 2


class DensityAdaptivity(nn.Module):
    """`density` with its learnt targets; give them to the optimizer too.

    original: the classes' densities before training, one entry a class, kept in the state.
    relative: divide them by their mean, so that the last term does not depend on their scale.

    >>> penalty = DensityAdaptivity(num_classes=2)
    >>> penalty(torch.tensor([[0.0], [2.0]]), torch.tensor([1, 1]))
    tensor(-0.2500, grad_fn=<DivBackward0>)
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
            original = checks.one_of_each_class("original", original, num_classes).detach().clone()
            if not bool((original >= 0).all()):
                raise ValueError("original: expected densities of 0 or more")
            original = original / original.mean() if relative else original
        self.register_buffer("original", original)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return density(
            embeddings,
            labels,
            self.targets,
            self.original,
            eta=self.eta,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"num_classes={len(self.targets)}, eta={self.eta}, reduction={self.reduction!r}"
