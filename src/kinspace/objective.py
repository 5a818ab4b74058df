"""What training minimizes: a loss and any number of weighted regularizers.

    total = loss + sum_k weight_k * regularizer_k

A regularizer says what it looks at by its attribute `takes`. With "embeddings", which is also meant
where it says nothing, it is given the batch at length 1, whatever length the loss is given. With
"centers" it is given one vector a class: the proxies of the loss, or the class means of the batch.
A loss that takes "clusters" is given those of the batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import class_means
from kinspace._core.vectors import unit
from kinspace.losses import LOSSES
from kinspace.regularizers import REGULARIZERS

__all__ = ["Objective", "ObjectiveValue", "Term", "make_loss", "make_regularizer"]

CENTERS = ("proxies", "batch")
TAKES = ("embeddings", "centers")


@dataclass(frozen=True)
class Term:
    """A regularizer, its weight, and for one that takes centers which ones it is given."""

    name: str
    module: nn.Module
    weight: float = 1.0
    centers: str = "proxies"

    def __post_init__(self) -> None:
        checks.number(f"weight of {self.name}", self.weight)
        checks.choice(f"centers of {self.name}", self.centers, CENTERS)
        checks.choice(f"takes of {self.name}", _takes(self.module), TAKES)


class ObjectiveValue(NamedTuple):
    """The total with its graph; without one its parts by name, each before its weight.

    sample_losses: what the loss is for each sample, (batch,), where it does not take their mean by
    itself (reduction="none"); else None.
    """

    total: Tensor
    parts: dict[str, Tensor]
    sample_losses: Tensor | None


class Objective(nn.Module):
    """A loss with weighted regularizers. Owns their parameters: give them to the optimizer.

    >>> import torch
    >>> from kinspace.losses import Contrastive
    >>> from kinspace.regularizers import Orthogonal
    >>> objective = Objective(Contrastive(), [Term("orthogonal", Orthogonal(), 0.5)])
    >>> total, parts, _ = objective(torch.eye(3), torch.tensor([0, 0, 1]))
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
            if self._takes_proxies(term.name):
                _proxies(loss, term.name)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        clusters: Tensor | None = None,
        cluster_labels: Tensor | None = None,
    ) -> ObjectiveValue:
        """clusters, cluster_labels: for a loss that takes them, as its module does."""
        if clusters is not None:
            value = self.loss(embeddings, labels, clusters=clusters, cluster_labels=cluster_labels)
        else:
            value = self.loss(embeddings, labels)
        total = value.mean() if value.ndim else value
        parts = {"loss": total.detach()}
        for name, module in self.terms.items():
            term = module(*self._arguments(name, module, embeddings, labels))
            parts[name] = term.detach()
            total = total + self._weights[name] * term
        return ObjectiveValue(total, parts, value.detach() if value.ndim else None)

    def _takes_proxies(self, name: str) -> bool:
        return _takes(self.terms[name]) == "centers" and self._centers[name] == "proxies"

    def _arguments(
        self, name: str, module: nn.Module, embeddings: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What a regularizer is given: vectors, and the classes of the batch among them."""
        if _takes(module) == "embeddings":
            return unit(embeddings), labels
        if self._takes_proxies(name):
            return _proxies(self.loss, name), labels
        means = _class_means(embeddings, labels)
        return means, torch.arange(len(means), device=means.device)

    @property
    def takes_clusters(self) -> bool:
        """Whether the loss takes the clusters of the batch, as Magnet does."""
        return _takes(self.loss) == "clusters"

    def extra_repr(self) -> str:
        """The weights."""
        return ", ".join(f"{name}={weight:g}" for name, weight in self._weights.items())


def _takes(module: nn.Module) -> str:
    return str(getattr(module, "takes", "embeddings"))


def _proxies(loss: nn.Module, name: str) -> Tensor:
    proxies = getattr(loss, "proxies", None)
    if isinstance(proxies, Tensor):
        return proxies
    raise ValueError(
        f"{name}: expected a loss with proxies (proxy_anchor, proxy_nca, softmax, ...), got "
        f"{type(loss).__name__}; take the class means of the batch: centers = 'batch'"
    )


def _class_means(embeddings: Tensor, labels: Tensor) -> Tensor:
    """The class means of the batch, one row a class, differentiated."""
    present, places = labels.unique(return_inverse=True)
    return class_means(embeddings, places, len(present))[0]


def make_loss(
    name: str, options: Mapping[str, Any], *, num_classes: int, dim: int | None
) -> nn.Module:
    """A loss of `LOSSES` by name, for this number of classes and dimensions where it takes them.

    >>> make_loss("proxy_anchor", {"alpha": 16.0}, num_classes=3, dim=2).proxies.shape
    torch.Size([3, 2])
    """
    cls = checks.lookup("loss", name, LOSSES)
    return _build(cls, options, num_classes=num_classes, dim=dim)


def make_regularizer(
    name: str,
    options: Mapping[str, Any],
    *,
    num_classes: int,
    dim: int | None = None,
    original: Tensor | None = None,
) -> nn.Module:
    """A regularizer of `REGULARIZERS` by name, with the arguments of `make_loss`.

    original: the densities before training, for density adaptivity.

    >>> make_regularizer("density", {"eta": 0.5}, num_classes=3).targets.shape
    torch.Size([3])
    """
    cls = checks.lookup("regularizer", name, REGULARIZERS)
    return _build(cls, options, num_classes=num_classes, dim=dim, original=original)


def _build(cls: type[nn.Module], options: Mapping[str, Any], **known: Any) -> nn.Module:
    accepted = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in known.items() if name in accepted}, **options)
