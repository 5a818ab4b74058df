"""What training minimizes: a loss and any number of weighted regularizers.

    total = loss + sum_k weight_k * regularizer_k

Regularizers of embeddings (density, divergence, adversarial, orthogonal, entropy, global
statistics) see the batch at length 1, as their papers define them, whatever length the loss is
given. Those of class centers (the spreads) see the proxies of the loss, or the class means of the
batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from kinspace import checks
from kinspace.class_sums import class_sums
from kinspace.losses import LOSSES, ClusterNCA, Magnet
from kinspace.numerics import unit
from kinspace.regularizers import (
    REGULARIZERS,
    Adversarial,
    DensityAdaptivity,
    Divergence,
    Entropy,
    GlobalStatistics,
    Orthogonal,
)

__all__ = ["Objective", "Term", "make_loss", "make_regularizer"]

CENTERS = ("proxies", "batch")
_OF_EMBEDDINGS = (
    Adversarial,
    DensityAdaptivity,
    Divergence,
    Entropy,
    GlobalStatistics,
    Orthogonal,
)
_OF_CLUSTERS = (ClusterNCA, Magnet)


@dataclass(frozen=True)
class Term:
    """A regularizer, its weight, and for a spread the centers it looks at."""

    name: str
    module: nn.Module
    weight: float = 1.0
    centers: str = "proxies"

    def __post_init__(self) -> None:
        checks.finite(f"weight of {self.name}", self.weight)
        checks.choice(f"centers of {self.name}", self.centers, CENTERS)


class Objective(nn.Module):
    """A loss with weighted regularizers. Owns their parameters: give them to the optimizer.

    Returns the total and its parts by name, each before its weight and without a graph.

    >>> import torch
    >>> from kinspace.losses import Contrastive
    >>> from kinspace.regularizers import Orthogonal
    >>> objective = Objective(Contrastive(), [Term("orthogonal", Orthogonal(), 0.5)])
    >>> total, parts = objective(torch.eye(3), torch.tensor([0, 0, 1]))
    >>> total, parts
    (tensor(2.), {'loss': tensor(2.), 'orthogonal': tensor(0.)})
    """

    def __init__(self, loss: nn.Module, terms: Sequence[Term] = ()) -> None:
        super().__init__()
        names = [term.name for term in terms]
        if len({"loss", *names}) != len(names) + 1:
            raise ValueError(f"terms: expected different names, none of them 'loss', got {names}")
        self.loss = loss
        self.terms = nn.ModuleDict({term.name: term.module for term in terms})
        self._weights = {term.name: term.weight for term in terms}
        self._centers = {term.name: term.centers for term in terms}
        for term in terms:
            if self._wants_proxies(term.name):
                _proxies(loss, term.name)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        clusters: Tensor | None = None,
        cluster_labels: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """clusters, cluster_labels: for a loss that needs them, as its module takes them."""
        if clusters is not None:
            total = self.loss(embeddings, labels, clusters=clusters, cluster_labels=cluster_labels)
        else:
            total = self.loss(embeddings, labels)
        parts = {"loss": total.detach()}
        for name, module in self.terms.items():
            value = self._value(name, module, embeddings, labels)
            parts[name] = value.detach()
            total = total + self._weights[name] * value
        return total, parts

    def _wants_proxies(self, name: str) -> bool:
        of_embeddings = isinstance(self.terms[name], _OF_EMBEDDINGS)
        return not of_embeddings and self._centers[name] == "proxies"

    def _value(self, name: str, module: nn.Module, embeddings: Tensor, labels: Tensor) -> Tensor:
        value: Tensor
        if isinstance(module, _OF_EMBEDDINGS):
            value = module(unit(embeddings), labels)
        elif self._wants_proxies(name):
            value = module(_proxies(self.loss, name), labels)
        else:
            value = module(_batch_centers(embeddings, labels))
        return value

    @property
    def needs_clusters(self) -> bool:
        """Whether the loss takes the clusters of the batch, as Magnet does."""
        return isinstance(self.loss, _OF_CLUSTERS)

    def sample_losses(self, embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor) -> Tensor:
        """What a loss that needs clusters is for each sample, (batch,), without a graph."""
        assert isinstance(self.loss, _OF_CLUSTERS)
        return self.loss.terms(embeddings, clusters, cluster_labels)

    def extra_repr(self) -> str:
        """The weights."""
        return ", ".join(f"{name}={weight:g}" for name, weight in self._weights.items())


def _proxies(loss: nn.Module, name: str) -> Tensor:
    for attribute in ("proxies", "weight"):
        value = getattr(loss, attribute, None)
        if isinstance(value, Tensor):
            return value
    raise ValueError(
        f"{name}: expected a loss with proxies (proxy_anchor, proxy_nca, softmax, ...), got "
        f"{type(loss).__name__}; take the class means of the batch: centers = 'batch'"
    )


def _batch_centers(embeddings: Tensor, labels: Tensor) -> Tensor:
    """The class means of the batch, one row a class, differentiated."""
    present, classes = labels.unique(return_inverse=True)
    sums, counts = class_sums(embeddings, classes, len(present))
    return sums / counts[:, None]


def make_loss(
    name: str, options: Mapping[str, Any], *, num_classes: int, dim: int | None
) -> nn.Module:
    """A loss of `LOSSES` by name, for so many classes and dimensions where it asks for them.

    >>> make_loss("proxy_anchor", {"alpha": 16.0}, num_classes=3, dim=2).proxies.shape
    torch.Size([3, 2])
    """
    made = checks.named("loss", name, LOSSES)
    return _made(made, options, num_classes=num_classes, dim=dim)


def make_regularizer(
    name: str,
    options: Mapping[str, Any],
    *,
    num_classes: int,
    dim: int | None = None,
    original: Tensor | None = None,
) -> nn.Module:
    """A regularizer of `REGULARIZERS` by name, for so many classes and dimensions as `make_loss`.

    original: the densities before training, for density adaptivity.

    >>> make_regularizer("density", {"eta": 0.5}, num_classes=3).targets.shape
    torch.Size([3])
    """
    made = checks.named("regularizer", name, REGULARIZERS)
    return _made(made, options, num_classes=num_classes, dim=dim, original=original)


def _made(cls: type[nn.Module], options: Mapping[str, Any], **known: Any) -> nn.Module:
    asked = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in known.items() if name in asked}, **options)
