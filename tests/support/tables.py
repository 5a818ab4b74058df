"""Some methods as plain tables of differences: an oracle for batches too large for the loops.

Every distance is made of x_i - x_j in a table (batch, batch, dim), every triplet has its place in a
table (batch, batch, batch). Nothing is sorted, shared or expanded. test_exactness.py holds them
against the loops.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def squares(x: Tensor, y: Tensor | None = None) -> Tensor:
    return (x[:, None] - (x if y is None else y)).square().sum(-1)


def lengths(x: Tensor, y: Tensor | None = None) -> Tensor:
    squared = squares(x, y)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1).sqrt(), 0)


def directions(x: Tensor) -> Tensor:
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, 1)


def same_and_different(labels: Tensor) -> tuple[Tensor, Tensor]:
    same = labels[:, None] == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool), ~same


def log_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Rows whose mask is empty give -inf and may not be used."""
    return torch.where(mask, values, -math.inf).logsumexp(-1)


def contrastive_loss(
    embeddings: Tensor, labels: Tensor, *, margin: float = 1.0, reduction: str = "mean_each"
) -> Tensor:
    apart = squares(embeddings)
    once = torch.ones_like(apart).triu(1).bool()
    same, different = (mask & once for mask in same_and_different(labels))
    pulls, pushes = apart[same], (margin - apart[different]).relu()
    if reduction == "mean_each":
        return pulls.mean() + pushes.mean()
    total = pulls.sum() + pushes.sum()
    return total if reduction == "sum" else total / (len(pulls) + len(pushes))


def triplet_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    mining: str = "all",
    reduction: str = "mean",
    squared: bool = True,
) -> Tensor:
    apart = squares(embeddings) if squared else lengths(embeddings)
    same, different = same_and_different(labels)
    hinges = apart[:, :, None] - apart[:, None, :] + margin  # (anchor, positive, negative)
    used = same[:, :, None] & different[:, None, :]
    if mining == "semi_hard":
        beyond = used & (apart[:, None, :] > apart[:, :, None])
        near = torch.where(beyond, apart[:, None, :], math.inf).argmin(2)
        far = torch.where(different, apart, -1.0).argmax(1)
        chosen = torch.where(beyond.any(2), near, far[:, None])
        used = used & (torch.arange(len(labels)) == chosen[:, :, None])
    elif mining == "batch_hard":
        far = torch.where(same, apart, -1.0).argmax(1)
        near = torch.where(different, apart, math.inf).argmin(1)
        place = torch.arange(len(labels))
        used = used & (place == far[:, None])[:, :, None] & (place == near[:, None])[:, None, :]
    terms = hinges[used].relu()
    if mining == "all" and reduction == "sum":
        return terms.sum()
    if mining == "all" and reduction == "mean_active":
        return terms.sum() / (terms > 0).sum()
    return terms.mean()


def lifted_structure_loss(embeddings: Tensor, labels: Tensor, *, margin: float = 1.0) -> Tensor:
    apart = lengths(embeddings)
    same, different = same_and_different(labels)
    push = log_sum(margin - apart, different)
    bounds = torch.logaddexp(push[:, None], push) + apart
    return bounds[same & torch.ones_like(apart).triu(1).bool()].relu().square().mean() / 2


def nca_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
    near = -squares(embeddings)
    same, different = same_and_different(labels)
    return torch.nn.functional.softplus(
        log_sum(near, different) - log_sum(near, same), threshold=1e3
    ).mean()


def nra_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    alpha: float = 4.0,
    eps: float = 1e-4,
    detach_range: bool = False,
) -> Tensor:
    apart = lengths(embeddings)
    same, different = same_and_different(labels)

    def chosen(mask: Tensor, *, farthest: bool) -> Tensor:
        filled = torch.where(mask, apart, -math.inf if farthest else math.inf).detach()
        index = filled.argmax(1) if farthest else filled.argmin(1)
        return apart.gather(1, index[:, None])[:, 0]

    low, high = (chosen(same | different, farthest=farthest) for farthest in (False, True))
    if detach_range:
        low, high = low.detach(), high.detach()

    def weight(distance: Tensor) -> Tensor:
        rank = (distance - low) / (high - low)
        return torch.where(rank < 0.5, (2 * rank) ** alpha / 2, 1 - (2 * (1 - rank)) ** alpha / 2)

    pull = torch.log(1 - weight(chosen(same, farthest=True)) + eps)
    push = torch.log(weight(chosen(different, farthest=False)) + eps)
    return -(pull + push).mean()


def magnet_loss(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    *,
    alpha: float = 1.0,
    eps: float = 1e-8,
    sharpness: float = 1.0,
) -> Tensor:
    """Every cluster has a sample in the batch."""
    member = (torch.arange(len(cluster_labels))[:, None] == clusters).to(embeddings.dtype)
    means = (member[:, :, None] * embeddings).sum(1) / member.sum(1)[:, None]
    apart = squares(embeddings, means)
    own = (apart * member.T).sum(1)
    variance = own.sum() / (sharpness * (len(embeddings) - 1)) + eps
    impostors = cluster_labels[clusters][:, None] != cluster_labels
    push = log_sum(-apart / (2 * variance), impostors)
    return (own / (2 * variance) + alpha + push).relu().mean()


def cluster_nca_loss(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, *, eps: float = 1e-8
) -> Tensor:
    """Every cluster has a sample in the batch."""
    member = (torch.arange(len(cluster_labels))[:, None] == clusters).to(embeddings.dtype)
    apart = squares(embeddings, (member[:, :, None] * embeddings).sum(1) / member.sum(1)[:, None])
    variance = (apart * member.T).sum() / (len(embeddings) - 1) + eps
    same = cluster_labels[clusters][:, None] == cluster_labels
    near = -apart / (2 * variance)
    odds = log_sum(near, ~same) - log_sum(near, same)
    return torch.nn.functional.softplus(odds, threshold=1e3).mean()


def ncm_loss(embeddings: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    near = -squares(embeddings, means)
    own = labels[:, None] == torch.arange(len(means))
    odds = log_sum(near, ~own) - log_sum(near, own)
    return torch.nn.functional.softplus(odds, threshold=1e3).mean()


def hyperspherical_energy(centers: Tensor, *, power: float = 1.0) -> Tensor:
    chords = lengths(directions(centers))[~torch.eye(len(centers), dtype=torch.bool)]
    chords = chords.clamp(min=1e-6)
    return -chords.log().mean() if power == 0 else (chords**-power).mean()


def uniform_spread(centers: Tensor) -> Tensor:
    chords = lengths(directions(centers))[~torch.eye(len(centers), dtype=torch.bool)]
    return (1 / (chords + 1)).mean()


def entropy(embeddings: Tensor, *, bandwidth: float = 1.0) -> Tensor:
    others = ~torch.eye(len(embeddings), dtype=torch.bool)
    kernels = -squares(embeddings) / (2 * bandwidth**2)
    return log_sum(kernels, others).mean() - math.log(len(embeddings) - 1)


TABLES: dict[str, Callable[..., Tensor]] = {
    "contrastive_loss": contrastive_loss,
    "triplet_loss": triplet_loss,
    "lifted_structure_loss": lifted_structure_loss,
    "nca_loss": nca_loss,
    "nra_loss": nra_loss,
    "magnet_loss": magnet_loss,
    "cluster_nca_loss": cluster_nca_loss,
    "ncm_loss": ncm_loss,
    "hyperspherical_energy": hyperspherical_energy,
    "uniform_spread": uniform_spread,
    "entropy": entropy,
}
