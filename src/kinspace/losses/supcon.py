"""SupCon: each positive in a softmax of its own over the rest of the batch.

    L = mean_i -1/|P_i| sum_{p in P_i} log( exp(z_i . z_p / t) / sum_{a != i} exp(z_i . z_a / t) )

z are the embeddings at length 1, t the temperature, P_i the other samples of i's class. A sample
alone in its class, for which Eq. 2 divides by 0, has term 0 and still counts in the mean. Eq. 2 has
the sum over i. With another `distance` -D is in the place of the cosine. Where labels are
similarities, the mean over P_i is weighted by them.

Khosla et al., Supervised contrastive learning, NeurIPS 2020, Eq. 2 (L_out).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.distances import DISTANCES, similarity_table
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, or_one, reduce
from kinspace._core.vectors import fill_diagonal

__all__ = ["SupCon", "supcon_loss"]


@takes_samples
@takes_options(
    temperature=checks.positive,
    distance=checks.one_of(DISTANCES),
    reduction=checks.one_of(REDUCTIONS),
)
def supcon_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    temperature: float = 0.1,
    distance: str = "cosine",
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Supervised contrastive loss (module docstring).

    The class-mates have cosine 1, and 0 with the third sample, which is alone: mean of
    log(1 + e^-1), the same again, and 0.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> supcon_loss(x, torch.tensor([0, 0, 1]), temperature=1.0)
    tensor(0.2088)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    similarity = similarity_table(embeddings, reference, distance=distance)  # (batch, batch)
    logits = similarity / temperature
    if index.excludes_itself:
        # a finite number, so that a sample alone has a softmax
        logits = fill_diagonal(logits, torch.finfo(logits.dtype).min)
    members, positive = index.positives  # (batch, largest class)
    log_probabilities = logits.log_softmax(1).gather(1, members).masked_fill(~positive, 0.0)
    counts = positive if index.grades is None else index.grades
    terms = -(counts * log_probabilities).sum(1) / or_one(counts.sum(1))
    return reduce(terms, reduction)


class SupCon(nn.Module):
    """`supcon_loss` as a module.

    >>> SupCon()
    SupCon(temperature=0.1, distance='cosine', reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        distance: str = "cosine",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, supcon_loss, temperature=temperature, distance=distance, reduction=reduction
        )

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return supcon_loss(embeddings, labels, **kept_options(self), **inputs)
