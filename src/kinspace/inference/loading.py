"""From a run folder to a Model. Only JSON and safetensors are read: no file can run code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kinspace._core.device import pick_device
from kinspace.data.transforms import TransformSettings
from kinspace.inference.model import Model
from kinspace.models import make_embedder
from kinspace.models.weights import take_weights
from kinspace.run import open_run
from kinspace.search.gallery import FILE, Gallery
from kinspace.search.thresholds import Thresholds
from kinspace.training.checkpoint import read_checkpoint

__all__ = ["load"]

FORMAT = 1
NEEDED: dict[str, tuple[type, ...]] = {
    "model": (dict, str),
    "transform": (dict, type(None)),
    "recipe": (dict,),
    "classes": (dict,),
}


def load(
    run_folder: str | Path,
    device: str | torch.device | None = None,
    *,
    model: nn.Module | None = None,
) -> Model:
    """The model of a run, with its gallery and thresholds where `kinspace index` has made them.

    The folder may have been moved. device: by default a GPU if there is one. model: the module a
    run was trained with, where it was your own; the folder then has its weights alone.

    >>> load("runs/nothing")
    Traceback (most recent call last):
    ValueError: runs/nothing: expected a run folder, got no such folder
    """
    folder = open_run(run_folder).folder
    about = _about(folder / "run.json")
    place = pick_device(device)
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise ValueError(
            f"{weights}: expected the trained weights, got no such file; a run that was stopped "
            f"goes on with: kinspace train --resume {folder}"
        )
    module = _made(about["model"], folder) if model is None else model
    take_weights(module, read_checkpoint(weights)[0], source=str(weights))
    module.to(place).eval()
    settings = None
    if about["transform"] is not None:
        try:
            settings = TransformSettings.from_dict(about["transform"])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / 'run.json'}: transform: {error}") from None
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    thresholds = folder / "threshold.json"
    return Model(
        folder,
        module,
        about,
        settings,
        place,
        Thresholds.load(thresholds) if thresholds.exists() else None,
        Gallery.load(folder, place) if (folder / FILE).exists() else None,
    )


def _about(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected what was run, got no readable JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a run of format {FORMAT}, got another")
    for name, kinds in NEEDED.items():
        if name not in found or not isinstance(found[name], kinds):
            raise ValueError(f"{path}: expected an entry {name!r}, got none or another kind of it")
    return found


def _made(config: Any, folder: Path) -> nn.Module:
    if isinstance(config, str):
        raise ValueError(
            f"{folder}: was trained with a module of your own, {config}; give it, with any "
            f"weights: kinspace.load({str(folder)!r}, model={config}(...))"
        )
    try:
        return make_embedder(config)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'run.json'}: model: {error}") from None
