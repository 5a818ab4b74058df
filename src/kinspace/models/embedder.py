"""The model: pictures -> backbone -> feature map -> head -> embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import interpolate

from kinspace._core import checks
from kinspace.models.backbones import Backbone, make_backbone
from kinspace.models.head import Head
from kinspace.models.parameter_groups import batch_norms, freeze_batch_norm
from kinspace.models.preprocessing import Preprocessing

__all__ = ["Embedder", "checked_scales", "make_embedder"]

KEYS = {
    "backbone": ("name", "in_channels", "attention", "depths", "lora", "options", "seed"),
    "head": ("dim", "pooling", "dropout", "normalize", "groups", "seed"),
    "test": ("mirror", "scales"),
}


class Embedder(nn.Module):
    """A backbone and a head; any module that gives a map, tokens or vectors may be the backbone.

    In eval mode the embedding is that of the mean over several views of a picture: mirror, its
    mirror image too; scales, enlarged (or reduced) by each of these factors.

    >>> import torch
    >>> model = Embedder(nn.Conv2d(3, 8, 3), Head(8, 4)).eval()
    >>> model(torch.rand(2, 3, 5, 5)).shape, model.features(torch.rand(2, 3, 5, 5)).shape
    (torch.Size([2, 4]), torch.Size([2, 8]))
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        *,
        mirror: bool = False,
        scales: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        self.mirror = mirror
        self.scales = checked_scales(scales)
        self.backbone = backbone
        self.head = head
        self._batch_norm_frozen = False
        self._held: frozenset[str] = frozenset()  # frozen by freeze_backbone, to be thawed by it

    @property
    def dim(self) -> int:
        """The dimension of the embeddings."""
        return self.head.dim

    @property
    def preprocessing(self) -> Preprocessing | None:
        """The input format of the backbone; None if it is unknown."""
        return getattr(self.backbone, "preprocessing", None)

    def features(self, x: Tensor) -> Tensor:
        """Pooled features before the embedding layer: (batch, features).

        Of a backbone by `make_backbone`, which takes pictures, features pass as they are.

        With learners (`kinspace.models.ensembles`) those of all of them in a row. In eval mode
        the mean over the views: of embeddings too, since the layer is linear.
        """
        if x.ndim == 2 and isinstance(self.backbone, Backbone):
            return x
        if self.training:
            return self.head.pool(self.backbone(x))
        views = [_scaled(x, scale) for scale in self.scales]
        if self.mirror:
            views += [view.flip(-1) for view in views]
        pooled = [self.head.pool(self.backbone(view)) for view in views]
        return sum(pooled[1:], pooled[0]) / len(pooled) if len(pooled) > 1 else pooled[0]

    def forward(self, x: Tensor, *, normalize: bool | None = None) -> Tensor:
        """Embeddings (batch, dim). normalize None: length 1 in eval mode, in training if chosen."""
        return self.head.embed(self.features(x), normalize=normalize)

    def freeze_batch_norm(self, *, affine: bool = False) -> None:
        """Keep every batch norm in eval mode from now on, also after `train()`.

        affine: its scale and shift stay trainable.

        >>> model = make_embedder({"backbone": {"name": "small"}, "head": {"dim": 8}})
        >>> model.freeze_batch_norm()
        >>> any(layer.training for layer in batch_norms(model.train()).values())
        False
        """
        self._batch_norm_frozen = True
        freeze_batch_norm(self, affine=affine)
        if not affine:
            layers = tuple(f"{name}." for name in batch_norms(self))
            self._held = frozenset(key for key in self._held if not key.startswith(layers))

    def train(self, mode: bool = True) -> Embedder:
        """Training or eval mode; a frozen batch norm stays in eval mode."""
        super().train(mode)
        if self._batch_norm_frozen:
            freeze_batch_norm(self, affine=True)  # the mode only
        return self

    def freeze_backbone(self, frozen: bool = True) -> None:
        """Freeze the backbone's parameters, or thaw those that were frozen here: for warm-up.

        What was frozen before, such as batch norm, is so after.
        """
        parameters = dict(self.backbone.named_parameters(prefix="backbone"))
        if frozen:
            self._held |= {key for key, value in parameters.items() if value.requires_grad}
        for key in self._held:
            parameters[key].requires_grad_(not frozen)
        if not frozen:
            self._held = frozenset()

    def config(self) -> dict[str, Any]:
        """Plain values, for JSON, from which `make_embedder` builds the same module.

        >>> model = make_embedder({"backbone": {"name": "mnist_convnet"}, "head": {"dim": 2}})
        >>> sorted(model.config()["head"])
        ['dim', 'dropout', 'normalize', 'pooling', 'seed']
        """
        if not isinstance(self.backbone, Backbone):
            raise ValueError(
                "config: expected a backbone by make_backbone, "
                f"got {type(self.backbone).__name__}, which only your own code can build again"
            )
        test: dict[str, Any] = {"mirror": True} if self.mirror else {}
        if self.scales != (1.0,):
            test["scales"] = list(self.scales)
        made = {"backbone": self.backbone.config(), "head": self.head.config()}
        return made | {"test": test} if test else made


def checked_scales(scales: Sequence[float]) -> tuple[float, ...]:
    """The factors by which pictures are enlarged at test.

    >>> checked_scales([0.8, 1])
    (0.8, 1.0)
    """
    if not scales:
        raise ValueError("scales: expected one or more factors, got none")
    for scale in scales:
        if not 0.25 <= checks.number("scales", scale) <= 4:
            raise ValueError(f"scales: expected factors from 0.25 to 4, got {scale:g}")
    return tuple(map(float, scales))


def _scaled(x: Tensor, scale: float) -> Tensor:
    if scale == 1:
        return x
    sides = [max(1, round(side * scale)) for side in x.shape[-2:]]
    return interpolate(x, sides, mode="bilinear", antialias=scale < 1)


def make_embedder(
    config: Mapping[str, Mapping[str, Any]],
    *,
    pretrained: bool = False,
    weights: str | PathLike[str] | None = None,
) -> Embedder:
    """An Embedder from {"backbone": options of make_backbone, "head": options of Head}.

    A third part, "test", may have {"mirror": True, "scales": [0.8, 1.0, 1.25]}.

    Without a pooling the head has that of the backbone: the class token, if its own classifier
    reads one, else the mean; with "auto" mean + maximum in place of the mean. pretrained and
    weights are the backbone's, as in `make_backbone`. To restore a saved model:
    `load_weights(make_embedder(config), file)`.

    >>> model = make_embedder({"backbone": {"name": "small"}, "head": {"dim": 64}})
    >>> model.dim, sum(value.numel() for value in model.parameters())
    (64, 315792)
    """
    for part, given in config.items():
        known = checks.lookup("part of a model", part, KEYS)
        for key in given:
            checks.lookup(f"option of the {part}", key, dict.fromkeys(known))
    of_backbone, of_head = config.get("backbone", {}), config.get("head", {})
    if "name" not in of_backbone:
        raise ValueError("backbone: expected a name, there is none")
    backbone = make_backbone(**of_backbone, pretrained=pretrained, weights=weights)
    pooling = of_head.get("pooling") or backbone.pooling
    if pooling == "auto":
        pooling = "token" if backbone.pooling == "token" else "both"
    head = Head(
        backbone.features,
        **{**of_head, "pooling": pooling},
        prefix_tokens=backbone.prefix_tokens,
        shared=backbone.attention is not None,
    )
    return Embedder(backbone, head, **config.get("test", {}))
