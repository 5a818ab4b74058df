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
others: N P + 2 N pairs rather than N^2, for P samples a class. Three pairs are differentiated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace import checks
from kinspace.numerics import full_precision, unit
from kinspace.pairs import class_table

__all__ = ["PDDM", "pddm_loss"]

BLOCK = 2**22  # numbers in one layer of the pairs that are scored at a time


@full_precision
def pddm_loss(
    embeddings: Tensor,
    labels: Tensor,
    pairwise: Tensor,
    joint: Tensor,
    *,
    margin: float = 0.5,
    distance_margin: float = 1.0,
    distance_weight: float = 0.5,
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
    labels = checks.with_labels(embeddings, labels, read=False)  # the table of classes reads them
    pairwise, joint = _layers(pairwise, joint, embeddings)
    checks.finite("margin", margin)
    checks.finite("distance_margin", distance_margin)
    checks.finite("distance_weight", distance_weight, at_least=0)
    x = unit(embeddings)
    quadruplet, exists = _hardest(x, labels, pairwise, joint)
    points = x[quadruplet]  # i, j, k, l
    one, other = torch.stack([points[0], points[0], points[1]]), points[1:]
    scores = _scores(one, other, pairwise, joint)
    squares = (one - other).square().sum(1)
    by_scores = (margin + scores[1:] - scores[0]).relu().sum()
    by_distances = (distance_margin + squares[0] - squares[1:]).relu().sum()
    return (by_scores + distance_weight * by_distances) * exists


def _scores(x: Tensor, y: Tensor, pairwise: Tensor, joint: Tensor) -> Tensor:
    """The similarity of pairs (..., dim), which are broadcast."""
    parts = [
        unit(functional.linear(unit(seen), layer[:, :-1], layer[:, -1]).relu())
        for seen, layer in zip(((x - y).abs(), (x + y) / 2), pairwise, strict=True)
    ]
    both = torch.cat(parts, -1)  # (..., 2 width)
    return functional.linear(both, joint[:, :-2], joint[:, -2]).relu() @ joint[:, -1]


@torch.no_grad()
def _hardest(x: Tensor, labels: Tensor, pairwise: Tensor, joint: Tensor) -> tuple[Tensor, Tensor]:
    """The indices i, j, k, l, and whether there are such samples."""
    index, positive = class_table(labels)
    rows = max(1, BLOCK // (index.shape[1] * max(x.shape[1], 2 * len(joint))))
    scores = x.new_empty(index.shape)  # (batch, class)
    for found, own, beside in zip(*(t.split(rows) for t in (scores, x, index)), strict=True):
        found.copy_(_scores(own[:, None], x[beside], pairwise, joint))
    place = scores.masked_fill_(~positive, math.inf).argmin()
    pair = torch.stack([place // index.shape[1], index.take(place)])
    different = labels[pair][:, None] != labels  # (2, batch)
    against = _scores(x[pair][:, None], x, pairwise, joint)
    negatives = against.masked_fill_(~different, -math.inf).argmax(1)
    return torch.cat([pair, negatives]), positive.any() & different.any()


def _layers(pairwise: Tensor, joint: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """The layers, checked, in the dtype of the embeddings."""
    width = joint.shape[0] if isinstance(joint, Tensor) and joint.ndim else 0
    shapes = {
        "pairwise": (pairwise, (2, width, embeddings.shape[1] + 1)),
        "joint": (joint, (width, 2 * width + 2)),
    }
    for name, (value, shape) in shapes.items():
        fits = isinstance(value, Tensor) and value.shape == shape and value.is_floating_point()
        if not (fits and width):
            came = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else value
            raise ValueError(
                f"{name}: expected floating point numbers of shape {shape} for {width} units and "
                f"{embeddings.shape[1]} dimensions, got {came}"
            )
    return pairwise.to(embeddings.dtype), joint.to(embeddings.dtype)


class PDDM(nn.Module):
    """`pddm_loss` with the layers of its similarity. Give them to the optimizer too.

    width: the units of each layer.

    >>> criterion = PDDM(dim=3, width=2)
    >>> [tuple(p.shape) for p in criterion.parameters()]
    [(2, 2, 4), (2, 6)]
    """

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
        checks.whole("dim", dim, at_least=1)
        checks.whole("width", width, at_least=1)
        self.margin = checks.finite("margin", margin)
        self.distance_margin = checks.finite("distance_margin", distance_margin)
        self.distance_weight = checks.finite("distance_weight", distance_weight, at_least=0)
        # Biases 0, and scores that differ by about 1: of the size of the margin.
        pairwise, joint = torch.randn(2, width, dim + 1), torch.randn(width, 2 * width + 2)
        pairwise[..., -1] = 0
        joint[:, -2] = 0
        joint[:, :-2] *= width**-0.5
        self.pairwise = nn.Parameter(pairwise * dim**-0.5)
        self.joint = nn.Parameter(joint)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return pddm_loss(
            embeddings,
            labels,
            self.pairwise,
            self.joint,
            margin=self.margin,
            distance_margin=self.distance_margin,
            distance_weight=self.distance_weight,
        )

    def extra_repr(self) -> str:
        return (
            f"margin={self.margin}, distance_margin={self.distance_margin}, "
            f"distance_weight={self.distance_weight}"
        )
