"""Density adaptivity: classes are kept from collapsing, toward densities that are learned.

    D_c  = mean_{i in c} ||f_i - mu_c||^2,   mu_c = mean_{i in c} f_i
    L_DA = mean_c (D_c - t_c)^2 - mean_c t_c + 1/C^2 sum_{c,e} (o_e^eta t_c - o_c^eta t_e)^2

over the C classes with at least two samples in the batch; none: 0. Classes with several clusters
have a D for each cluster, all of them with the target of their class. t_c is the learned target of
class c, o_c the average intra-class distance of its pretrained features before the embedding
layer, once, over the training set. The last term keeps the ratios of the targets near those of
the originals; without originals, or with `ratios=False`, it is left out (Eq. 6, the paper's "minus"
variants). The gradient passes through mu_c.

Li et al., Deep metric learning with density adaptivity, IEEE TMM 2019, Eq. 5-8, which print these
means over classes and over their pairs. It is a regularizer for any loss; the paper's weight is 10,
its embeddings are unit vectors, and the losses beside it are sums over pairs or triplets, beside
which the means with weight 10 do almost nothing. What counts is the ratio of the gradients:
`reduction="sum"` takes the sums over classes and over pairs of classes instead, and a recipe's
`share` sets the weight by that ratio.

The double sum takes O(C): with a = o^eta and the projection p = (a.t / a.a) a it is
2 (a.a) ||t - p||^2, which unlike 2 (a.a)(t.t) - 2 (a.t)^2 loses no digits as t comes to fit a.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex, class_means, class_sums
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision, is_traced

__all__ = ["DensityAdaptivity", "density"]

REDUCTIONS = ("mean", "sum")


@full_precision
@takes_options(eta=checks.at_least(0), reduction=checks.one_of(REDUCTIONS))
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
    checks.class_vector("targets", targets)
    labels = checks.labels(embeddings, labels, len(targets))
    present, places = ClassIndex(labels).classes
    means, sizes = class_means(embeddings, places, len(present))
    offsets = (embeddings - means[places]).square().sum(1)
    densities = class_sums(offsets, places, len(present)) / sizes.clamp(min=1)  # D, (classes,)
    counted = (sizes > 1).to(densities.dtype)
    own = targets[present].to(densities.dtype)  # t
    penalty = (counted * ((densities - own).square() - own)).sum()
    count = counted.sum().clamp(min=1) if reduction == "mean" else 1
    if original is None:
        return penalty / count
    scale = _checked_original(original, len(targets)).detach()[present].to(densities.dtype) ** eta
    return penalty / count + _ratio_penalty(counted * own, counted * scale) / count**2


def _ratio_penalty(targets: Tensor, scale: Tensor) -> Tensor:
    """sum_{c,e} (a_e t_c - a_c t_e)^2 = 2 (a.a) ||t - p||^2."""
    energy = scale.square().sum()
    share = (scale * targets).sum() / energy.clamp(min=torch.finfo(scale.dtype).tiny)
    return 2 * energy * (targets - share * scale).square().sum()


def _checked_original(original: Tensor, num_classes: int) -> Tensor:
    checks.class_vector("original", original, num_classes)
    if original.is_cpu and not is_traced(original) and not bool((original >= 0).all()):
        raise ValueError("original: expected densities of 0 or more, got a negative one or NaN")
    return original


class DensityAdaptivity(nn.Module):
    """`density` with its learned targets; give them to the optimizer too.

    original: the classes' densities before training, one entry a class, kept in the state.
    relative: divide them by their mean, so that the last term does not depend on their scale.
    ratios: whether they hold the ratios of the targets; false is Eq. 6.
    raw: what a training takes for `original`: the densities of the features as the backbone gives
    them, as printed, or of the features at length 1, the scale of the embeddings.
    clusters: whether the density is that of the clusters of the batch, where there are some.

    >>> penalty = DensityAdaptivity(num_classes=2)
    >>> penalty(torch.tensor([[0.0], [2.0]]), torch.tensor([1, 1])).item()
    -0.25
    """

    __call__: Callable[..., Tensor]
    takes = "embeddings"
    original: Tensor | None

    def __init__(  # noqa: PLR0913 (an option each)
        self,
        num_classes: int,
        original: Tensor | None = None,
        eta: float = 0.5,
        *,
        start: float = 0.5,
        relative: bool = False,
        ratios: bool = True,
        raw: bool = False,
        clusters: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        num_classes = checks.integer("num_classes", num_classes, at_least=1)
        keep_options(self, density, eta=eta, reduction=reduction)
        start = float(checks.number("start", start))
        self.targets = nn.Parameter(torch.full((num_classes,), start))
        self.ratios, self.raw, self.takes_clusters = ratios, raw, clusters
        if not ratios:
            original = None
        if original is not None:
            original = _checked_original(original, num_classes).detach().clone()
            original = original / original.mean() if relative else original
        self.register_buffer("original", original)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        clusters: Tensor | None = None,
        cluster_labels: Tensor | None = None,
    ) -> Tensor:
        targets: Tensor = self.targets
        original = self.original
        if clusters is not None and cluster_labels is not None:
            labels, targets = clusters, targets[cluster_labels]
            original = None if original is None else original[cluster_labels]
        return density(embeddings, labels, targets, original, **kept_options(self))

    def extra_repr(self) -> str:
        return f"num_classes={len(self.targets)}, {options_repr(self, 'eta', 'reduction')}"
