"""PDDM: a learnt similarity that knows where a pair lies, and the hardest quadruplet by it.

    S_ij = s . relu(J [u', v'] + c),   u' = unit(relu(U unit(|x_i - x_j|) + b)),
                                       v' = unit(relu(V unit((x_i + x_j) / 2) + a))
    L = max(0, m + S_ik - S_ij) + max(0, m + S_jl - S_ij)
      + w (max(0, n + D_ij - D_ik) + max(0, n + D_ij - D_jl))

x is scaled to length 1 and D the squared distance. (i, j) is the positive pair of the lowest
similarity in the batch, k and l the negatives of i and of j of the highest: one quadruplet a batch.
The selection is a constant of the gradient. A batch without a positive pair, or of one class, has
loss 0.

Huang, Loy and Tang, Local similarity-aware deep feature embedding, NIPS 2016: the unit and the
quadruplet of section 3. Its text was at hand in parts only. The quadruplet is as printed; where the
layers normalize is as some public code has it. The margins m = 0.5 and n = 1, the weight w = 0.5,
the width and the start of the layers we could not confirm: they are our choice.
A bias of the score is left out, which no difference of scores would see, and so is the penalty on
the weights: that is the optimizer's weight decay.

The positive pairs are scored without a graph, in blocks, then the two samples found against all
others: N (P - 1) / 2 + 2 N pairs rather than N^2, for P samples a class. Three are differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import zero_with_grad
from kinspace._core.vectors import unit

__all__ = ["PDDM", "pddm_loss"]

BLOCK = 2**22  # numbers in one layer of the pairs that are scored at a time


@takes_samples
@takes_options(
    margin=checks.number, distance_margin=checks.number, distance_weight=checks.at_least(0)
)
def pddm_loss(
    embeddings: Tensor,
    labels: Tensor,
    pairwise: Tensor,
    joint: Tensor,
    *,
    margin: float = 0.5,
    distance_margin: float = 1.0,
    distance_weight: float = 0.5,
    **samples: Unpack[Samples],
) -> Tensor:
    """PDDM on the hardest quadruplet of the batch (module docstring).

    pairwise (2, width, dim + 1): the layers on the difference and on the mean, [U, b] and [V, a].
    joint (width, 2 width + 2): for each unit its weights on both, its bias, and its weight in the
    score, [J, c, s].

    All scores are 0, so the scores give 2 * 0.5; the positives are opposite, at 4, and each is at 2
    from the negative: 0.5 * (3 + 3).

    >>> x, labels = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> pddm_loss(x, labels, torch.zeros(2, 1, 3), torch.zeros(1, 4))
    tensor(4.)
    """
    index, x = ClassIndex(checks.labels(embeddings, labels)), unit(embeddings)
    width = max(1, len(joint)) if isinstance(joint, Tensor) and joint.ndim else 1
    dim = x.shape[1]
    sizes = f"{width} units and {dim} dimensions"
    pairwise = checks.layer("pairwise", pairwise, (2, width, dim + 1), sizes, embeddings)
    joint = checks.layer("joint", joint, (width, 2 * width + 2), sizes, embeddings)
    firsts, _, counts = index.pairs
    if not len(firsts):
        return zero_with_grad(embeddings, pairwise, joint)
    i, j, k, l = _hardest_quadruplet(x, index, pairwise, joint)  # noqa: E741
    first, second = x[torch.stack([i, i, j])], x[torch.stack([j, k, l])]  # (3, dim)
    s_ij, s_ik, s_jl = _similarity(first, second, pairwise, joint).unbind()
    d_ij, d_ik, d_jl = (first - second).square().sum(1).unbind()
    ranked = (margin + s_ik - s_ij).relu() + (margin + s_jl - s_ij).relu()
    apart = (distance_margin + d_ij - d_ik).relu() + (distance_margin + d_ij - d_jl).relu()
    return (ranked + distance_weight * apart) * (counts.any() & index.different.any())


def _similarity(x: Tensor, y: Tensor, pairwise: Tensor, joint: Tensor) -> Tensor:
    """S of pairs of vectors of length 1, (..., dim): (...,)."""
    difference, mean = unit((x - y).abs()), unit(x + y)
    u = unit(functional.linear(difference, pairwise[0, :, :-1], pairwise[0, :, -1]).relu())
    v = unit(functional.linear(mean, pairwise[1, :, :-1], pairwise[1, :, -1]).relu())
    units = functional.linear(torch.cat([u, v], -1), joint[:, :-2], joint[:, -2]).relu()
    return units @ joint[:, -1]


@torch.no_grad()
def _hardest_quadruplet(x: Tensor, index: ClassIndex, *layers: Tensor) -> tuple[Tensor, ...]:
    """The indices i, j, k and l; the layers are pairwise and joint."""
    first, second, counts = index.pairs
    rows = max(1, BLOCK // max(x.shape[1], 2 * len(layers[1])))
    blocks = zip(first.split(rows), second.split(rows), strict=True)
    scores = torch.cat([_similarity(x[i], x[j], *layers) for i, j in blocks])
    lowest = scores.masked_fill(~counts, math.inf).argmin(0, keepdim=True)
    pair = torch.cat([first[lowest], second[lowest]])
    scores = _similarity(x[pair][:, None], x, *layers)  # (2, batch)
    negatives = scores.masked_fill(index.labels == index.labels[pair[:1]], -math.inf).argmax(1)
    return *pair.unbind(), *negatives.unbind()


class PDDM(nn.Module):
    """`pddm_loss` with layers of `width` units. Give them to the optimizer too.

    >>> criterion = PDDM(dim=3, width=2)
    >>> [tuple(p.shape) for p in criterion.parameters()]
    [(2, 2, 4), (2, 6)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        dim: int,
        *,
        width: int = 128,
        margin: float = 0.5,
        distance_margin: float = 1.0,
        distance_weight: float = 0.5,
    ) -> None:
        super().__init__()
        dim = checks.integer("dim", dim, at_least=1)
        width = checks.integer("width", width, at_least=1)
        keep_options(
            self, pddm_loss, margin=margin, distance_margin=distance_margin,
            distance_weight=distance_weight,
        )  # fmt: skip
        # Biases 0, and scores that differ by about 1: of the size of the margin.
        pairwise, joint = torch.randn(2, width, dim + 1), torch.randn(width, 2 * width + 2)
        pairwise[..., -1], joint[:, -2] = 0, 0
        joint[:, :-2] *= width**-0.5
        self.pairwise, self.joint = nn.Parameter(pairwise * dim**-0.5), nn.Parameter(joint)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        layers = self.pairwise, self.joint
        return pddm_loss(embeddings, labels, *layers, **kept_options(self), **samples)
