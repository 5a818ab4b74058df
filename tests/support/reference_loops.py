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
    c: Comparisons, *, margin: float = 1.0, reduction: str = "mean_each", squared: bool = True
) -> Tensor:
    measure = c.squared if squared else c.distance
    pull = [measure(i, j) for i in c.anchors for j in c.positives[i]]
    push = [hinge(margin - measure(i, j)) for i in c.anchors for j in c.negatives[i]]
    if reduction == "mean_active":
        pull, push = ([term for term in terms if term.item() > 0] for terms in (pull, push))
        return mean_of(pull, c.zero) + mean_of(push, c.zero)
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


def bier_loss(
    c: Comparisons,
    *,
    groups: int | tuple[int, ...] = 3,
    scale: float = 2.0,
    margin: float = 0.5,
    cost: float = 25.0,
) -> Tensor:
    pairs = list(zip(loops.learners(c.x, groups), loops.learners(c.reference, groups), strict=True))
    total = c.zero
    for factor, chosen in ((scale, c.positives), (-cost * scale, c.negatives)):
        terms = []
        for i, j in [(a, other) for a in c.anchors for other in chosen[a]]:
            weight, ensemble = 1.0, 0.0
            for m, (x, y) in enumerate(pairs, start=1):
                cosine = loops.dot(x[i], y[j])
                terms.append(weight * log1p_sum_exp([-factor * (cosine - margin)]))
                step = 2.0 / (m + 1)
                ensemble = (1.0 - step) * ensemble + step * cosine.item()
                weight = 1.0 / (1.0 + math.exp(factor * (ensemble - margin)))
        total = total + mean_of(terms, c.zero)
    return total


def hdc_loss(
    c: Comparisons,
    *,
    groups: int | tuple[int, ...] = 3,
    shares: tuple[float, ...] = (1.0, 0.5, 0.2),
    margin: float = 1.0,
) -> Tensor:
    total, orders = c.zero, 2 if c.includes_batch else 1
    kinds = {True: c.positives, False: c.negatives}
    pairs = {same: [(i, j) for i in c.anchors for j in kinds[same][i]] for same in kinds}
    counts = {same: len(pairs[same]) for same in pairs}
    learners = zip(loops.learners(c.x, groups), loops.learners(c.reference, groups), strict=True)
    for k, (x, y) in enumerate(learners):
        apart = {
            (i, j): loops.squared_distance(x[i], y[j]) for both in pairs.values() for i, j in both
        }
        losses = [apart[pair] for pair in pairs[True]]
        losses += [hinge(margin - apart[pair]) for pair in pairs[False]]
        total = total + mean_of(losses, c.zero)
        if k + 1 == len(shares):
            break
        for same, left in pairs.items():
            hardness = {pair: (1 if same else -1) * apart[pair].item() for pair in left}
            ranked = sorted(hardness.values(), reverse=True)
            kept = orders * max(1, round(shares[k + 1] * counts[same] / orders))
            least = ranked[min(kept, len(ranked)) - 1] if ranked else 0.0
            pairs[same] = [pair for pair in left if hardness[pair] > least - 1e-6]
    return total


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
    c: Comparisons,
    *,
    alpha: float = 4.0,
    eps: float = 1e-4,
    detach_range: bool = False,
    sharpness: float | None = None,
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

        def soft(rows: list[int], sharpness: float, i: int = i) -> Tensor:
            to = {j: c.distance(i, j) for j in c.compared[i]}
            unit = loops.sum_of(list(to.values())) / len(to)
            return unit * loops.log_exp_mean(torch.stack([to[j] / unit for j in rows]), sharpness)

        if c.positives[i]:
            far = extreme(c.positives[i], loops.first_largest)
            far = far if sharpness is None else soft(c.positives[i], sharpness)
            total = total - torch.log(1 - loops.rank_weight(far, low, high, alpha) + eps)
        if c.negatives[i]:
            near = extreme(c.negatives[i], loops.first_smallest)
            near = near if sharpness is None else soft(c.negatives[i], -sharpness)
            total = total - torch.log(loops.rank_weight(near, low, high, alpha) + eps)
    return total / len(c.anchors)


def nt_xent_loss(c: Comparisons, *, temperature: float = 0.07, distance: str = "cosine") -> Tensor:
    total, measure = c.zero, loops.measure_of(distance)

    def logit(i: int, j: int) -> Tensor:
        if distance == "cosine":
            return c.cosine(i, j) / temperature
        return -measure(c.x[i], c.reference[j]) / temperature

    for i in c.anchors:
        negatives = [logit(i, n) for n in c.negatives[i]]
        if c.positives[i] and negatives:
            near = [logit(i, p) for p in c.positives[i]]
            terms = [log1p_sum_exp([far - s for far in negatives]) for s in near]
            total = total + sum_of(terms) / len(terms)
    return total / len(c.anchors)


def tuplet_margin_loss(c: Comparisons, *, scale: float = 64.0, slack: float = 0.1) -> Tensor:
    total = c.zero
    for i in c.anchors:
        negatives = [scale * c.cosine(i, n) for n in c.negatives[i]]
        terms = []
        for p in c.positives[i] if negatives else []:
            x, y = loops.unit(c.x[i]), loops.unit(c.reference[p])
            sine = loops.distance(x, y) * loops.distance(x, -y) / 2
            cosine = 1 - loops.squared_distance(x, y) / 2
            near = scale * (math.cos(slack) * cosine + math.sin(slack) * sine)
            terms.append(log1p_sum_exp([far - near for far in negatives]))
        total = total + mean_of(terms, c.zero)
    return total / len(c.anchors)


def sigmoid(value: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-value)) if value.item() > 0 else 1 - 1 / (1 + torch.exp(value))


def soft_rank(c: Comparisons, i: int, p: int, among: list[int], temperature: float) -> Tensor:
    """1 and a step for each of the others that is before p."""
    steps = [sigmoid((c.cosine(i, j) - c.cosine(i, p)) / temperature) for j in among if j != p]
    return 1 + (sum_of(steps) if steps else c.zero)


def smooth_ap_loss(c: Comparisons, *, temperature: float = 0.01) -> Tensor:
    total = c.zero
    for i in c.anchors:
        terms = [
            soft_rank(c, i, p, c.positives[i], temperature)
            / soft_rank(c, i, p, c.compared[i], temperature)
            for p in c.positives[i]
        ]
        if terms:
            total = total + 1 - sum_of(terms) / len(terms)
    return total / len(c.anchors)


def roadmap_loss(
    c: Comparisons,
    *,
    temperature: float = 0.01,
    threshold: float = 0.05,
    slope: float = 100.0,
    positive_margin: float = 0.9,
    negative_margin: float = 0.6,
    calibration: float = 0.5,
) -> Tensor:
    """Gaps of less than 1e-6 are none."""
    total = c.zero
    for i in c.anchors:
        s = {j: c.cosine(i, j) for j in c.compared[i]}
        precisions = []
        for p in c.positives[i]:
            rank = 1 + sum(s[q].item() - s[p].item() > 1e-6 for q in c.positives[i])
            wrong = c.zero
            for n in c.negatives[i]:
                gap = s[n] - s[p]
                if gap.item() > threshold + 1e-6:
                    top = 0.5 + 1 / (1 + math.exp(-threshold / temperature))
                    wrong = wrong + slope * (gap - threshold) + top
                else:
                    step = torch.sigmoid(gap / temperature)
                    wrong = wrong + (step + 0.5 if gap.item() > 1e-6 else step)
            precisions.append(rank / (rank + wrong))
        if precisions:
            total = total + (1 - calibration) * (1 - mean_of(precisions, c.zero))
        pull = mean_of([hinge(positive_margin - s[p]) for p in c.positives[i]], c.zero)
        push = mean_of([hinge(s[n] - negative_margin) for n in c.negatives[i]], c.zero)
        total = total + calibration * (pull + push)
    return total / len(c.anchors)


def recall_surrogate_loss(
    c: Comparisons,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    rank_temperature: float = 1.0,
) -> Tensor:
    total = c.zero
    for i in c.anchors:
        ranks = [soft_rank(c, i, p, c.compared[i], temperature) for p in c.positives[i]]
        for k in ks if ranks else []:
            within = sum_of([sigmoid((k - rank) / rank_temperature) for rank in ranks])
            total = total + (1 - within / min(k, len(ranks))) / len(ks)
    return total / len(c.anchors)


def fast_ap_loss(c: Comparisons, *, bins: int = 10) -> Tensor:
    width = 4 / bins

    def histogram(i: int, rows: list[int]) -> list[Tensor]:
        squares = [2 - 2 * c.cosine(i, j) for j in rows]
        offsets = [[(square - width * r).abs() for square in squares] for r in range(bins + 1)]
        return [sum_of([c.zero, *(hinge(1 - o / width) for o in row)]) for row in offsets]

    total = c.zero
    for i in c.anchors:
        if not c.positives[i]:
            continue
        positive, everything = histogram(i, c.positives[i]), histogram(i, c.compared[i])
        precision = c.zero
        for r in range(bins + 1):
            below = sum_of(everything[: r + 1])
            if below.item() > 0:
                precision = precision + positive[r] * sum_of(positive[: r + 1]) / below
        total = total + 1 - precision / len(c.positives[i])
    return total / len(c.anchors)


def ranked_list_loss(
    c: Comparisons,
    *,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
) -> Tensor:
    total = c.zero
    for i in c.anchors:
        x = loops.unit(c.x[i])
        apart = {j: loops.distance(x, loops.unit(c.reference[j])) for j in c.compared[i]}
        far = [apart[p] - (boundary - margin) for p in c.positives[i]]
        near = [boundary - apart[n] for n in c.negatives[i]]
        total = total + (1 - balance) * mean_of([d for d in far if d.item() > 0], c.zero)
        near = [d for d in near if d.item() > 0]
        if near:
            most = max(d.item() for d in near)
            weights = [math.exp(temperature * (d.item() - most)) for d in near]
            shares = [w / sum(weights) for w in weights]
            total = total + balance * sum_of([w * d for w, d in zip(shares, near, strict=True)])
    return total / len(c.anchors)
