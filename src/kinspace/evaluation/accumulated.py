"""Retrieval measures of a loop's own batches, by the calls of torchmetrics: update, compute, reset.

Retrieval needs all vectors at once, so `update` keeps them, on the CPU, and `compute` ranks. On
several processes `compute` gathers the vectors of all, ranks a share of the queries on each, and
returns the same numbers everywhere. A `DistributedSampler` that repeats samples to even the shares
(its default) repeats them here too: give `update` the ids of the samples, and each counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.distributed import gather, world_size
from kinspace.evaluation.retrieval import KS, MORE, Retrieval
from kinspace.evaluation.similarity import METRICS

__all__ = ["RetrievalMetrics"]

ROLES = ("both", "query", "gallery")


class RetrievalMetrics:
    """The measures of `retrieval_metrics`, from batches.

    ks, metric, more: as there. device: where to rank, by default where the vectors were.

    >>> measure = RetrievalMetrics(ks=(1,), more=("mrr",))
    >>> for x, y in [([[1.0, 0.0]], [0]), ([[0.9, 0.1], [0.0, 1.0]], [0, 1])]:
    ...     measure.update(torch.tensor(x), torch.tensor(y))
    >>> found = measure.compute()
    >>> round(found["recall@1"], 3), found["mrr"]
    (0.667, 1.0)
    >>> measure.reset()
    """

    def __init__(
        self,
        *,
        ks: Sequence[int] = KS,
        metric: str = "cosine",
        more: Sequence[str] = (),
        device: str | torch.device | None = None,
    ) -> None:
        self.ks = [checks.integer("ks", int(k), at_least=1) for k in ks]
        self.metric = checks.choice("metric", metric, METRICS)
        self.more = [checks.choice("more", name, MORE) for name in more]
        self.device = device
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._batches: list[tuple[Tensor, ...]] = []
        self._place: torch.device = torch.device("cpu")

    def update(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        ids: Tensor | None = None,
        role: str = "both",
    ) -> None:
        """Add a batch: embeddings (batch, dim), labels (batch,).

        ids: whole numbers that name the samples; a sample that comes twice counts once. role: for a
        set with queries and a gallery "query" or "gallery"; "both" are queries in the gallery of
        all, each without itself.
        """
        labels = checks.labels(embeddings, labels)
        code = ROLES.index(checks.choice("role", role, ROLES))
        if ids is None:
            ids = torch.full_like(labels, -1)
        else:
            ids = checks.labels(embeddings, ids, name="ids")
        self._place = embeddings.device
        roles = torch.full_like(labels, code)
        rows = (embeddings.detach(), labels.detach(), ids.detach(), roles)
        self._batches.append(tuple(each.cpu() for each in rows))

    def compute(self) -> dict[str, float]:
        """The measures of all samples since `reset`, on all processes."""
        vectors, labels, ids, roles = self._everything()
        kept = _once(ids.numpy(), roles.numpy())
        vectors, labels, roles = vectors[kept], labels[kept], roles[kept]
        place = self.device or self._place
        queries, gallery = roles != 2, roles != 1
        if bool(queries.all() & gallery.all()):
            ranked = Retrieval(vectors, labels, metric=self.metric, device=place)
        else:
            if not (bool(queries.any()) and bool(gallery.any())):
                raise ValueError("role: expected queries and a gallery, got one of them alone")
            row = gallery.cumsum(0) - 1  # of each sample in the gallery
            ranked = Retrieval(
                vectors[queries],
                labels[queries],
                metric=self.metric,
                gallery=vectors[gallery],
                gallery_labels=labels[gallery],
                rows_in_gallery=torch.where(gallery, row, -1)[queries],
                device=place,
            )
        return ranked.shared_scores(self.ks, more=self.more).summary()

    def _everything(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All rows of this process, on several those of all."""
        if not self._batches:
            raise ValueError("compute: expected one batch or more by `update`, got none")
        rows = [torch.cat(each) for each in zip(*self._batches, strict=True)]
        if world_size() > 1:
            rows = list(gather(*(each.to(self._place) for each in rows)))
        vectors, labels, ids, roles = (each.cpu() for each in rows)
        return vectors, labels, ids, roles


def _once(ids: NDArray[Any], roles: NDArray[Any]) -> Tensor:
    """The rows to keep: of those with one id and role the first; all without an id.

    >>> _once(np.array([7, 8, 7, -1, -1]), np.zeros(5))
    tensor([0, 1, 3, 4])
    """
    named = np.flatnonzero(ids >= 0)
    pairs = np.stack([ids[named], roles[named]], 1)
    first = np.unique(pairs, axis=0, return_index=True)[1]
    kept = np.concatenate([named[first], np.flatnonzero(ids < 0)]).astype(np.int64)
    return torch.from_numpy(np.sort(kept))
