"""The names a backbone may have: ours, timm's and torchvision's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinspace.models.backbones import BACKBONES, find_backbone
from kinspace.recipes.options import fitted_options

__all__ = ["fitted_backbone_options", "known_backbone"]


def known_backbone(key: str, name: str) -> str:
    """One of ours, or a model of timm or torchvision; "torchvision:googlenet" is not our own.

    >>> known_backbone("backbone", "resnet50"), known_backbone("backbone", "timm:resnet50.a1_in1k")
    ('resnet50', 'timm:resnet50.a1_in1k')
    """
    try:
        find_backbone(name)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return name


def fitted_backbone_options(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options, checked for one of ours; what a library's models take only they can tell.

    >>> fitted_backbone_options("small", {"width": 8})
    {'width': 8}
    """
    made = BACKBONES.get(name)
    return fitted_options(made, name, options) if isinstance(made, type) else dict(options)
