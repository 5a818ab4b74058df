"""Models from run folders, names of backbones and the Hugging Face Hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kinspace._core.device import pick_device
from kinspace.data.transforms import TransformSettings
from kinspace.evaluation.thresholds import (
    Thresholds,
)
from kinspace.inference.model import THRESHOLDS, EmbeddingModel
from kinspace.models import make_embedder
from kinspace.models.backbones import find_backbone
from kinspace.models.weights import take_weights
from kinspace.run import Run, open_run
from kinspace.search.gallery import FILE, Gallery
from kinspace.training.run_folder import read_checkpoint

__all__ = ["chosen_weights", "load", "load_module", "open_model"]


def load(
    name_or_folder: str | Path,
    device: str | torch.device | None = None,
    *,
    model: nn.Module | None = None,
    weights: str | Path | None = None,
    revision: str | None = None,
) -> EmbeddingModel:
    """The model of a run, or a pretrained backbone by its name, without training.

    "user/model" is one on the Hugging Face Hub (extra `hub`), where no such folder is here;
    revision: its branch, tag or commit.

    A run's comes with its gallery and thresholds where `kinspace index` has made them; the folder
    may have been moved. A backbone's embeddings are its pooled features at length 1, and it has no
    gallery until `add`. device: by default a GPU if there is one. model: a module like the one a
    run was trained with, where it was your own; the folder has its weights alone. weights: a
    safetensors file for a backbone, in place of its pretrained weights.

    >>> model = load("tf_efficientnet_lite0")  # doctest: +SKIP
    >>> model.similarity("a.jpg", "b.jpg")  # doctest: +SKIP
    array([[0.83]], dtype=float32)
    >>> load("./runs/nothing")
    Traceback (most recent call last):
    ValueError: ./runs/nothing: expected a run folder or the name of a backbone, got neither...
    """
    if Path(name_or_folder).exists():
        if weights is not None:
            raise ValueError(
                f"weights: expected with the name of a backbone, got it with {name_or_folder}"
            )
        return open_model(open_run(name_or_folder), device, model)
    from kinspace.hub import fetch_repository, is_repository_name
    from kinspace.inference.pretrained import pretrained_model

    name = str(name_or_folder)
    if isinstance(name_or_folder, str) and is_repository_name(name):
        return open_model(open_run(fetch_repository(name, revision=revision)), device, model)
    problem = "no such folder" if isinstance(name_or_folder, Path) or os.sep in name else None
    if problem is None:
        try:
            find_backbone(name)
        except ValueError as error:
            problem = str(error)
    if problem is not None:
        raise ValueError(
            f"{name}: expected a run folder or the name of a backbone, got neither: {problem}"
        )
    return pretrained_model(name, weights=weights, device=device)


def open_model(
    run: Run,
    device: str | torch.device | None = None,
    module: nn.Module | None = None,
    *,
    with_gallery: bool = True,
) -> EmbeddingModel:
    """What `Run.model` returns."""
    about, folder, place = run.about, run.folder, pick_device(device)
    module = load_module(run, place, module)
    settings = None
    if about["transform"] is not None:
        try:
            settings = TransformSettings.from_dict(about["transform"])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / 'run.json'}: transform: {error}") from None
    thresholds = folder / THRESHOLDS
    return EmbeddingModel(
        folder,
        module,
        about,
        settings,
        place,
        Thresholds.load(thresholds) if thresholds.exists() else None,
        Gallery.load(folder, place) if with_gallery and (folder / FILE).exists() else None,
        about["recipe"].get("test", {}).get("views", 1),
    )


def load_module(
    run: Run, device: str | torch.device | None = None, module: nn.Module | None = None
) -> nn.Module:
    """The network of a run with its chosen weights, in eval mode on the device."""
    about, weights = run.about, chosen_weights(run.folder)
    module = _new_module(about["model"], run.folder) if module is None else module
    take_weights(module, read_checkpoint(weights)[0], source=str(weights))
    module.to(pick_device(device)).eval()
    if about["transform"] is not None:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def chosen_weights(folder: Path) -> Path:
    """The file of the chosen weights; a ValueError where the training has not written it yet."""
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise ValueError(
            f"{weights}: expected the trained weights, got no such file; a run that was stopped "
            f"goes on with: kinspace train --resume {folder}"
        )
    return weights


def _new_module(config: Any, folder: Path) -> nn.Module:
    if isinstance(config, str):
        raise ValueError(
            f"{folder}: was trained with a module of your own, {config}; give one like it, with "
            f"any weights: kinspace.load({str(folder)!r}, model={config}(...))"
        )
    try:
        return make_embedder(config)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'run.json'}: model: {error}") from None
