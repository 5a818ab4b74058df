"""Backbones of timm and torchvision, cut where their feature map or their tokens are.

timm: `forward_features`. What a model has behind it (the norm after the pooling of a ConvNeXt, the
last convolution of a MobileNet v3) is not run, and frozen. torchvision: the children in their order
without pooling and classifier, which is how its convolutional nets, Swin and MaxViT run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kinspace.data.transforms import NORMALIZATIONS, Normalization
from kinspace.models.preprocessing import Preprocessing
from kinspace.models.pretrained_weights import has_network

__all__ = [
    "Trunk",
    "convolutions",
    "freeze_unused",
    "from_timm",
    "from_torchvision",
    "run_features",
    "timm_names",
    "torchvision_names",
]

# torchvision's names for what comes after the map, and for auxiliary classifiers beside it
BEHIND = ("avgpool", "flatten", "permute", "dropout", "fc", "classifier", "head")
BESIDE = ("aux1", "aux2", "AuxLogits")
# Their weights come from TensorFlow and expect -1 .. 1; torchvision has them change the pictures.
FROM_TENSORFLOW = ("googlenet", "inception_v3")


@dataclass(frozen=True)
class Trunk:
    """A net that gives a map or tokens, and what must be known to use it.

    channels: of its map or tokens. classifier: the submodules that were cut off, whose weights a
    file may hold in vain. prefix_tokens: tokens before those of the patches. pooling: of its own
    classifier, as far as `kinspace.models.head` has it.
    """

    module: nn.Module
    channels: int
    preprocessing: Preprocessing
    classifier: tuple[str, ...] = ()
    prefix_tokens: int = 0
    pooling: str = "avg"


def timm_names() -> list[str]:
    """The models timm knows.

    >>> "resnet50" in timm_names()
    True
    """
    import timm

    return list(timm.list_models())


def from_timm(
    name: str, *, pretrained: bool = False, in_channels: int = 3, options: Mapping[str, Any]
) -> Trunk:
    """A timm model without its classifier; options go to `timm.create_model`.

    Vision transformers and Swin take pictures of any size: position embeddings are resampled.

    >>> from_timm("resnet10t", options={}).channels
    512
    """
    from timm.data.config import resolve_data_config

    options = dict(options)
    net = _create(name, {**options, "pretrained": pretrained, "in_chans": in_channels})
    asked = {"img_size": options.get("img_size")}
    wanted: dict[str, Any] = resolve_data_config(asked, model=net)  # type: ignore[no-untyped-call]
    given = (wanted["mean"], wanted["std"])
    colors = Normalization(*given) if len(given[0]) == 3 else NORMALIZATIONS["imagenet"]
    preprocessing = Preprocessing.of(colors, wanted["input_size"][-1], in_channels=in_channels)
    classifier = net.pretrained_cfg.get("classifier") or ()
    by_token = getattr(net, "global_pool", None) == "token" and hasattr(net, "cls_token")
    return Trunk(
        net,
        freeze_unused(net, preprocessing),
        preprocessing,
        (classifier,) if isinstance(classifier, str) else tuple(classifier),
        getattr(net, "num_prefix_tokens", 0),
        "token" if by_token else "avg",
    )


def _create(name: str, options: Mapping[str, Any]) -> Any:
    import timm

    state = torch.get_rng_state()
    if "dynamic_img_size" not in options:
        try:
            return timm.create_model(name, num_classes=0, dynamic_img_size=True, **options)
        except TypeError:  # other models have no such option
            torch.set_rng_state(state)
    return timm.create_model(name, num_classes=0, **options)


class _Features(nn.Module):
    """A net up to its map or tokens, as a forward."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return run_features(self.net, x)


def run_features(net: nn.Module, x: Tensor) -> Tensor:
    """The map or tokens of a net: by its `forward_features`, where it has one.

    >>> run_features(nn.Conv2d(3, 8, 3), torch.zeros(1, 3, 5, 5)).shape
    torch.Size([1, 8, 3, 3])
    """
    return getattr(net, "forward_features", net)(x)  # type: ignore[no-any-return]


def freeze_unused(net: nn.Module, preprocessing: Preprocessing) -> int:
    """Freeze the parameters that the map does not depend on; the number of its channels.

    They would never have a gradient, which training on several processes takes for an error. Found
    on meta tensors, which have shapes and no values.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3))
    >>> freeze_unused(net, Preprocessing((0.5,) * 3, (0.5,) * 3, 5))
    8
    """
    state = {f"net.{key}": value.to("meta") for key, value in net.named_buffers()}
    ghosts = [value.detach().to("meta").requires_grad_() for value in net.parameters()]
    state |= {
        f"net.{key}": ghost for (key, _), ghost in zip(net.named_parameters(), ghosts, strict=True)
    }
    side = preprocessing.size
    picture = torch.zeros(1, len(preprocessing.mean), side, side, device="meta")
    with torch.enable_grad():  # a model may be built to embed only
        features = torch.func.functional_call(_Features(net.eval()), state, (picture,))
        slopes = torch.autograd.grad(features.sum(), ghosts, allow_unused=True)
    for parameter, slope in zip(net.train().parameters(), slopes, strict=True):
        if slope is None:
            parameter.requires_grad_(False)
    # a map may have its channels last; it has more of them than positions in a row
    return int(features.shape[2] if features.ndim == 3 else max(features.shape[1:]))


def torchvision_names() -> list[str]:
    """The classification models torchvision knows.

    >>> "resnet18" in torchvision_names()
    True
    """
    from torchvision import models  # type: ignore[import-untyped]

    return list(models.list_models(module=models))


def from_torchvision(
    name: str, *, pretrained: bool = False, in_channels: int = 3, options: Mapping[str, Any]
) -> Trunk:
    """A torchvision model without its classifier; options go to its constructor.

    >>> from_torchvision("squeezenet1_1", options={}).channels
    512
    """
    from torchvision import models

    if name.startswith("vit_"):
        raise ValueError(
            f"torchvision:{name}: its tokens cannot be had; "
            "use timm's, such as 'timm:vit_base_patch16_224'"
        )
    known = models.get_model_weights(name).DEFAULT
    converted = name in FROM_TENSORFLOW
    # said outright: without it the two warn that it takes long
    extra = {"init_weights": True} if converted else {}
    net = models.get_model(name, weights=None, **{**extra, **options})
    if pretrained:
        kept = Path(torch.hub.get_dir(), "checkpoints", Path(known.url).name)
        if not kept.exists() and not has_network(known.url):
            raise ConnectionError(f"no answer from {known.url}")
        # by itself torchvision would open a pickle that can run code
        net.load_state_dict(known.get_state_dict(check_hash=True, weights_only=True))
    children = dict(net.named_children())
    trunk = nn.Sequential()
    for key, child in children.items():
        if key not in (*BEHIND, *BESIDE):
            # MaxViT runs through its list in a loop
            run = nn.Sequential(*child) if isinstance(child, nn.ModuleList) else child
            trunk.add_module(key, run)
    cut = tuple(key for key in children if not hasattr(trunk, key))
    if name.startswith("densenet"):
        trunk.add_module("relu", nn.ReLU(inplace=True))  # a function in its forward, not a child
    _, first = convolutions(trunk)[0]
    if in_channels != first.in_channels:
        from timm.models import adapt_input_conv

        first.weight = nn.Parameter(adapt_input_conv(in_channels, first.weight.detach()))
        first.in_channels = in_channels
    wanted = known.transforms()
    half = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    colors = Normalization(*(half if converted else (tuple(wanted.mean), tuple(wanted.std))))
    preprocessing = Preprocessing.of(colors, wanted.crop_size[0], in_channels=in_channels)
    return Trunk(trunk, freeze_unused(trunk, preprocessing), preprocessing, cut)


def convolutions(net: nn.Module) -> list[tuple[str, nn.Conv2d]]:
    """The convolutions of a net with their names; the first one sees the colors.

    >>> [name for name, _ in convolutions(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 8, 3)))]
    ['1']
    """
    return [(name, layer) for name, layer in net.named_modules() if isinstance(layer, nn.Conv2d)]
