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
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.losses import pddm_kernel
from kinspace.numerics import full_precision, zero_of
from kinspace.pairs import positive_pairs
from kinspace.slopes import across, unit_with_pull, with_slopes, without_zero

__all__ = ["PDDM", "pddm_loss"]

BLOCK = 2**22  # numbers in one layer of the pairs that are scored at a time
Pairs = tuple[Tensor, Tensor, Tensor | None]  # of `positive_pairs`


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
    labels = checks.with_labels(embeddings, labels, read=False)  # the list of pairs reads them
    pairwise, joint = _layers(pairwise, joint, embeddings)
    checks.finite("margin", margin)
    checks.finite("distance_margin", distance_margin)
    checks.finite("distance_weight", distance_weight, at_least=0)
    pairs, size = positive_pairs(labels), len(labels)
    # inside torch.compile the number of pairs says nothing
    if not torch.compiler.is_compiling() and not 0 < len(pairs[0]) < size * (size - 1) // 2:
        return zero_of(embeddings, pairwise, joint)
    x, pull = unit_with_pull(embeddings)
    fits = pddm_kernel.ready(x, pairs[0], joint)
    made = pddm_kernel.fused if fits else _value_and_slopes
    margins = (margin, distance_margin, distance_weight)
    layers = (pairwise.detach(), joint.detach())
    value, by_x, by_pairwise, by_joint = made(x, labels, pairs, layers, margins)
    return with_slopes(
        value,
        (embeddings, lambda: pull(by_x)),
        (pairwise, lambda: by_pairwise),
        (joint, lambda: by_joint),
    )


@torch.no_grad()
def _value_and_slopes(
    x: Tensor,
    labels: Tensor,
    pairs: Pairs,
    layers: tuple[Tensor, Tensor],
    margins: tuple[float, float, float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, and its slopes by x and by the layers."""
    quadruplet, scored, exists = _hardest(x, labels, pairs, layers)
    rows = torch.cat([quadruplet[:1], quadruplet[:2], quadruplet[1:]])  # i, i, j against j, k, l
    one, other = x.index_select(0, rows).chunk(2)
    apart = one - other  # (3, dim)
    value, by_scores, by_apart = _hinges(scored.scores, apart, margins, exists)
    by_both, by_joint = _back_through_joint(scored, layers[1], by_scores)
    by_seen, by_pairwise = _back_through_pairwise(scored, layers[0], by_both)
    by_apart.addcmul_(by_seen[0], apart.sign())
    by_rows = torch.cat([by_seen[1] + by_apart, by_seen[1] - by_apart])
    return value, torch.zeros_like(x).index_add_(0, rows, by_rows), by_pairwise, by_joint


class Scored(NamedTuple):
    """What the similarity of pairs is made of; seen are |x - y| and x + y."""

    seen: Tensor  # (2, pairs, dim)
    seen_lengths: Tensor  # (2, pairs, 1)
    hidden_lengths: Tensor  # (2, pairs, 1)
    both: Tensor  # (2, pairs, width)
    units: Tensor  # (pairs, width)
    scores: Tensor  # (pairs,)

    def of(self, pairs: Tensor) -> Scored:
        """Those of some of the pairs."""
        return Scored(*(part.index_select(int(part.ndim == 3), pairs) for part in self))


@torch.no_grad()
def _scored(x: Tensor, y: Tensor, pairwise: Tensor, joint: Tensor) -> Scored:
    """The similarity of pairs (..., dim), which are broadcast and then in one row."""
    seen = x.new_empty(2, *torch.broadcast_shapes(x.shape, y.shape))
    torch.sub(x, y, out=seen[0]).abs_()
    torch.add(x, y, out=seen[1])
    seen = seen.flatten(1, -2)
    seen_lengths = _lengths(seen)
    hidden = torch.bmm(seen, pairwise[..., :-1].mT)
    hidden = torch.addcdiv(pairwise[:, None, :, -1], hidden, seen_lengths).relu_()
    hidden_lengths = _lengths(hidden)
    both = hidden.div_(hidden_lengths)
    first, second = joint[:, :-2].chunk(2, 1)
    units = torch.addmm(joint[:, -2], both[0], first.T).addmm_(both[1], second.T).relu_()
    return Scored(seen, seen_lengths, hidden_lengths, both, units, units @ joint[:, -1])


def _scores(x: Tensor, y: Tensor, pairwise: Tensor, joint: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(x.shape, y.shape)[:-1]
    return _scored(x, y, pairwise, joint).scores.view(shape)


def _lengths(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return without_zero(lengths)


def _hardest(
    x: Tensor, labels: Tensor, pairs: Pairs, layers: tuple[Tensor, Tensor]
) -> tuple[Tensor, Scored, Tensor | None]:
    """The indices i, j, k, l, the pairs (i, j), (i, k) and (j, l), and if compiled, whether any."""
    first, second, positive = pairs
    size = len(x)
    rows = max(1, BLOCK // max(x.shape[1], 2 * len(layers[1])))
    blocks = zip(first.split(rows), second.split(rows), strict=True)
    scores = torch.cat([_scores(x[one], x[other], *layers) for one, other in blocks])
    if positive is not None:
        scores = torch.where(positive, scores, math.inf)
    place = scores.argmin(0, keepdim=True)
    pair = torch.cat([first[place], second[place]])
    same = labels[pair[:1]] == labels  # (batch,)
    against = _scored(x[pair][:, None], x, *layers)  # of (2, batch) pairs
    others = against.scores.view(2, size).masked_fill(same, -math.inf)
    quadruplet = torch.cat([pair, others.argmax(1)])
    found = quadruplet[1:].clone()
    found[2].add_(size)
    exists = None if positive is None else positive.any() & ~same.all()
    return quadruplet, against.of(found), exists


def _hinges(
    scores: Tensor, apart: Tensor, margins: tuple[float, float, float], exists: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, and its slopes by the scores and by the differences of the pairs."""
    margin, distance_margin, weight = margins
    similar = torch.stack([scores, apart.square().sum(1).mul_(-weight)])  # (2, pairs)
    hinges = similar[:, 1:] - similar[:, :1]
    hinges[0].add_(margin)
    hinges[1].add_(weight * distance_margin)
    hinges.relu_()
    if exists is not None:
        hinges = hinges * exists
    active = hinges.sign()
    slopes = torch.cat([active.sum(1, keepdim=True).neg_(), active], 1)
    return hinges.sum(), slopes[0], (apart * slopes[1][:, None]).mul_(-2 * weight)


def _back_through_joint(scored: Scored, joint: Tensor, by_scores: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients by `both` and by the joint layer."""
    flow = torch.outer(by_scores, joint[:, -1]).mul_(scored.units.sign())
    parts = (flow.T @ scored.both).unbind()  # (width, width) each
    last = flow.sum(0)[:, None], (by_scores @ scored.units)[:, None]
    by_both = flow @ joint[:, :-2].unflatten(1, (2, -1)).transpose(0, 1)
    return by_both, torch.cat([*parts, *last], 1)


def _back_through_pairwise(
    scored: Scored, pairwise: Tensor, by_both: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients by `seen` and by the pairwise layers."""
    flow = across(by_both, scored.both).div_(scored.hidden_lengths).mul_(scored.both.sign())
    seen = scored.seen / scored.seen_lengths
    by_pairwise = torch.cat([flow.mT @ seen, flow.sum(1)[..., None]], 2)
    return across(flow @ pairwise[..., :-1], seen).div_(scored.seen_lengths), by_pairwise


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
