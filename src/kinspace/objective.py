"""What training minimizes: a loss and any number of weighted regularizers.

    total = loss + sum_k weight_k * regularizer_k

A term with a `share` has its weight by the gradients: the weight at which the gradient of the term
is that share of the gradient of the loss, by the means of both norms over the last steps. One share
then means the same beside a loss that is a sum and beside one that is a mean.

A regularizer says what it looks at by its attribute `takes`. With "embeddings", which is also meant
where it says nothing, it is given the batch at length 1, whatever length the loss is given. With
"centers" it is given one vector a class: the proxies of the loss, or the class means of the batch.
A loss that takes "clusters" is given those of the batch, and so is a regularizer whose
`takes_clusters` is true.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import class_means
from kinspace._core.vectors import unit
from kinspace.losses import LOSSES, VirtualPoints
from kinspace.regularizers import REGULARIZERS

__all__ = ["Objective", "ObjectiveValue", "Term", "make_loss", "make_regularizer"]

CENTERS = ("proxies", "batch")
TAKES = ("embeddings", "centers")


@dataclass(frozen=True)
class Term:
    """A regularizer, its weight, and for one that takes centers which ones it is given.

    share: of the gradient of the loss, which sets the weight in place of `weight`.
    """

    name: str
    module: nn.Module
    weight: float = 1.0
    centers: str = "proxies"
    share: float | None = None

    def __post_init__(self) -> None:
        checks.number(f"weight of {self.name}", self.weight)
        if self.share is not None:
            checks.positive(f"share of {self.name}", self.share)
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
        self.shares = nn.ModuleDict(
            {term.name: GradientShare(term.share) for term in terms if term.share is not None}
        )
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
        samples: Mapping[str, Any] | None = None,
    ) -> ObjectiveValue:
        """clusters, cluster_labels: for a loss that takes them, as its module does.

        samples: weights, ignore_label and singletons, for a loss that takes them. Regularizers do
        not see the samples that are ignored.
        """
        given = dict(samples or {})
        if clusters is not None:
            given |= {"clusters": clusters, "cluster_labels": cluster_labels}
        value = self.loss(embeddings, labels, **given)
        if given.get("ignore_label") is not None and self.terms:
            kept = labels != given["ignore_label"]
            embeddings, labels = embeddings[kept], labels[kept]
        total = value.mean() if value.ndim else value
        parts = {"loss": total.detach()}
        loss = total
        for name, module in self.terms.items():
            arguments = self._arguments(name, module, embeddings, labels)
            if (
                clusters is not None
                and cluster_labels is not None
                and getattr(module, "takes_clusters", False)
            ):
                arguments = (*arguments, clusters, cluster_labels)
            term = module(*arguments)
            parts[name] = term.detach()
            weight: float | Tensor = self._weights[name]
            if name in self.shares:
                by = _proxies(self.loss, name) if self._takes_proxies(name) else embeddings
                weight = self.shares[name](loss, term, by)
                parts[f"{name}_weight"] = weight
            total = total + weight * term
        return ObjectiveValue(total, parts, value.detach() if value.ndim else None)

    def _takes_proxies(self, name: str) -> bool:
        return _takes(self.terms[name]) == "centers" and self._centers[name] == "proxies"

    def _arguments(
        self, name: str, module: nn.Module, embeddings: Tensor, labels: Tensor
    ) -> tuple[Tensor, ...]:
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
        return ", ".join(
            f"{name}={weight:g}"
            for name, weight in self._weights.items()
            if name not in self.shares
        )


class GradientShare(nn.Module):
    """The weight at which a term's gradient is a share of the loss's.

        weight = share * mean ||d loss / d x|| / mean ||d term / d x||

    The means are over the steps: a plain average at first, an exponential one later. x is what the
    term looks at, the embeddings or the proxies. Without a gradient, as in an evaluation, nothing
    moves. A term without any gradient so far has the weight 0.

    >>> x = torch.tensor([[3.0, 4.0]], requires_grad=True)
    >>> GradientShare(0.5)((10 * x).sum(), x.sum(), x)
    tensor(5.)
    """

    norms: Tensor
    steps: Tensor

    def __init__(self, share: float, *, momentum: float = 0.99) -> None:
        super().__init__()
        self.share = checks.positive("share", share)
        self.momentum = checks.number("momentum", momentum, at_least=0)
        self.register_buffer("norms", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, loss: Tensor, term: Tensor, by: Tensor) -> Tensor:
        if self.training and by.requires_grad:
            self._follow(torch.stack([_gradient_norm(each, by) for each in (loss, term)]))
        of_loss, of_term = self.norms
        weight: Tensor = self.share * of_loss / of_term.masked_fill(of_term == 0, math.inf)
        return weight.to(term.dtype)

    @torch.no_grad()
    def _follow(self, norms: Tensor) -> None:
        self.steps += 1
        steps = self.steps.clamp(max=1 / (1 - self.momentum))
        self.norms += (norms.to(self.norms.dtype) - self.norms) / steps

    def extra_repr(self) -> str:
        return f"share={self.share:g}, momentum={self.momentum:g}"


def _gradient_norm(value: Tensor, by: Tensor) -> Tensor:
    if not value.requires_grad:
        return by.new_zeros(())
    [gradient] = torch.autograd.grad(value, by, retain_graph=True, allow_unused=True)
    norm: Tensor = by.new_zeros(()) if gradient is None else gradient.detach().norm()
    return norm


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
    name: str,
    options: Mapping[str, Any],
    *,
    num_classes: int,
    dim: int | None,
    virtual_points: float = 0.0,
) -> nn.Module:
    """A loss of `LOSSES` by name, for this number of classes and dimensions where it takes them.

    virtual_points: the beta of ALMN's virtual points that join its batches
    (`kinspace.losses.VirtualPoints`); 0: none.

    >>> make_loss("proxy_anchor", {"alpha": 16.0}, num_classes=3, dim=2).proxies.shape
    torch.Size([3, 2])
    """
    cls = checks.lookup("loss", name, LOSSES)
    loss = _build(cls, options, num_classes=num_classes, dim=dim)
    if not virtual_points:
        return loss
    if dim is None:
        raise ValueError("virtual_points: expected the dimension of the embeddings, got None")
    return VirtualPoints(loss, num_classes, dim, beta=virtual_points)


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
