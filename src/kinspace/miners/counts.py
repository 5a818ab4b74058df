"""How much was mined, for a log: pairs or triplets, and the anchors that have any."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["mined_counts"]


@torch.no_grad()
def mined_counts(tuples: Tensor, labels: Tensor | None = None) -> dict[str, int]:
    """Counts of triplets (T, 3) or pairs (P, 2), as a miner returns them; reads from the device.

    labels: of the batch, which say of pairs how many are positive; for pairs into a reference leave
    them out.

    >>> labels = torch.tensor([0, 0, 1])
    >>> mined_counts(torch.tensor([[0, 1, 2], [1, 0, 2]]))
    {'triplets': 2, 'anchors': 2}
    >>> mined_counts(torch.tensor([[0, 1], [0, 2], [1, 2]]), labels)
    {'pairs': 3, 'anchors': 2, 'positive_pairs': 1, 'negative_pairs': 2}
    """
    if not isinstance(tuples, Tensor) or tuples.ndim != 2 or tuples.shape[1] not in (2, 3):
        came = tuple(tuples.shape) if isinstance(tuples, Tensor) else type(tuples).__name__
        raise ValueError(f"tuples: expected shape (T, 3) or (P, 2), as of a miner, got {came}")
    kind = "triplets" if tuples.shape[1] == 3 else "pairs"
    counts = {kind: len(tuples), "anchors": len(tuples[:, 0].unique())}
    if kind == "pairs" and labels is not None:
        positive = int((labels[tuples[:, 0]] == labels[tuples[:, 1]]).sum())
        counts |= {"positive_pairs": positive, "negative_pairs": len(tuples) - positive}
    return counts
