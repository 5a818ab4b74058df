"""Every loss, regularizer and mean as a slow loop: the oracle the fast code is tested against.

Written from the specification alone, in float64, one sample, one pair or one triplet at a time, so
that autograd gives the gradient. The conventions, everywhere:

- a selection (largest, nearest, mined) is made on plain numbers, first index on ties, and is a
  constant of the gradient; the selected quantity is differentiated;
- the gradient of a distance at 0 and of a hinge at 0 is 0; the unit vector of 0 is 0, with no
  gradient;
- nothing to compare gives a zero that is connected to every differentiated input.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

Measure = Callable[[Tensor, Tensor], Tensor]

# --- building blocks -----------------------------------------------------------------------------


def zero_with_grad(*tensors: Tensor) -> Tensor:
    """A zero connected to the graph of every tensor."""
    total = tensors[0].sum() * 0.0
    for tensor in tensors[1:]:
        total = total + tensor.sum() * 0.0
    return total


def squared_norm(vector: Tensor) -> Tensor:
    return (vector * vector).sum()


def norm(vector: Tensor) -> Tensor:
    squared = squared_norm(vector)
    if squared.item() == 0.0:
        return squared * 0.0  # sqrt has an infinite slope here; the convention is 0
    return squared.sqrt()


def unit(vector: Tensor) -> Tensor:
    length = norm(vector)
    if length.item() == 0.0:
        return vector * 0.0
    return vector / length


def units(vectors: Tensor) -> list[Tensor]:
    return [unit(vector) for vector in vectors]


def dot(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum()


def squared_distance(first: Tensor, second: Tensor) -> Tensor:
    return squared_norm(first - second)


def distance(first: Tensor, second: Tensor) -> Tensor:
    return norm(first - second)


def cosine_distance(first: Tensor, second: Tensor) -> Tensor:
    return 1.0 - dot(unit(first), unit(second))


def negative_product(first: Tensor, second: Tensor) -> Tensor:
    return -dot(first, second)


def manhattan_distance(first: Tensor, second: Tensor) -> Tensor:
    return sum_of([(one - other).abs() for one, other in zip(first, second, strict=True)])


def in_ball(vector: Tensor) -> Tensor:
    """The point of the Poincare ball at this distance, at most 8, from its center."""
    return unit(vector) * torch.tanh(norm(vector).clamp(max=8.0) / 2.0)


def hyperbolic_distance(first: Tensor, second: Tensor) -> Tensor:
    p, q = in_ball(first), in_ball(second)
    apart = squared_norm(p - q)
    if apart.item() == 0.0:
        return apart * 0.0
    z = 2.0 * apart / ((1.0 - squared_norm(p)) * (1.0 - squared_norm(q)))
    return torch.log1p(z + torch.sqrt(z * (z + 2.0)))  # arcosh(1 + z)


def measure_of(word: str | None, squared: bool = True) -> Measure:
    """The distance of a word; without one the Euclidean distance, or its square."""
    return {
        None: squared_distance if squared else distance,
        "euclidean": distance,
        "squared_euclidean": squared_distance,
        "cosine": cosine_distance,
        "dot": negative_product,
        "manhattan": manhattan_distance,
        "hyperbolic": hyperbolic_distance,
    }[word]


def angle(first: Tensor, second: Tensor) -> float:
    """A plain number, accurate near 0 and pi as the arc cosine is not; pi/2 for a zero vector."""
    one, other = unit(first.detach()), unit(second.detach())
    return 2.0 * math.atan2(norm(one - other).item(), norm(one + other).item())


def hinge(value: Tensor) -> Tensor:
    return value if value.item() > 0.0 else value * 0.0


def log_sum_exp(terms: Sequence[Tensor]) -> Tensor:
    peak = max(term.item() for term in terms)
    total = torch.exp(terms[0] - peak)
    for term in terms[1:]:
        total = total + torch.exp(term - peak)
    return peak + torch.log(total)


def log1p_sum_exp(terms: Sequence[Tensor]) -> Tensor:
    """log(1 + sum exp(terms)) of at least one term; tiny results keep their digits."""
    peak = max(term.item() for term in terms)
    if peak <= 0.0:
        total = torch.exp(terms[0])
        for term in terms[1:]:
            total = total + torch.exp(term)
        return torch.log1p(total)
    total = torch.exp(terms[0] - peak)
    for term in terms[1:]:
        total = total + torch.exp(term - peak)
    return peak + torch.log(math.exp(-peak) + total)


def mean_of(terms: Sequence[Tensor], zero: Tensor) -> Tensor:
    """The mean, or the connected zero when there is nothing to average."""
    if not terms:
        return zero
    return zero + sum_of(terms) / len(terms)


def sum_of(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def first_smallest(numbers: Sequence[float]) -> int:
    return min(range(len(numbers)), key=lambda index: numbers[index])


def first_largest(numbers: Sequence[float]) -> int:
    return max(range(len(numbers)), key=lambda index: numbers[index])


def others_of_class(labels: Sequence[int], i: int) -> list[int]:
    return [j for j in range(len(labels)) if j != i and labels[j] == labels[i]]


def samples_of_other_classes(labels: Sequence[int], i: int) -> list[int]:
    return [j for j in range(len(labels)) if labels[j] != labels[i]]


def unordered_pairs(labels: Sequence[int], *, same: bool) -> list[tuple[int, int]]:
    count = len(labels)
    return [
        (i, j)
        for i in range(count)
        for j in range(i + 1, count)
        if (labels[i] == labels[j]) == same
    ]


def ordered_pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(count) if i != j]


def next_same(labels: Sequence[int]) -> list[int]:
    """The next sample of the class in batch order, cyclic; -1 for a singleton."""
    count = len(labels)
    found = []
    for i in range(count):
        following = [(i + step) % count for step in range(1, count)]
        found.append(next((j for j in following if labels[j] == labels[i]), -1))
    return found


def norm_penalty(embeddings: Tensor, norm_weight: float) -> Tensor:
    total = zero_with_grad(embeddings)
    for x in embeddings:
        total = total + squared_norm(x)
    return norm_weight / (2.0 * len(embeddings)) * total


# --- losses --------------------------------------------------------------------------------------


def n_pair_loss(
    embeddings: Tensor, labels: Tensor, *, norm_weight: float = 0.0, anchors: str = "all"
) -> Tensor:
    """Anchor i, positive the next sample of its class, negatives all samples of other classes.

    ALMN Eq.1 names the pair the other way round: its a_i is the anchor and x_i the positive.
    anchors "first": the first sample of a class, against the positives of the other anchors.
    """
    classes = labels.tolist()
    if anchors == "first":
        members = [[i for i, own in enumerate(classes) if own == c] for c in set(classes)]
        pairs = [own[:2] for own in members if len(own) > 1]
        terms = zero_with_grad(embeddings)
        for first, second in pairs:
            anchor = embeddings[first]
            pull = dot(anchor, embeddings[second])
            push = [dot(anchor, embeddings[p]) - pull for a, p in pairs if a != first]
            if push:
                terms = terms + log1p_sum_exp(push)
        return terms / max(len(pairs), 1) + norm_penalty(embeddings, norm_weight)
    total = zero_with_grad(embeddings)
    for i, positive in enumerate(next_same(classes)):
        negatives = samples_of_other_classes(classes, i)
        if positive < 0 or not negatives:
            continue
        anchor = embeddings[i]
        pull = dot(anchor, embeddings[positive])
        total = total + log1p_sum_exp([dot(anchor, embeddings[j]) - pull for j in negatives])
    return total / len(classes) + norm_penalty(embeddings, norm_weight)


def almn_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    norm_weight: float = 5e-4,
    margin: str = "clipped",
) -> Tensor:
    classes = labels.tolist()
    points = virtual_points(embeddings, labels, centers, beta=beta, margin=margin)
    total = zero_with_grad(embeddings)
    for i, label in enumerate(classes):
        negatives = samples_of_other_classes(classes, i)
        if not negatives:
            continue
        center = centers[label].detach()
        pull = dot(points[i], center)
        total = total + log1p_sum_exp([dot(embeddings[j], center) - pull for j in negatives])
    return total / len(classes) + norm_penalty(embeddings, norm_weight)


def virtual_points(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    margin: str = "clipped",
) -> Tensor:
    classes = labels.tolist()
    points = []
    for i, label in enumerate(classes):
        x, center = embeddings[i], centers[label].detach()
        negatives = samples_of_other_classes(classes, i)
        length, gap = norm(x), norm(x - center)
        if 0.0 in (length.item(), gap.item(), norm(center).item()) or not negatives:
            points.append(x)
            continue
        nearest = min(angle(center, embeddings[j]) for j in negatives)
        room = nearest - angle(center, x)
        if margin == "clipped":
            chord = 2.0 * math.sin(max(room, 0.0) / 2.0)
        elif margin == "printed":
            chord = 2.0 * math.sin(abs(room) / 2.0)  # sqrt(2 - 2 cos(room)), without cancellation
        else:
            raise ValueError(f"unknown margin {margin!r}")
        moved = x + beta * chord * length / gap * (x - center)
        points.append(length * unit(moved))
    return torch.stack(points)


def update_centers(
    centers: Tensor, embeddings: Tensor, labels: Tensor, *, rate: float = 0.5
) -> Tensor:
    classes = labels.tolist()
    updated = centers.detach().clone()
    for label in sorted(set(classes)):
        members = [i for i, other in enumerate(classes) if other == label]
        center = centers[label].detach()
        pull = torch.zeros_like(center)
        for i in members:
            pull = pull + (center - embeddings[i].detach())
        updated[label] = center - rate * pull / (1 + len(members))
    return updated


def fixed_margin_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    multiplier: int = 2,
    norm_weight: float = 5e-4,
) -> Tensor:
    classes = labels.tolist()
    total = zero_with_grad(embeddings)
    for i, label in enumerate(classes):
        negatives = samples_of_other_classes(classes, i)
        if not negatives:
            continue
        x, center = embeddings[i], centers[label].detach()
        fold = min(math.floor(multiplier * angle(x, center) / math.pi), multiplier - 1)
        stretched = chebyshev(dot(unit(x), unit(center)), multiplier)
        psi = (-1) ** fold * stretched - 2 * fold
        pull = norm(x) * norm(center) * psi
        total = total + log1p_sum_exp([dot(embeddings[j], center) - pull for j in negatives])
    return total / len(classes) + norm_penalty(embeddings, norm_weight)


def chebyshev(cosine: Tensor, multiplier: int) -> Tensor:
    """cos(multiplier * theta) from cos(theta)."""
    before, current = torch.ones_like(cosine), cosine
    if multiplier == 0:
        return before
    for _ in range(multiplier - 1):
        before, current = current, 2.0 * cosine * current - before
    return current


def nra_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    alpha: float = 4.0,
    eps: float = 1e-4,
    detach_range: bool = False,
    sharpness: float | None = None,
) -> Tensor:
    classes = labels.tolist()
    count = len(classes)
    total = zero_with_grad(embeddings)
    for i in range(count):
        others = [j for j in range(count) if j != i]
        if not others:
            continue
        to = {j: distance(embeddings[i], embeddings[j]) for j in others}
        low, high = select(to, others, first_smallest), select(to, others, first_largest)
        if detach_range:
            low, high = low.detach(), high.detach()
        positives, negatives = others_of_class(classes, i), samples_of_other_classes(classes, i)
        unit = sum_of(list(to.values())) / len(to)
        unit = unit if unit.item() else total.new_ones(())
        if positives:
            far = select(to, positives, first_largest)
            if sharpness is not None:
                scaled = torch.stack([to[j] / unit for j in positives])
                far = unit * log_exp_mean(scaled, sharpness)
            total = total - torch.log(1.0 - rank_weight(far, low, high, alpha) + eps)
        if negatives:
            near = select(to, negatives, first_smallest)
            if sharpness is not None:
                scaled = torch.stack([to[j] / unit for j in negatives])
                near = unit * log_exp_mean(scaled, -sharpness)
            total = total - torch.log(rank_weight(near, low, high, alpha) + eps)
    return total / count


def select(
    values: dict[int, Tensor], candidates: Sequence[int], choose: Callable[[Sequence[float]], int]
) -> Tensor:
    """The value at the chosen candidate, first index on ties."""
    return values[candidates[choose([values[j].item() for j in candidates])]]


def rank_weight(value: Tensor, low: Tensor, high: Tensor, alpha: float) -> Tensor:
    if high.item() == low.item():
        return value * 0.0 + 0.5
    rank = (value - low) / (high - low)
    if rank.item() < 0.5:
        return (2.0 * rank) ** alpha / 2.0
    return 1.0 - (2.0 * (1.0 - rank)) ** alpha / 2.0


def magnet_loss(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    *,
    alpha: float = 1.0,
    eps: float = 1e-8,
    sharpness: float = 1.0,
) -> Tensor:
    """The variance is V + eps; clusters with no sample in the batch are ignored."""
    assigned, class_of = clusters.tolist(), cluster_labels.tolist()
    count = len(assigned)
    zero = zero_with_grad(embeddings)
    means = {}
    for k in sorted(set(assigned)):
        means[k] = mean_of([embeddings[i] for i in range(count) if assigned[i] == k], zero)
    variance = zero
    for i, k in enumerate(assigned):
        variance = variance + squared_distance(embeddings[i], means[k])
    variance = variance / (sharpness * max(count - 1, 1)) + eps

    total = zero
    for i, own in enumerate(assigned):
        impostors = [k for k in means if class_of[k] != class_of[own]]
        if not impostors:
            continue
        x = embeddings[i]
        pull = squared_distance(x, means[own]) / (2.0 * variance)
        push = log_sum_exp([-squared_distance(x, means[k]) / (2.0 * variance) for k in impostors])
        total = total + hinge(pull + alpha + push)
    return total / count


def cluster_nca_loss(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, *, eps: float = 1e-8
) -> Tensor:
    """-log(same / all) is log(1 + other / same), which keeps its digits where others are far."""
    assigned, class_of = clusters.tolist(), cluster_labels.tolist()
    count = len(assigned)
    zero = zero_with_grad(embeddings)
    centers = {}
    for k in sorted(set(assigned)):
        centers[k] = mean_of([embeddings[i] for i in range(count) if assigned[i] == k], zero)
    spread = sum_of([squared_distance(embeddings[i], centers[k]) for i, k in enumerate(assigned)])
    variance = spread / max(count - 1, 1) + eps

    total = zero
    for i, own in enumerate(assigned):
        logits = {
            k: -squared_distance(embeddings[i], centers[k]) / (2.0 * variance) for k in centers
        }
        mates = log_sum_exp([logits[k] for k in centers if class_of[k] == class_of[own]])
        others = [logits[k] - mates for k in centers if class_of[k] != class_of[own]]
        if others:
            total = total + log1p_sum_exp(others)
    return total / count


def contrastive_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    reduction: str = "mean_each",
    squared: bool = True,
    distance: str | None = None,
) -> Tensor:
    classes = labels.tolist()
    zero = zero_with_grad(embeddings)
    measure = measure_of(distance, squared)
    pulls = [measure(embeddings[i], embeddings[j]) for i, j in unordered_pairs(classes, same=True)]
    pushes = [
        hinge(margin - measure(embeddings[i], embeddings[j]))
        for i, j in unordered_pairs(classes, same=False)
    ]
    if reduction == "mean_active":
        pulls, pushes = ([term for term in terms if term.item() > 0] for terms in (pulls, pushes))
        return mean_of(pulls, zero) + mean_of(pushes, zero)
    if reduction == "mean_each":
        return mean_of(pulls, zero) + mean_of(pushes, zero)
    if reduction == "mean":
        return mean_of(pulls + pushes, zero)
    if reduction == "sum":
        return zero + sum_of([zero, *pulls, *pushes])
    raise ValueError(f"unknown reduction {reduction!r}")


def learner_sizes(groups: int | tuple[int, ...], dim: int) -> list[int]:
    """Dimensions dealt out to the learners in turn, or sizes as they are given."""
    if not isinstance(groups, int):
        return list(groups)
    sizes = [0] * min(groups, dim)
    for place in range(dim):
        sizes[place % len(sizes)] += 1
    return sizes


def learners(embeddings: Tensor, groups: int | tuple[int, ...]) -> list[list[Tensor]]:
    """For each learner the unit vectors of its group of dimensions."""
    found, start = [], 0
    for size in learner_sizes(groups, embeddings.shape[1]):
        found.append(units(embeddings[:, start : start + size]))
        start += size
    return found


def bier_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    groups: int | tuple[int, ...] = 3,
    scale: float = 2.0,
    margin: float = 0.5,
    cost: float = 25.0,
) -> Tensor:
    classes = labels.tolist()
    zero = zero_with_grad(embeddings)
    directions = learners(embeddings, groups)
    total = zero
    for same in (True, False):
        factor = scale if same else -cost * scale
        terms = []
        for i, j in unordered_pairs(classes, same=same):
            weight, ensemble = 1.0, 0.0
            for m, learner in enumerate(directions, start=1):
                cosine = dot(learner[i], learner[j])
                terms.append(weight * log1p_sum_exp([-factor * (cosine - margin)]))
                step = 2.0 / (m + 1)
                ensemble = (1.0 - step) * ensemble + step * cosine.item()
                weight = 1.0 / (1.0 + math.exp(factor * (ensemble - margin)))
        total = total + mean_of(terms, zero)
    return total


def hdc_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    groups: int | tuple[int, ...] = 3,
    shares: tuple[float, ...] = (1.0, 0.5, 0.2),
    margin: float = 1.0,
) -> Tensor:
    """Distances within 1e-6 of each other tie."""
    classes = labels.tolist()
    total = zero_with_grad(embeddings)
    pairs = {same: unordered_pairs(classes, same=same) for same in (True, False)}
    counts = {same: len(pairs[same]) for same in pairs}
    for k, learner in enumerate(learners(embeddings, groups)):
        losses = {}
        for i, j in pairs[True]:
            losses[i, j] = squared_distance(learner[i], learner[j])
        for i, j in pairs[False]:
            losses[i, j] = hinge(margin - squared_distance(learner[i], learner[j]))
        total = total + mean_of(list(losses.values()), zero_with_grad(embeddings))
        if k + 1 == len(shares):
            break
        for same, left in pairs.items():
            apart = {(i, j): squared_distance(learner[i], learner[j]).item() for i, j in left}
            hardness = {pair: value if same else -value for pair, value in apart.items()}
            ranked = sorted(hardness.values(), reverse=True)
            kept = max(1, round(shares[k + 1] * counts[same]))
            pairs[same] = [pair for pair in left if hardness[pair] > ranked[kept - 1] - 1e-6]
    return total


def triplet_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    mining: str = "all",
    reduction: str = "mean",
    squared: bool = True,
    distance: str | None = None,
) -> Tensor:
    """`reduction` is for mining "all"; the mined forms are means over their anchors or pairs."""
    classes = labels.tolist()
    measure = measure_of(distance, squared)
    mined: dict[str, Callable[[Tensor, list[int], Measure, float], list[Tensor]]] = {
        "all": all_triplets,
        "semi_hard": semi_hard_triplets,
        "batch_hard": batch_hard_triplets,
        "disjoint": disjoint_triplets,
    }
    terms = mined[mining](embeddings, classes, measure, margin)
    zero = zero_with_grad(embeddings)
    if mining != "all" or reduction == "mean":
        return mean_of(terms, zero)
    if reduction == "mean_active":
        return mean_of([term for term in terms if term.item() > 0.0], zero)
    if reduction == "sum":
        return sum_of([zero, *terms])
    raise ValueError(f"unknown reduction {reduction!r}")


def threes(classes: list[int]) -> list[tuple[int, int, int]]:
    """Disjoint triplets: samples of a class by threes, the third for the anchor before."""
    order = list(dict.fromkeys(classes))
    members = {c: [i for i, other in enumerate(classes) if other == c] for c in order}
    rounds = range(len(classes) // 3)
    found = [
        members[c][3 * r : 3 * r + 3] for r in rounds for c in order if len(members[c]) >= 3 * r + 3
    ]
    following = [*found[1:], *found[:1]]
    return [
        (a, p, third)
        for (a, p, _), (*_, third) in zip(found, following, strict=True)
        if classes[a] != classes[third]
    ]


def disjoint_triplets(
    embeddings: Tensor, classes: list[int], measure: Measure, margin: float
) -> list[Tensor]:
    x = embeddings
    return [
        hinge(measure(x[a], x[p]) - measure(x[a], x[n]) + margin) for a, p, n in threes(classes)
    ]


def all_triplets(
    embeddings: Tensor, classes: list[int], measure: Measure, margin: float
) -> list[Tensor]:
    terms = []
    for i, x in enumerate(embeddings):
        for j in others_of_class(classes, i):
            for k in samples_of_other_classes(classes, i):
                gap = measure(x, embeddings[j]) - measure(x, embeddings[k])
                terms.append(hinge(gap + margin))
    return terms


def semi_hard_triplets(
    embeddings: Tensor, classes: list[int], measure: Measure, margin: float
) -> list[Tensor]:
    """Per ordered positive pair: the nearest negative beyond the positive, else the farthest."""
    terms = []
    for i, x in enumerate(embeddings):
        negatives = samples_of_other_classes(classes, i)
        if not negatives:
            continue
        to = {k: measure(x, embeddings[k]) for k in negatives}
        for j in others_of_class(classes, i):
            far = measure(x, embeddings[j])
            beyond = [k for k in negatives if to[k].item() > far.item()]
            if beyond:
                near = select(to, beyond, first_smallest)
            else:
                near = select(to, negatives, first_largest)
            terms.append(hinge(far - near + margin))
    return terms


def batch_hard_triplets(
    embeddings: Tensor, classes: list[int], measure: Measure, margin: float
) -> list[Tensor]:
    terms = []
    for i, x in enumerate(embeddings):
        positives, negatives = others_of_class(classes, i), samples_of_other_classes(classes, i)
        if not positives or not negatives:
            continue
        to = {j: measure(x, embeddings[j]) for j in positives + negatives}
        far, near = select(to, positives, first_largest), select(to, negatives, first_smallest)
        terms.append(hinge(far - near + margin))
    return terms


def hierarchical_triplet_loss(
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    spreads: Tensor,
    *,
    margin: float = 0.1,
    levels: int = 16,
) -> Tensor:
    """Node by node, level by level; what has not met on the last level meets there."""
    classes = labels.tolist()
    within = [2.0 * spread for spread in spreads.tolist()]
    start = sum(within) / len(within)
    thresholds = [start + level * max(4.0 - start, 0.0) / levels for level in range(levels + 1)]
    nodes = [{label} for label in sorted(set(classes))]
    met = {(p, q): thresholds[-1] for p in set(classes) for q in set(classes)}
    for threshold in reversed(thresholds):  # the lowest one is written last
        for node in merged(nodes, means, within, threshold):
            met.update({(p, q): threshold for p in node for q in node})
    hinges = [
        hinge(
            squared_distance(embeddings[a], embeddings[p])
            - squared_distance(embeddings[a], embeddings[n])
            + (margin + met[classes[a], classes[n]] - within[classes[a]])
        )
        for a in range(len(classes))
        for p in others_of_class(classes, a)
        for n in samples_of_other_classes(classes, a)
    ]
    return mean_of(hinges, zero_with_grad(embeddings)) / 2.0


def merged(
    nodes: list[set[int]], means: Tensor, within: list[float], threshold: float
) -> list[set[int]]:
    """The nodes once every two with classes nearer than the threshold are one."""
    for first, second in ordered_pairs(len(nodes)):
        for p, q in product(nodes[first], nodes[second]):
            gap = squared_distance(means[p], means[q]).item() + (within[p] + within[q]) / 2.0
            if gap < threshold:
                rest = [node for k, node in enumerate(nodes) if k not in (first, second)]
                return merged([*rest, nodes[first] | nodes[second]], means, within, threshold)
    return nodes


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
    classes = labels.tolist()
    x = units(embeddings)
    total = zero_with_grad(embeddings, pairwise, joint)

    def score(i: int, j: int) -> Tensor:
        return pair_score(x[i], x[j], pairwise, joint)

    pairs = unordered_pairs(classes, same=True)
    if not pairs or len(set(classes)) == 1:
        return total
    i, j = pairs[first_smallest([score(*pair).item() for pair in pairs])]
    for one in (i, j):
        others = samples_of_other_classes(classes, one)
        negative = others[first_largest([score(one, k).item() for k in others])]
        total = total + hinge(margin + score(one, negative) - score(i, j))
        nearer = squared_distance(x[i], x[j]) - squared_distance(x[one], x[negative])
        total = total + distance_weight * hinge(distance_margin + nearer)
    return total


def pair_score(first: Tensor, second: Tensor, pairwise: Tensor, joint: Tensor) -> Tensor:
    """The similarity of two unit vectors, one unit of one layer at a time."""
    parts = []
    for seen, layer in zip(((first - second).abs(), (first + second) / 2.0), pairwise, strict=True):
        inputs = unit(seen)
        parts.append(unit(torch.stack([hinge(dot(row[:-1], inputs) + row[-1]) for row in layer])))
    inputs = torch.cat(parts)
    return sum_of([hinge(dot(row[:-2], inputs) + row[-2]) * row[-1] for row in joint])


def lifted_structure_loss(embeddings: Tensor, labels: Tensor, *, margin: float = 1.0) -> Tensor:
    classes = labels.tolist()
    zero = zero_with_grad(embeddings)
    terms = []
    for i, j in unordered_pairs(classes, same=True):
        pushes = [
            margin - distance(embeddings[end], embeddings[k])
            for end in (i, j)
            for k in samples_of_other_classes(classes, end)
        ]
        if not pushes:
            terms.append(zero)  # the pair still counts
            continue
        violation = log_sum_exp(pushes) + distance(embeddings[i], embeddings[j])
        terms.append(hinge(violation) ** 2)
    return mean_of(terms, zero) / 2.0


def angular_loss(embeddings: Tensor, labels: Tensor, *, degrees: float = 45.0) -> Tensor:
    classes = labels.tolist()
    slope = math.tan(math.radians(degrees)) ** 2
    total = zero_with_grad(embeddings)
    for i, j in enumerate(next_same(classes)):
        negatives = samples_of_other_classes(classes, i)
        if j < 0 or not negatives:
            continue
        anchor, positive = embeddings[i], embeddings[j]
        pull = 2.0 * (1.0 + slope) * dot(anchor, positive)
        total = total + log1p_sum_exp(
            [4.0 * slope * dot(anchor + positive, embeddings[k]) - pull for k in negatives]
        )
    return total / len(classes)


def proxy_nca_loss(
    embeddings: Tensor,
    labels: Tensor,
    proxies: Tensor,
    *,
    scale: float = 1.0,
    positive_in_denominator: bool = False,
) -> Tensor:
    """Squared distances of unit vectors, by differences: a zero row is at 1 from every proxy."""
    classes = labels.tolist()
    directions = units(proxies)
    total = zero_with_grad(embeddings, proxies)
    for x, label in zip(units(embeddings), classes, strict=True):
        pull = scale * squared_distance(x, directions[label])
        pushes = [
            pull - scale * squared_distance(x, direction)
            for z, direction in enumerate(directions)
            if z != label
        ]
        if not pushes:
            continue
        total = total + (log1p_sum_exp(pushes) if positive_in_denominator else log_sum_exp(pushes))
    return total / len(classes)


def proxy_anchor_loss(
    embeddings: Tensor,
    labels: Tensor,
    proxies: Tensor,
    *,
    alpha: float = 32.0,
    margin: float = 0.1,
) -> Tensor:
    classes = labels.tolist()
    samples, directions = units(embeddings), units(proxies)
    pull = push = zero_with_grad(embeddings, proxies)
    present = 0
    for z, direction in enumerate(directions):
        own = [dot(x, direction) for x, label in zip(samples, classes, strict=True) if label == z]
        rest = [dot(x, direction) for x, label in zip(samples, classes, strict=True) if label != z]
        if own:
            present += 1
            pull = pull + log1p_sum_exp([-alpha * (cosine - margin) for cosine in own])
        if rest:
            push = push + log1p_sum_exp([alpha * (cosine + margin) for cosine in rest])
    return pull / max(present, 1) + push / len(directions)


def multi_similarity_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    mining_margin: float | None = 0.1,
    distance: str = "cosine",
) -> Tensor:
    classes, measure = labels.tolist(), measure_of(distance)
    most = 1.0 if distance == "cosine" else 0.0
    total = zero_with_grad(embeddings)
    for i, x in enumerate(embeddings):
        similar = {j: most - measure(x, other) for j, other in enumerate(embeddings) if j != i}
        positives = [similar[j] for j in others_of_class(classes, i)]
        negatives = [similar[j] for j in samples_of_other_classes(classes, i)]
        if positives and negatives and mining_margin is not None:
            farthest = min(cosine.item() for cosine in positives)
            nearest = max(cosine.item() for cosine in negatives)
            positives = [cosine for cosine in positives if cosine.item() < nearest + mining_margin]
            negatives = [cosine for cosine in negatives if cosine.item() > farthest - mining_margin]
        if not positives or not negatives:
            continue
        total = total + log1p_sum_exp([-alpha * (cosine - base) for cosine in positives]) / alpha
        total = total + log1p_sum_exp([beta * (cosine - base) for cosine in negatives]) / beta
    return total / len(classes)


def supcon_loss(
    embeddings: Tensor, labels: Tensor, *, temperature: float = 0.1, distance: str = "cosine"
) -> Tensor:
    classes, measure = labels.tolist(), measure_of(distance)
    shift = 1.0 if distance == "cosine" else 0.0
    total = zero_with_grad(embeddings)
    for i, x in enumerate(embeddings):
        logits = [(shift - measure(x, other)) / temperature for other in embeddings]
        others = logits[:i] + logits[i + 1 :]
        positives = others_of_class(classes, i)
        for p in positives:
            total = total + (log_sum_exp(others) - logits[p]) / len(positives)
    return total / len(classes)


def circle_loss(
    embeddings: Tensor, labels: Tensor, *, margin: float = 0.25, scale: float = 256.0
) -> Tensor:
    """The mean over the anchors that have a positive and a negative, not over the batch."""
    classes = labels.tolist()
    directions = units(embeddings)
    terms = []
    for i, x in enumerate(directions):
        pulls, pushes = [], []
        for j in others_of_class(classes, i):
            cosine = dot(x, directions[j])
            weight = max(1.0 + margin - cosine.item(), 0.0)
            pulls.append(-scale * weight * (cosine - (1.0 - margin)))
        for j in samples_of_other_classes(classes, i):
            cosine = dot(x, directions[j])
            weight = max(cosine.item() + margin, 0.0)
            pushes.append(scale * weight * (cosine - margin))
        if pulls and pushes:
            terms.append(log1p_sum_exp([log_sum_exp(pushes) + log_sum_exp(pulls)]))
    return mean_of(terms, zero_with_grad(embeddings))


def margin_loss(
    embeddings: Tensor,
    triplets: Tensor,
    *,
    margin: float = 0.2,
    boundary: float = 1.2,
    distance: str = "euclidean",
) -> Tensor:
    measure = measure_of(distance)
    total = zero_with_grad(embeddings)
    active = 0
    for anchor, positive, negative in triplets.tolist():
        x = embeddings[anchor]
        pull = hinge(measure(x, embeddings[positive]) - boundary + margin)
        push = hinge(boundary - measure(x, embeddings[negative]) + margin)
        active += (pull.item() > 0.0) + (push.item() > 0.0)
        total = total + pull + push
    return total / max(active, 1)


def histogram_loss(embeddings: Tensor, labels: Tensor, *, bins: int = 101) -> Tensor:
    classes = labels.tolist()
    directions = units(embeddings)
    zero = zero_with_grad(embeddings)
    same = unordered_pairs(classes, same=True)
    different = unordered_pairs(classes, same=False)
    if not same or not different:
        return zero
    positive = soft_histogram([dot(directions[i], directions[j]) for i, j in same], bins, zero)
    negative = soft_histogram([dot(directions[i], directions[j]) for i, j in different], bins, zero)
    total = cumulative = zero
    for r in range(bins):
        cumulative = cumulative + positive[r]
        total = total + negative[r] * cumulative
    return total


def soft_histogram(values: Sequence[Tensor], bins: int, zero: Tensor) -> list[Tensor]:
    """Triangular assignment to the nodes -1 + 2r/(bins - 1), normalized by the number of values."""
    width = 2.0 / (bins - 1)
    heights = [zero] * bins
    for value in values:
        for r in range(bins):
            offset = value - (-1.0 + 2.0 * r / (bins - 1))
            if abs(offset.item()) < width:
                heights[r] = heights[r] + (1.0 - offset.abs() / width) / len(values)
    return heights


def nca_loss(embeddings: Tensor, labels: Tensor, *, distance: str = "squared_euclidean") -> Tensor:
    """-log(same / all) as log(1 + different / same), which keeps the digits of a tiny loss."""
    classes, measure = labels.tolist(), measure_of(distance)
    total = zero_with_grad(embeddings)
    for i, x in enumerate(embeddings):
        positives, negatives = others_of_class(classes, i), samples_of_other_classes(classes, i)
        if not positives or not negatives:
            continue
        same = log_sum_exp([-measure(x, embeddings[j]) for j in positives])
        different = log_sum_exp([-measure(x, embeddings[j]) for j in negatives])
        total = total + log1p_sum_exp([different - same])
    return total / len(classes)


def softmax_loss(
    embeddings: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    classes = labels.tolist()
    total = (
        zero_with_grad(embeddings, weight)
        if bias is None
        else zero_with_grad(embeddings, weight, bias)
    )
    for x, label in zip(embeddings, classes, strict=True):
        logits = [dot(x, row) for row in weight]
        if bias is not None:
            logits = [logit + shift for logit, shift in zip(logits, bias, strict=True)]
        rest = [logit - logits[label] for z, logit in enumerate(logits) if z != label]
        if rest:
            total = total + log1p_sum_exp(rest)
    return total / len(classes)


def normalized_softmax_loss(
    embeddings: Tensor, labels: Tensor, weight: Tensor, *, scale: float = 20.0
) -> Tensor:
    classes = labels.tolist()
    directions = units(weight)
    total = zero_with_grad(embeddings, weight)
    for x, label in zip(units(embeddings), classes, strict=True):
        logits = [scale * dot(x, direction) for direction in directions]
        rest = [logit - logits[label] for z, logit in enumerate(logits) if z != label]
        if rest:
            total = total + log1p_sum_exp(rest)
    return total / len(classes)


def own_against_others(logits: list[Tensor], label: int, own: Tensor) -> Tensor:
    """Cross-entropy of the logits, that of the label replaced by `own`."""
    rest = [logit - own for z, logit in enumerate(logits) if z != label]
    return log1p_sum_exp(rest) if rest else own * 0.0


def larger_angle(first: Tensor, second: Tensor, margin: float) -> Tensor:
    """cos(t + margin) of two unit vectors, the sine from what is left without the projection."""
    cosine = dot(first, second)
    return cosine * math.cos(margin) - norm(first - cosine * second) * math.sin(margin)


def arcface_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    *,
    scale: float = 64.0,
    margin: float = 0.5,
) -> Tensor:
    rows, total = units(weight), zero_with_grad(embeddings, weight)
    for x, label in zip(units(embeddings), labels.tolist(), strict=True):
        own = scale * larger_angle(x, rows[label], margin)
        total = total + own_against_others([scale * dot(x, row) for row in rows], label, own)
    return total / len(labels)


def cosface_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    *,
    scale: float = 64.0,
    margin: float = 0.35,
) -> Tensor:
    rows, total = units(weight), zero_with_grad(embeddings, weight)
    for x, label in zip(units(embeddings), labels.tolist(), strict=True):
        logits = [scale * dot(x, row) for row in rows]
        total = total + own_against_others(logits, label, logits[label] - scale * margin)
    return total / len(labels)


def sphereface_loss(
    embeddings: Tensor, labels: Tensor, weight: Tensor, *, multiplier: int = 4
) -> Tensor:
    rows, total = units(weight), zero_with_grad(embeddings, weight)
    for x, label in zip(embeddings, labels.tolist(), strict=True):
        fold = min(math.floor(multiplier * angle(x, rows[label]) / math.pi), multiplier - 1)
        stretched = chebyshev(dot(unit(x), rows[label]), multiplier)
        own = norm(x) * ((-1) ** fold * stretched - 2 * fold)
        logits = [norm(x) * dot(unit(x), row) for row in rows]
        total = total + own_against_others(logits, label, own)
    return total / len(labels)


def sub_center_arcface_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    scale: float = 64.0,
    margin: float = 0.5,
) -> Tensor:
    total = zero_with_grad(embeddings, centers)
    directions = [units(rows) for rows in centers]
    for x, label in zip(units(embeddings), labels.tolist(), strict=True):
        nearest = [rows[first_largest([dot(x, row).item() for row in rows])] for rows in directions]
        own = scale * larger_angle(x, nearest[label], margin)
        logits = [scale * dot(x, row) for row in nearest]
        total = total + own_against_others(logits, label, own)
    return total / len(labels)


def soft_triple_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    scale: float = 20.0,
    gamma: float = 0.1,
    margin: float = 0.01,
) -> Tensor:
    total = zero_with_grad(embeddings, centers)
    directions = [units(rows) for rows in centers]
    for x, label in zip(units(embeddings), labels.tolist(), strict=True):
        logits = []
        for rows in directions:
            near = [dot(x, row) for row in rows]
            whole = log_sum_exp([s / gamma for s in near])
            logits.append(scale * sum_of([torch.exp(s / gamma - whole) * s for s in near]))
        total = total + own_against_others(logits, label, logits[label] - scale * margin)
    return total / len(labels)


def pfml_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    alpha: float = 4.0,
    delta: float = 0.2,
    eps: float = 0.02,
) -> Tensor:
    """Where a power is cut off it is a constant."""
    points = [(x, label) for x, label in zip(units(embeddings), labels.tolist(), strict=True)]
    points += [(unit(row), label) for label, rows in enumerate(centers) for row in rows]
    total = zero_with_grad(embeddings, centers)
    for i, j in ordered_pairs(len(points)):
        (r, one), (z, other) = points[i], points[j]
        far = distance(r, z)
        if one == other:
            total = total - (far if far.item() > delta else far * 0.0 + delta) ** -alpha
        elif far.item() >= delta:
            total = total + delta**-alpha
        else:
            total = total + (far if far.item() > eps else far * 0.0 + eps) ** -alpha
    return total / max(1, len(points) * (len(points) - 1))


def hist_loss(
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    log_variances: Tensor,
    hidden: Tensor,
    norm: Tensor,
    output: Tensor,
    *,
    scale: float = 32.0,
    alpha: float = 0.9,
    weight: float = 1.0,
) -> Tensor:
    """With a hyperedge for each class in the batch, and matrices of degrees as they are printed."""
    classes, xs = labels.tolist(), units(embeddings)
    centers = units(means)
    variances = torch.exp(log_variances.clamp(0.0, 6.0))
    distances = [
        [((x - m) ** 2 / v).sum() for m, v in zip(centers, variances, strict=True)] for x in xs
    ]
    total = zero_with_grad(embeddings, means, log_variances, hidden, norm, output)
    for each, label in zip(distances, classes, strict=True):
        logits = [-scale * d for d in each]
        total = total + own_against_others(logits, label, logits[label])
    edges = sorted(set(classes))
    one = torch.ones((), dtype=embeddings.dtype)
    incidence = torch.stack(
        [
            torch.stack([one if c == label else torch.exp(-alpha * each[c]) for c in edges])
            for each, label in zip(distances, classes, strict=True)
        ]
    )
    nodes = torch.diag(incidence.sum(1) ** -0.5)
    propagation = nodes @ incidence @ torch.diag(1 / incidence.sum(0)) @ incidence.T @ nodes
    z = propagation @ (embeddings @ hidden[:, :-1].T + hidden[:, -1])
    columns = []
    for unit_of_net, column in enumerate(z.T):
        middle = column.mean()
        deviation = torch.sqrt(((column - middle) ** 2).mean() + 1e-5)
        column = (column - middle) / deviation * norm[0, unit_of_net] + norm[1, unit_of_net]
        columns.append(torch.stack([t if t.item() > 0.0 else 0.1 * t for t in column]))
    z = torch.stack(columns, 1)
    logits = propagation @ (z @ output[:, :-1].T + output[:, -1])
    for row, label in zip(logits, classes, strict=True):
        entries = list(row)
        total = total + weight * own_against_others(entries, label, entries[label])
    return total / len(classes)


def adacos_loss(embeddings: Tensor, labels: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    rows, total = units(weight), zero_with_grad(embeddings, weight)
    classes, directions = labels.tolist(), units(embeddings)
    cosines = [[dot(x, row) for row in rows] for x in directions]
    sums = [
        sum(math.exp(scale.item() * s.item()) for z, s in enumerate(each) if z != label)
        for each, label in zip(cosines, classes, strict=True)
    ]
    own = [each[label].item() for each, label in zip(cosines, classes, strict=True)]
    angles = sorted(math.acos(min(1.0, max(-1.0, s))) for s in own)
    middle = min(math.pi / 4, angles[(len(angles) - 1) // 2])
    moved = max(math.log(sum(sums) / len(sums)) / math.cos(middle), 1e-3)
    for each, label in zip(cosines, classes, strict=True):
        logits = [moved * s for s in each]
        total = total + own_against_others(logits, label, logits[label])
    return total / len(classes)


def compared(name: str, embeddings: Tensor, labels: Tensor, **options: Any) -> Tensor:
    """A loop of reference_loops.py on a batch that is compared to itself."""
    import reference_loops

    comparisons = reference_loops.Comparisons(embeddings, labels, embeddings, labels, True)
    return getattr(reference_loops, name)(comparisons, **options)  # type: ignore[no-any-return]


def nt_xent_loss(
    embeddings: Tensor, labels: Tensor, *, temperature: float = 0.07, distance: str = "cosine"
) -> Tensor:
    options = {"temperature": temperature, "distance": distance}
    return compared("nt_xent_loss", embeddings, labels, **options)


def tuplet_margin_loss(
    embeddings: Tensor, labels: Tensor, *, scale: float = 64.0, slack: float = 0.1
) -> Tensor:
    return compared("tuplet_margin_loss", embeddings, labels, scale=scale, slack=slack)


def smooth_ap_loss(embeddings: Tensor, labels: Tensor, *, temperature: float = 0.01) -> Tensor:
    return compared("smooth_ap_loss", embeddings, labels, temperature=temperature)


def roadmap_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    temperature: float = 0.01,
    threshold: float = 0.05,
    slope: float = 100.0,
    positive_margin: float = 0.9,
    negative_margin: float = 0.6,
    calibration: float = 0.5,
) -> Tensor:
    return compared(
        "roadmap_loss",
        embeddings,
        labels,
        temperature=temperature,
        threshold=threshold,
        slope=slope,
        positive_margin=positive_margin,
        negative_margin=negative_margin,
        calibration=calibration,
    )


def recall_surrogate_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    rank_temperature: float = 1.0,
) -> Tensor:
    options = {"ks": ks, "temperature": temperature, "rank_temperature": rank_temperature}
    return compared("recall_surrogate_loss", embeddings, labels, **options)


def fast_ap_loss(embeddings: Tensor, labels: Tensor, *, bins: int = 10) -> Tensor:
    return compared("fast_ap_loss", embeddings, labels, bins=bins)


def ranked_list_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
) -> Tensor:
    options = {"margin": margin, "boundary": boundary}
    options |= {"temperature": temperature, "balance": balance}
    return compared("ranked_list_loss", embeddings, labels, **options)


def ncm_loss(embeddings: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    total = zero_with_grad(embeddings, means)
    for x, label in zip(embeddings, labels.tolist(), strict=True):
        own = squared_distance(x, means[label])
        odds = [own - squared_distance(x, mean) for c, mean in enumerate(means) if c != label]
        if odds:
            total = total + log1p_sum_exp(odds)
    return total / len(embeddings)


def center_loss(embeddings: Tensor, labels: Tensor, centers: Tensor) -> Tensor:
    total = zero_with_grad(embeddings, centers)
    for x, label in zip(embeddings, labels.tolist(), strict=True):
        total = total + squared_distance(x, centers[label])
    return total / (2.0 * len(embeddings))


def clustering_loss(embeddings: Tensor, labels: Tensor, *, margin_weight: float = 1.0) -> Tensor:
    """Facility location (Song et al. 2017), medoids chosen greedily and then held constant."""
    classes = labels.tolist()
    count = len(classes)
    apart = [[distance(x, other) for other in embeddings] for x in embeddings]
    numbers = [[value.item() for value in row] for row in apart]

    medoids: list[int] = []
    for _ in range(len(set(classes))):
        candidates = [j for j in range(count) if j not in medoids]
        scores = [
            facility_score(numbers, classes, [*medoids, j], margin_weight) for j in candidates
        ]
        medoids.append(candidates[first_largest(scores)])
    assigned = nearest_medoids(numbers, medoids)

    violation = zero_with_grad(embeddings)
    for i in range(count):
        violation = violation - apart[i][assigned[i]]
    violation = violation + margin_weight * (1.0 - mutual_information(assigned, classes))
    for label in sorted(set(classes)):
        members = [i for i in range(count) if classes[i] == label]
        costs = [sum(numbers[i][j] for i in members) for j in members]
        best = members[first_smallest(costs)]
        for i in members:
            violation = violation + apart[i][best]
    return hinge(violation)


def nearest_medoids(numbers: list[list[float]], medoids: list[int]) -> list[int]:
    """For each sample the index of its nearest medoid; ties go to the medoid chosen earlier."""
    return [medoids[first_smallest([row[j] for j in medoids])] for row in numbers]


def facility_score(
    numbers: list[list[float]], classes: list[int], medoids: list[int], margin_weight: float
) -> float:
    assigned = nearest_medoids(numbers, medoids)
    cost = sum(numbers[i][assigned[i]] for i in range(len(classes)))
    return -cost + margin_weight * (1.0 - mutual_information(assigned, classes))


def mutual_information(first: Sequence[int], second: Sequence[int]) -> float:
    """Normalized: 2 I / (H + H'), 1 when both partitions are trivial, 0 when one of them is."""
    trivial = (len(set(first)) == 1, len(set(second)) == 1)
    if any(trivial):
        return 1.0 if all(trivial) else 0.0
    count = len(first)
    shared = 0.0
    for a, b in product(sorted(set(first)), sorted(set(second))):
        both = sum(1 for pair in zip(first, second, strict=True) if pair == (a, b))
        if both:
            expected = list(first).count(a) * list(second).count(b)
            shared += both / count * math.log(count * both / expected)
    return 2.0 * shared / (partition_entropy(first) + partition_entropy(second))


def partition_entropy(labels: Sequence[int]) -> float:
    shares = [list(labels).count(label) / len(labels) for label in sorted(set(labels))]
    return -sum(share * math.log(share) for share in shares)


# --- regularizers --------------------------------------------------------------------------------


def density(
    embeddings: Tensor,
    labels: Tensor,
    targets: Tensor,
    original: Tensor | None = None,
    *,
    eta: float = 0.5,
    reduction: str = "mean",
) -> Tensor:
    classes = labels.tolist()
    zero = zero_with_grad(embeddings, targets)
    kept = [label for label in sorted(set(classes)) if classes.count(label) >= 2]
    if not kept:
        return zero
    total = zero
    share = len(kept) if reduction == "mean" else 1
    for label in kept:
        members = [x for x, other in zip(embeddings, classes, strict=True) if other == label]
        mean = mean_of(members, zero)
        spread = mean_of([squared_distance(x, mean) for x in members], zero)
        total = total + ((spread - targets[label]) ** 2 - targets[label]) / share
    if original is None:
        return total
    powers = {label: original[label].detach() ** eta for label in kept}
    for i, j in product(kept, kept):
        difference = powers[j] * targets[i] - powers[i] * targets[j]
        total = total + difference**2 / share**2
    return total


def log_exp_spread(
    centers: Tensor, *, sharpness: float = 8.0, margin: float | None = None
) -> Tensor:
    directions = units(centers)
    count = len(directions)
    total = zero_with_grad(centers)
    if count < 2:
        return total
    for i in range(count):
        cosines = [dot(directions[i], directions[j]) for j in range(count) if j != i]
        if margin is None:
            total = total + log_exp_mean(torch.stack(cosines), sharpness)
        else:
            pushes = [sharpness * (cosine - margin) for cosine in cosines]
            total = total + log1p_sum_exp(pushes) / sharpness
    return total / count


def power_spread(centers: Tensor, *, power: float = 4.0) -> Tensor:
    directions = units(centers)
    # The cosine of opposite vectors may round to just under -1: hence the hinge.
    values = [
        hinge((1.0 + dot(directions[i], directions[j])) / 2.0)
        for i, j in ordered_pairs(len(directions))
    ]
    if not values:
        return zero_with_grad(centers)
    return zero_with_grad(centers) + power_mean(torch.stack(values), power)


SHORTEST_CHORD = 1e-6


def hyperspherical_energy(centers: Tensor, *, power: float = 1.0) -> Tensor:
    directions = units(centers)
    terms = []
    for i, j in ordered_pairs(len(directions)):
        chord = distance(directions[i], directions[j])
        if chord.item() < SHORTEST_CHORD:
            chord = chord * 0.0 + SHORTEST_CHORD
        terms.append(-torch.log(chord) if power == 0 else chord**-power)
    return mean_of(terms, zero_with_grad(centers))


def uniform_spread(centers: Tensor) -> Tensor:
    directions = units(centers)
    terms = [
        1.0 / (distance(directions[i], directions[j]) + 1.0)
        for i, j in ordered_pairs(len(directions))
    ]
    return mean_of(terms, zero_with_grad(centers))


def orthogonal(embeddings: Tensor, labels: Tensor) -> Tensor:
    zero = zero_with_grad(embeddings)
    products = [
        dot(embeddings[i], embeddings[j]) for i, j in unordered_pairs(labels.tolist(), same=False)
    ]
    if not products:
        return zero
    first = mean_of(products, zero)
    second = mean_of([value**2 for value in products], zero)
    return first**2 + hinge(second - 1.0 / embeddings.shape[1])


def global_statistics(
    embeddings: Tensor, labels: Tensor, *, margin: float = 0.4, mean_weight: float = 0.8
) -> Tensor:
    """Means and variances over the unordered pairs of each kind."""
    directions = units(embeddings)
    total = zero = zero_with_grad(embeddings)
    means = []
    for same in (True, False):
        pairs = unordered_pairs(labels.tolist(), same=same)
        quarters = [squared_distance(directions[i], directions[j]) / 4.0 for i, j in pairs]
        mean = mean_of(quarters, zero)
        total = total + mean_of([(quarter - mean) ** 2 for quarter in quarters], zero)
        means += [mean] if pairs else []
    if len(means) == 2:
        total = total + mean_weight * hinge(means[0] - means[1] + margin)
    return total


def divergence(
    embeddings: Tensor, *, groups: int | tuple[int, ...] = 8, margin: float = 1.0
) -> Tensor:
    """A learner of fewer dimensions is compared as if it had zeros in the rest."""
    found = learners(embeddings, groups)
    terms = []
    for p, first in enumerate(found):
        for second in found[p + 1 :]:
            for one, other in zip(first, second, strict=True):
                size = min(len(one), len(other))
                apart = squared_distance(one[:size], other[:size])
                apart = apart + squared_norm(one[size:]) + squared_norm(other[size:])
                terms.append(hinge(margin - apart))
    return mean_of(terms, zero_with_grad(embeddings))


def adversarial_penalty(
    embeddings: Tensor,
    hidden: Tensor,
    output: Tensor,
    *,
    groups: int | tuple[int, ...] = 3,
    weight_penalty: float = 100.0,
) -> Tensor:
    """The embeddings see the similarity with fixed regressors, these with fixed embeddings."""
    total = zero_with_grad(embeddings, hidden, output)
    by_size = sorted(learners(embeddings, groups), key=lambda learner: len(learner[0]))
    row = column = 0
    for i, smaller in enumerate(by_size):
        for larger in by_size[i + 1 :]:
            size, source = len(smaller[0]), len(larger[0])
            first = hidden[row : row + source + 1]
            second = output[:, column : column + size]
            row, column = row + source + 1, column + size
            by_embeddings, by_layers = [], []
            for small, large in zip(smaller, larger, strict=True):
                fixed = regressed(large, first.detach(), second.detach())
                by_embeddings += squared_products(small, fixed)
                fitted = regressed(large.detach(), first, second)
                by_layers += squared_products(small.detach(), fitted)
            seen, made = mean_of(by_embeddings, total * 0.0), mean_of(by_layers, total * 0.0)
            total = total + seen - made - made.detach()
            for layer in (first, second):
                lengths = [(squared_norm(weights) - 1.0) ** 2 for weights in layer[:-1]]
                excess = hinge(squared_norm(layer[-1]) - 1.0)
                total = total + weight_penalty * (mean_of(lengths, total * 0.0) + excess)
    return total


def regressed(source: Tensor, first: Tensor, second: Tensor) -> list[Tensor]:
    """What two layers make of a vector, one unit at a time; the last row is the bias."""
    units = [hinge(dot(source, weights[:-1]) + weights[-1]) for weights in first.T]
    return [dot(torch.stack(units), weights[:-1]) + weights[-1] for weights in second.T]


def squared_products(first: Tensor, second: Sequence[Tensor]) -> list[Tensor]:
    return [(one * other) ** 2 for one, other in zip(first, second, strict=True)]


def entropy(embeddings: Tensor, *, bandwidth: float = 1.0) -> Tensor:
    count = len(embeddings)
    total = zero_with_grad(embeddings)
    if count < 2:
        return total
    for i, x in enumerate(embeddings):
        kernels = [
            -squared_distance(x, embeddings[j]) / (2.0 * bandwidth**2)
            for j in range(count)
            if j != i
        ]
        total = total + log_sum_exp(kernels) - math.log(count - 1)
    return total / count


# --- numerics ------------------------------------------------------------------------------------


def k_skewed_mean(values: Tensor, k: int) -> Tensor:
    """The mean of the k largest of all the values, or of the -k smallest; first index on ties."""
    entries = list(values.reshape(-1))
    if k == 0 or abs(k) > len(entries):
        raise ValueError(f"k must be 1 to {len(entries)} or -{len(entries)} to -1, not {k}")
    sign = -1.0 if k > 0 else 1.0
    order = sorted(range(len(entries)), key=lambda index: sign * entries[index].item())
    return mean_of([entries[index] for index in order[: abs(k)]], zero_with_grad(values))


def log_exp_mean(values: Tensor, sharpness: float, dim: int = -1) -> Tensor:
    return along(values, dim, lambda entries: log_exp_mean_of(entries, sharpness))


def log_exp_mean_of(entries: list[Tensor], sharpness: float) -> Tensor:
    if sharpness == 0.0:
        return sum_of(entries) / len(entries)
    if math.isinf(sharpness):
        return extreme(entries, largest=sharpness > 0)
    total = log_sum_exp([sharpness * entry for entry in entries])
    return (total - math.log(len(entries))) / sharpness


def power_mean(values: Tensor, power: float, dim: int = -1) -> Tensor:
    return along(values, dim, lambda entries: power_mean_of(entries, power))


def power_mean_of(entries: list[Tensor], power: float) -> Tensor:
    """In log space. A zero entry makes the mean 0 for power <= 0 and drops out for power > 0."""
    if math.isinf(power):
        return extreme(entries, largest=power > 0)
    logs = [torch.log(entry) for entry in entries if entry.item() > 0.0]
    if not logs or (power <= 0.0 and len(logs) < len(entries)):
        return sum_of(entries) * 0.0
    if power == 0.0:
        return torch.exp(sum_of(logs) / len(entries))
    total = log_sum_exp([power * entry for entry in logs])
    return torch.exp((total - math.log(len(entries))) / power)


def extreme(entries: list[Tensor], *, largest: bool) -> Tensor:
    numbers = [entry.item() for entry in entries]
    return entries[first_largest(numbers) if largest else first_smallest(numbers)]


def along(values: Tensor, dim: int, reduce: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Apply `reduce` to each line of values along dim."""
    moved = values.movedim(dim, -1)
    lines = moved.reshape(-1, moved.shape[-1])
    return torch.stack([reduce(list(line)) for line in lines]).reshape(moved.shape[:-1])


# --- miners --------------------------------------------------------------------------------------


def distance_weights(
    embeddings: Tensor,
    labels: Tensor,
    anchor: int,
    *,
    cutoff: float = 0.5,
    nonzero_cutoff: float = 1.4,
) -> Tensor:
    """The probability of each sample as the anchor's negative; all zero without a negative."""
    classes = labels.tolist()
    dim = embeddings.shape[1]
    weights = torch.zeros(len(classes), dtype=embeddings.dtype)
    negatives = samples_of_other_classes(classes, anchor)
    logs = {}
    for j in negatives:
        apart = distance(embeddings[anchor], embeddings[j]).item()
        if apart < nonzero_cutoff:
            clipped = max(apart, cutoff)
            rest = math.log(1.0 - clipped**2 / 4.0)
            logs[j] = -((dim - 2) * math.log(clipped) + (dim - 3) / 2.0 * rest)
    if not logs:
        for j in negatives:
            weights[j] = 1.0 / len(negatives)
        return weights
    peak = max(logs.values())
    total = sum(math.exp(value - peak) for value in logs.values())
    for j, value in logs.items():
        weights[j] = math.exp(value - peak) / total
    return weights
