"""The names and calls of pytorch-metric-learning over the losses, miners and samplers of kinspace.

    from kinspace.compat.pml import losses, miners  # from pytorch_metric_learning import ...

    loss = losses.TripletMarginLoss(margin=0.2)(embeddings, labels, miner(embeddings, labels))

For code that is there already; new code is shorter and faster with `kinspace.losses`. What is built
is a module of kinspace in a thin one that is called as there. Docs: coming from
pytorch-metric-learning (docs/coming-from-pytorch-metric-learning.md), with a table of every class.
An option that is not in the signature has no counterpart: a TypeError, rather than a silent change.
"""

from kinspace.compat.pml import (
    accuracy,
    distances,
    losses,
    miners,
    reducers,
    samplers,
    wrappers,
)
from kinspace.compat.pml.accuracy import AccuracyCalculator

__all__ = [
    "AccuracyCalculator",
    "accuracy",
    "distances",
    "losses",
    "miners",
    "reducers",
    "samplers",
    "wrappers",
]
