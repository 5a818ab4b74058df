"""The names a backbone may have: ours, timm's and torchvision's."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from kinspace.models.backbones import BACKBONES
from kinspace.models.zoo import timm_names, torchvision_names
from kinspace.recipes.options import fitted_options

__all__ = ["fitted_backbone_options", "known_backbone"]

# the libraries take long to list, timm seconds to import: each once, and only if asked for
LIBRARIES = {"timm": cache(timm_names), "torchvision": cache(torchvision_names)}


def known_backbone(key: str, name: str) -> str:
    """One of ours, or a model of timm or torchvision; "torchvision:googlenet" is not our own.

    >>> known_backbone("backbone", "resnet50"), known_backbone("backbone", "timm:resnet50.a1_in1k")
    ('resnet50', 'timm:resnet50.a1_in1k')
    """
    if name in BACKBONES:
        return name
    prefix, colon, model = name.rpartition(":")
    libraries = [prefix] if colon else list(LIBRARIES)
    allowed = [model for each in libraries if each in LIBRARIES for model in LIBRARIES[each]()]
    bare = model.partition(".")[0]  # timm's names may carry a tag of their weights
    if bare in allowed:
        return name
    # of a thousand names, the nearest only
    near = get_close_matches(bare, [*BACKBONES, *allowed], n=1)
    advice = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"{key}: unknown backbone {name!r}; {advice}choose from: {', '.join(BACKBONES)}, "
        "timm:NAME or torchvision:NAME"
    )


def fitted_backbone_options(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options, checked for one of ours; what a library's models take only they can tell.

    >>> fitted_backbone_options("small", {"width": 8})
    {'width': 8}
    """
    made = BACKBONES.get(name)
    return fitted_options(made, name, options) if isinstance(made, type) else dict(options)
