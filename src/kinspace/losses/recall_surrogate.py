"""Recall@k as a smooth loss: the rank of each positive, and whether it is at most k, as sigmoids.

    R_i(k) = 1/min(k, |P_i|) sum_{p in P_i} g_1(k - 1 - sum_{j != p} g_2(s_ij - s_ip))
    L      = mean_i mean_k (1 - R_i(k)),   g_t(d) = 1 / (1 + exp(-d / t))

s is the cosine; g_2 has the temperature `temperature`, g_1 that of the ranks, `rank_temperature`. A
sample without a positive has term 0 and still counts in the mean.

Patel et al., Recall@k surrogate loss with large batches and similarity mixup, CVPR 2022, Eq. 7.
Deviation: divided by min(k, |P_i|), the most that can be within k, where the paper has |P_i|.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import cosines
from kinspace.losses.smooth_ap import others, soft_ranks

__all__ = ["RecallSurrogate", "recall_surrogate_loss"]


def _checked_ks(name: str, ks: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(ks, (list, tuple)) or not ks:
        raise ValueError(f"{name}: expected a list of whole numbers, got {ks!r}")
    return tuple(checks.integer(name, k, at_least=1) for k in ks)


@takes_samples
@takes_options(
    ks=_checked_ks,
    temperature=checks.positive,
    rank_temperature=checks.positive,
    reduction=checks.one_of(REDUCTIONS),
)
def recall_surrogate_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    rank_temperature: float = 1.0,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Recall@k loss (module docstring); memory of a number for each positive pair and sample.

    With sharp steps on similarities: the positive of the first sample is second, so its rank less 1
    is 1, and for k = 1 the term is 1 - g(-1); that of the second is level with the negative.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> recall_surrogate_loss(x, torch.tensor([0, 0, 1]), ks=(1,), reduction="none")
    tensor([0.7311, 0.7311, 0.0000])
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    similarity = cosines(embeddings, reference)
    members, positive = index.positives  # (batch, largest class)
    near = similarity.gather(1, members)
    ranks = soft_ranks(near, similarity, others(index), temperature)  # (batch, P)
    count = positive.sum(1)
    recalls = []
    for k in ks:
        within = ((k - ranks) / rank_temperature).sigmoid().masked_fill(~positive, 0.0)
        recalls.append(within.sum(1) / count.clamp(min=1, max=k))
    missed = 1 - torch.stack(recalls).mean(0)  # (batch,)
    return reduce(missed.masked_fill(count == 0, 0.0), reduction)


class RecallSurrogate(nn.Module):
    """`recall_surrogate_loss` as a module.

    >>> RecallSurrogate()
    RecallSurrogate(ks=(1, 2, 4, 8, 16), temperature=0.01, rank_temperature=1.0, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        ks: tuple[int, ...] = (1, 2, 4, 8, 16),
        temperature: float = 0.01,
        rank_temperature: float = 1.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, recall_surrogate_loss, ks=ks, temperature=temperature,
            rank_temperature=rank_temperature, reduction=reduction,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return recall_surrogate_loss(embeddings, labels, **kept_options(self), **inputs)
