"""NT-Xent: each positive in a softmax of its own over the negatives.

    L = mean_i 1/|P_i| sum_{p in P_i} -log( exp(s_ip / t) / (exp(s_ip / t) + sum_n exp(s_in / t)) )

s is the cosine, or with another `distance` -D, t the temperature, P_i the positives of i and n its
negatives. Unlike in SupCon the positives do not stand in each other's denominators, so that the
loss can fall to 0 with any number of them. With two views of each picture and
`labels = torch.arange(N).repeat(2)` this is the loss of SimCLR. A sample without a positive or
without a negative has term 0 and still counts in the mean.

Sohn, NIPS 2016; Chen et al., A simple framework for contrastive learning of visual representations,
ICML 2020, Eq. 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.distances import DISTANCES, similarity_table
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import chosen, related
from kinspace._core.samples import Anchors, Chosen, Labels, takes_samples
from kinspace._core.tensor_ops import LINEAR, REDUCTIONS, log_sum_exp, reduce

__all__ = ["NTXent", "nt_xent_loss"]


@takes_samples
@takes_options(
    temperature=checks.positive,
    distance=checks.one_of(DISTANCES),
    reduction=checks.one_of(REDUCTIONS),
)
def nt_xent_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    temperature: float = 0.07,
    distance: str = "cosine",
    reduction: str = "mean",
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """NT-Xent loss (module docstring).

    The class-mates have cosine 1, and 0 with the third sample, which is alone: mean of
    log(1 + e^-1), the same again, and 0.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> nt_xent_loss(x, torch.tensor([0, 0, 1]), temperature=1.0)
    tensor(0.2088)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    index = chosen(pairs, triplets, index)
    similarity = similarity_table(embeddings, reference, distance=distance)  # (batch, batch)
    logits = similarity / temperature
    members, positive = index.positives  # (batch, largest class)
    push = log_sum_exp(logits, index.different)  # (batch,)
    terms = functional.softplus(push[:, None] - logits.gather(1, members), threshold=LINEAR)
    terms = terms.masked_fill(~positive, 0.0).sum(1)
    return reduce(terms / positive.sum(1).clamp(min=1), reduction)


class NTXent(nn.Module):
    """`nt_xent_loss` as a module.

    >>> NTXent()
    NTXent(temperature=0.07, distance='cosine', reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        distance: str = "cosine",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, nt_xent_loss, temperature=temperature, distance=distance, reduction=reduction
        )

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return nt_xent_loss(embeddings, labels, **kept_options(self), **inputs)
