"""Losses of pairs and triplets with a reference, as slow loops in float64.

Written from the formulas, with the blocks of loops.py. `positives` and `negatives` list what each
anchor is compared to, by rows of the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import loops
from loops import hinge, log1p_sum_exp, log_sum_exp, mean_of, sum_of


class Comparisons:
    """Anchors, the rows they are compared to, and which of these are positives and negatives."""

    def __init__(
        self, x: Tensor, labels: Tensor, reference: Tensor, others: Tensor, includes_batch: bool
    ) -> None:
        classes, names = labels.tolist(), others.tolist()
        self.x, self.reference = x, reference
        self.classes, self.names = classes, names
        self.zero = loops.zero_with_grad(x, reference)
        self.anchors = range(len(classes))
        self.compared = [
            [j for j in range(len(names)) if not (includes_batch and i == j)] for i in self.anchors
        ]
        self.positives = [
            [j for j in self.compared[i] if names[j] == classes[i]] for i in self.anchors
        ]
        self.negatives = [
            [j for j in self.compared[i] if names[j] != classes[i]] for i in self.anchors
        ]
        self.includes_batch = includes_batch

    def squared(self, i: int, j: int) -> Tensor:
        return loops.squared_distance(self.x[i], self.reference[j])

    def distance(self, i: int, j: int) -> Tensor:
        return loops.distance(self.x[i], self.reference[j])

    def cosine(self, i: int, j: int) -> Tensor:
        return loops.dot(loops.unit(self.x[i]), loops.unit(self.reference[j]))

    def partner(self, i: int) -> int | None:
        """The n-th of the class for its n-th sample; the next one where the batch is included."""
        turn = self.classes[:i].count(self.classes[i]) + self.includes_batch
        own = [j for j, name in enumerate(self.names) if name == self.classes[i]]
        return own[turn % len(own)] if self.positives[i] else None


def contrastive_loss(
    c: Comparisons, *, margin: float = 1.0, reduction: str = "mean_each"
) -> Tensor:
    pull = [c.squared(i, j) for i in c.anchors for j in c.positives[i]]
    push = [hinge(margin - c.squared(i, j)) for i in c.anchors for j in c.negatives[i]]
    if reduction == "mean_each":
        return mean_of(pull, c.zero) + mean_of(push, c.zero)
    total = mean_of(pull + push, c.zero)
    return total if reduction == "mean" else total * len(pull + push)


def triplet_loss(
    c: Comparisons,
    *,
    margin: float = 1.0,
    mining: str = "all",
    reduction: str = "mean",
    squared: bool = True,
) -> Tensor:
    measure = c.squared if squared else c.distance

    def chosen(i: int) -> list[tuple[int, int]]:
        positives, negatives = c.positives[i], c.negatives[i]
        if not positives or not negatives:
            return []
        apart = {j: c.squared(i, j).item() for j in positives + negatives}
        if mining == "batch_hard":
            far = positives[loops.first_largest([apart[j] for j in positives])]
            return [(far, negatives[loops.first_smallest([apart[j] for j in negatives])])]
        if mining == "semi_hard":
            found = []
            for p in positives:
                beyond = [n for n in negatives if apart[n] > apart[p]]
                near = loops.first_smallest([apart[n] for n in beyond]) if beyond else None
                far = negatives[loops.first_largest([apart[n] for n in negatives])]
                found.append((p, far if near is None else beyond[near]))
            return found
        return [(p, n) for p in positives for n in negatives]

    terms = [hinge(measure(i, p) - measure(i, n) + margin) for i in c.anchors for p, n in chosen(i)]
    if reduction == "mean_active":
        terms = [term for term in terms if term.item() > 0]
    total = mean_of(terms, c.zero)
    return total * len(terms) if reduction == "sum" and mining == "all" else total


def multi_similarity_loss(
    c: Comparisons,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    mining_margin: float | None = 0.1,
) -> Tensor:
    total = c.zero
    for i in c.anchors:
        s = {j: c.cosine(i, j) for j in c.positives[i] + c.negatives[i]}
        least = min((s[j].item() for j in c.positives[i]), default=math.inf)
        most = max((s[j].item() for j in c.negatives[i]), default=-math.inf)
        slack = math.inf if mining_margin is None else mining_margin
        kept = [j for j in c.positives[i] if s[j].item() < most + slack]
        pushed = [j for j in c.negatives[i] if s[j].item() > least - slack]
        if kept and pushed:
            total = total + log1p_sum_exp([-alpha * (s[j] - base) for j in kept]) / alpha
            total = total + log1p_sum_exp([beta * (s[j] - base) for j in pushed]) / beta
    return total / len(c.anchors)


def circle_loss(c: Comparisons, *, margin: float = 0.25, scale: float = 256.0) -> Tensor:
    terms = []
    for i in c.anchors:
        near = [c.cosine(i, j) for j in c.positives[i]]
        far = [c.cosine(i, j) for j in c.negatives[i]]
        if near and far:
            pull = [-scale * max(0, 1 + margin - s.item()) * (s - (1 - margin)) for s in near]
            push = [scale * max(0, s.item() + margin) * (s - margin) for s in far]
            terms.append(log1p_sum_exp([log_sum_exp(pull) + log_sum_exp(push)]))
    return mean_of(terms, c.zero)


def nca_loss(c: Comparisons) -> Tensor:
    total = c.zero
    for i in c.anchors:
        if c.positives[i]:
            same = log_sum_exp([-c.squared(i, j) for j in c.positives[i]])
            total = total + log_sum_exp([-c.squared(i, j) for j in c.compared[i]]) - same
    return total / len(c.anchors)


def supcon_loss(c: Comparisons, *, temperature: float = 0.1) -> Tensor:
    total = c.zero
    for i in c.anchors:
        if c.positives[i]:
            rest = log_sum_exp([c.cosine(i, a) / temperature for a in c.compared[i]])
            terms = [rest - c.cosine(i, p) / temperature for p in c.positives[i]]
            total = total + sum_of(terms) / len(terms)
    return total / len(c.anchors)


def n_pair_loss(c: Comparisons, *, norm_weight: float = 0.0) -> Tensor:
    total = c.zero
    for i in c.anchors:
        partner = c.partner(i)
        if partner is not None and c.negatives[i]:
            positive = loops.dot(c.x[i], c.reference[partner])
            logits = [loops.dot(c.x[i], c.reference[n]) - positive for n in c.negatives[i]]
            total = total + log1p_sum_exp(logits)
    return (total + norm_weight / 2 * c.x.square().sum()) / len(c.anchors)


def angular_loss(c: Comparisons, *, degrees: float = 45.0) -> Tensor:
    total, t = c.zero, math.tan(math.radians(degrees)) ** 2
    for i in c.anchors:
        partner = c.partner(i)
        if partner is not None and c.negatives[i]:
            a, p = c.x[i], c.reference[partner]
            pull = 2 * (1 + t) * loops.dot(a, p)
            push = [4 * t * loops.dot(a + p, c.reference[n]) - pull for n in c.negatives[i]]
            total = total + log1p_sum_exp(push)
    return total / len(c.anchors)


def lifted_structure_loss(c: Comparisons, *, margin: float = 1.0) -> Tensor:
    terms = []
    for i in c.anchors:
        for j in c.positives[i]:
            if c.negatives[i]:
                push = log_sum_exp([margin - c.distance(i, k) for k in c.negatives[i]])
                terms.append(hinge(push + c.distance(i, j)).square() / 2)
            else:
                terms.append(c.zero)
    return mean_of(terms, c.zero)


def histogram_loss(c: Comparisons, *, bins: int = 101) -> Tensor:
    same = [c.cosine(i, j) for i in c.anchors for j in c.positives[i]]
    different = [c.cosine(i, j) for i in c.anchors for j in c.negatives[i]]
    if not same or not different:
        return c.zero
    positive = loops.soft_histogram(same, bins, c.zero)
    negative = loops.soft_histogram(different, bins, c.zero)
    return sum_of([negative[r] * sum_of(positive[: r + 1]) for r in range(bins)])


def nra_loss(
    c: Comparisons, *, alpha: float = 4.0, eps: float = 1e-4, detach_range: bool = False
) -> Tensor:
    total = c.zero
    for i in c.anchors:
        apart = {j: c.squared(i, j).item() for j in c.compared[i]}

        def extreme(
            rows: list[int], pick: Callable[..., Any], i: int = i, apart: Any = apart
        ) -> Tensor:
            return c.distance(i, rows[pick([apart[j] for j in rows])])

        if not apart:
            continue
        low = extreme(c.compared[i], loops.first_smallest)
        high = extreme(c.compared[i], loops.first_largest)
        if detach_range:
            low, high = low.detach(), high.detach()
        if c.positives[i]:
            far = extreme(c.positives[i], loops.first_largest)
            total = total - torch.log(1 - loops.rank_weight(far, low, high, alpha) + eps)
        if c.negatives[i]:
            near = extreme(c.negatives[i], loops.first_smallest)
            total = total - torch.log(loops.rank_weight(near, low, high, alpha) + eps)
    return total / len(c.anchors)
