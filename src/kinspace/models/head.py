"""From a feature map to an embedding: pooling, dropout, linear, length 1 at test.

Pooling, over the positions of a map or the patches of a transformer:

    avg     their mean
    max     the largest of each channel
    both    avg + max, the sum: as many features as with one of them, where a row of both would
            make the embedding layer twice as large
    token   a transformer's first token (the class token), not a pooling over patches

In training the embeddings have length 1 if `normalize` is true, or the length it gives; in eval
mode always 1. With `groups` (how many, or their sizes: `kinspace._core.vectors`) each group of
dimensions is normalized by itself, all to one length, so that the whole has it as before. Losses
on inner products (N-pair, ALMN) depend strongly on the length; `calibrate` sets the length that
unnormalized embeddings start with. The layer starts from a normal distribution of variance 1 / dim,
which keeps the length of its input on average, and bias 0, or from a projection of the features
(`kinspace.models.projections`).

A backbone with learners (`kinspace.models.ensembles`) gives a map for each; their pooled features
stand in a row, and the layer makes each group of dimensions of one learner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import group_sizes, unit_groups
from kinspace.models.ensembles import LearnerLayers, learner_sizes
from kinspace.models.projections import lda_projection, whitening_projection

__all__ = ["FILLERS", "POOLINGS", "Head", "pool"]

POOLINGS = ("avg", "max", "both", "token")
FILLERS = ("gaussian", "xavier")


def pool(features: Tensor, pooling: str = "avg", *, prefix_tokens: int = 0) -> Tensor:
    """A map (batch, channels, height, width) or tokens (batch, tokens, channels), to vectors.

    prefix_tokens: the number of tokens before the patches; only the pooling "token" uses them.
    Vectors (batch, channels) pass as they are.

    >>> pool(torch.tensor([[[[1.0, 3.0]]]]), "both")
    tensor([[5.]])
    """
    checks.choice("pooling", pooling, POOLINGS)
    features = upcast_half(features)  # a mean over positions has more digits than bfloat16
    if features.ndim == 2:
        return features
    if features.ndim not in (3, 4):
        raise ValueError(
            "features: expected a map (batch, channels, height, width), tokens (batch, tokens, "
            f"channels) or vectors (batch, channels), got shape {tuple(features.shape)}"
        )
    if pooling == "token":
        if features.ndim == 4:
            raise ValueError(
                "pooling: 'token' expects a transformer's tokens, got a map; use 'avg'"
            )
        return features[:, 0]
    positions = (
        features.flatten(2) if features.ndim == 4 else features[:, prefix_tokens:].transpose(1, 2)
    )  # (batch, channels, positions)
    if pooling == "avg":
        return positions.mean(2)
    largest = positions.amax(2)
    return largest if pooling == "max" else positions.mean(2) + largest


class Head(nn.Module):
    """Pooling and the embedding layer (module docstring). dim None: the pooled features themselves.

    in_features: of the one map, or of each of several. With `groups` each of these is a learner's,
    shared: with one layer for all; without, one layer takes them all.

    >>> head = Head(8, 4, seed=1)
    >>> head(torch.rand(2, 8, 3, 3)).shape
    torch.Size([2, 4])
    >>> head.eval()(torch.rand(1, 8, 3, 3)).norm().round(decimals=5).item()
    1.0
    """

    def __init__(  # noqa: PLR0913 (an option each for a key of the recipe)
        self,
        in_features: int | Sequence[int],
        dim: int | None = 512,
        *,
        pooling: str = "avg",
        dropout: float = 0.0,
        normalize: bool | float = False,
        groups: int | Sequence[int] | None = None,
        seed: int = 0,
        prefix_tokens: int = 0,
        shared: bool = False,
    ) -> None:
        super().__init__()
        inputs = list(in_features) if isinstance(in_features, Sequence) else [in_features]
        for features in inputs:
            checks.integer("in_features", features, at_least=1)
        if dim is not None:
            checks.integer("dim", dim, at_least=1)
        if checks.number("dropout", dropout, at_least=0) >= 1:
            raise ValueError(f"dropout: expected a share below 1, got {dropout!r}")
        self.pooling = checks.choice("pooling", pooling, POOLINGS)
        self.normalize = bool(normalize)
        self.length = checks.positive("normalize", float(normalize) or 1.0)  # true is 1
        self.seed = checks.integer("seed", seed, at_least=0)
        self.prefix_tokens = checks.integer("prefix_tokens", prefix_tokens, at_least=0)
        self.dim = sum(inputs) if dim is None else dim
        self.groups = None if groups is None else group_sizes(groups, self.dim)
        sizes = [self.dim]
        if isinstance(in_features, Sequence) and (shared or groups is not None):
            sizes = learner_sizes(len(inputs), groups, dim, shared=shared)
        else:
            inputs = [sum(inputs)]
        self.dropout = nn.Dropout(dropout)
        self.linear = None if dim is None else _embedding_layer(inputs, sizes, seed, shared=shared)

    def pool(self, features: Tensor | Sequence[Tensor]) -> Tensor:
        """A map or tokens pooled to vectors (batch, in_features); of several all in a row."""
        if isinstance(features, Tensor):
            return pool(features, self.pooling, prefix_tokens=self.prefix_tokens)
        return torch.cat([self.pool(each) for each in features], 1)

    def embed(self, pooled: Tensor, *, normalize: bool | None = None) -> Tensor:
        """Pooled features (batch, in_features) -> embeddings (batch, dim), float32 or better.

        normalize None: in eval mode to length 1, in training by the head's own `normalize`;
        otherwise by this value, as in training.
        """
        embeddings = self.dropout(pooled)
        if self.linear is not None:
            embeddings = self.linear(embeddings)
        embeddings = upcast_half(embeddings)
        if normalize is None and not self.training:
            return self._unit(embeddings)
        wanted = self.normalize if normalize is None else normalize
        return self._unit(embeddings) * self.length if wanted else embeddings

    def _unit(self, embeddings: Tensor) -> Tensor:
        return unit_groups(embeddings, self.groups or [self.dim])

    def forward(
        self, features: Tensor | Sequence[Tensor], *, normalize: bool | None = None
    ) -> Tensor:
        """`pool`, then `embed`."""
        return self.embed(self.pool(features), normalize=normalize)

    @torch.no_grad()
    def calibrate(self, pooled: Tensor, *, norm: float = 1.0) -> float:
        """Rescale the embedding layer so that its outputs have the mean length `norm`.

        pooled: features (samples, in_features) as training will see them. Returns the mean length
        before. Dropout is left out.

        >>> head, pooled = Head(8, 4), torch.eye(8) * 50
        >>> before = head.calibrate(pooled)
        >>> round(head.calibrate(pooled), 4)
        1.0
        """
        checks.vectors("pooled", pooled)
        checks.positive("norm", norm)
        if self.linear is None:
            raise ValueError("calibrate: expected a head with an embedding layer, got dim=None")
        parameters = list(self.linear.parameters())
        outputs = self.linear(pooled.to(parameters[0].dtype))
        before = float(outputs.norm(dim=1).mean())
        if not 0 < before < float("inf"):
            raise ValueError(
                f"calibrate: expected outputs of a finite length above 0, got {before:g} on average"
            )
        for parameter in parameters:
            parameter.mul_(norm / before)
        return before

    @torch.no_grad()
    def init_from_filler(self, name: str) -> None:
        """Start the embedding layers as Caffe's fillers do, with bias 0.

        "gaussian": a standard deviation of 0.01; "xavier": uniform, with a variance of one over the
        number of inputs.

        >>> head = Head(1024, 4)
        >>> head.init_from_filler("gaussian")
        >>> round(float(head.linear.weight.std()), 3)
        0.01
        """
        checks.choice("name", name, FILLERS)
        generator = torch.Generator().manual_seed(self.seed)
        for layer in self.modules():
            if not isinstance(layer, nn.Linear):
                continue
            wide = (3 / layer.in_features) ** 0.5
            if name == "gaussian":
                nn.init.normal_(layer.weight, std=0.01, generator=generator)
            else:
                nn.init.uniform_(layer.weight, -wide, wide, generator=generator)
            nn.init.zeros_(layer.bias)

    def init_from_lda(self, pooled: Tensor, labels: Tensor, *, shrinkage: float = 0.3) -> None:
        """Start the embedding layer from an LDA of pooled features and their classes."""
        self._set(*lda_projection(pooled, labels, self.dim, shrinkage=shrinkage))

    def init_from_whitening(
        self, pooled: Tensor, labels: Tensor, *, shrinkage: float = 0.6
    ) -> None:
        """Start the embedding layer from a whitening of pooled features within their classes."""
        self._set(*whitening_projection(pooled, labels, self.dim, shrinkage=shrinkage))

    @torch.no_grad()
    def _set(self, weight: Tensor, bias: Tensor) -> None:
        if not isinstance(self.linear, nn.Linear):
            raise ValueError("linear: expected a head with one embedding layer")
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)

    def config(self) -> dict[str, Any]:
        """The options, plain values: what `Head(in_features, **config)` takes.

        Not what the backbone decides: in_features, prefix_tokens and shared.
        """
        return {
            "dim": None if self.linear is None else self.dim,
            "pooling": self.pooling,
            "dropout": self.dropout.p,
            "normalize": self.normalize if self.length == 1 else self.length,
            **({} if self.groups is None else {"groups": self.groups}),
            "seed": self.seed,
        }


def _embedding_layer(
    inputs: Sequence[int], sizes: Sequence[int], seed: int, *, shared: bool
) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    if len(inputs) == 1:
        return _linear(inputs[0], sizes[0], generator)
    count = 1 if shared else len(inputs)
    layers = [_linear(*pair, generator) for pair in zip(inputs[:count], sizes[:count], strict=True)]
    return LearnerLayers(layers, inputs)


def _linear(in_features: int, dim: int, generator: torch.Generator) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, in_features, dim)
    nn.init.normal_(layer.weight, std=dim**-0.5, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
