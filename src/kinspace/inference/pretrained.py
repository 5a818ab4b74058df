"""A model without training: the pooled features of a pretrained backbone, at length 1.

`pretrained_model` has it in memory, `pretrained_run` with a data set as a run folder, which every
command takes that takes the run of a training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from kinspace import __version__
from kinspace._core.atomic_files import write_json
from kinspace._core.device import pick_device
from kinspace._core.vectors import unit
from kinspace.data.load import load_dataset
from kinspace.data.pictures import FilePictures, fingerprint
from kinspace.data.transforms import TransformSettings
from kinspace.embeddings import EmbeddingTable
from kinspace.inference.model import EmbeddingModel
from kinspace.models import Embedder
from kinspace.models.backbones import make_backbone
from kinspace.models.head import Head
from kinspace.recipes import Recipe
from kinspace.run import UNTRAINED, Run
from kinspace.training.components import transform_settings
from kinspace.training.data_parts import DataParts, prepare
from kinspace.training.embedding import embed_all
from kinspace.training.run_folder import (
    FORMAT,
    EmbeddingFile,
    hardware,
    new_folder,
    write_checkpoint,
)
from kinspace.training.settings import RunSettings

__all__ = ["pretrained_model", "pretrained_run"]


def pretrained_model(
    name: str, *, weights: str | Path | None = None, device: Any = None
) -> EmbeddingModel:
    """A backbone with its pretrained weights as a model, without a gallery (`kinspace.load`).

    weights: a safetensors file in place of the pretrained weights.

    >>> pretrained_model("tf_efficientnet_lite0").encode("a.jpg").shape  # doctest: +SKIP
    (1, 1280)
    """
    network = _Network.create(name, weights)
    place = pick_device(device)
    module = network.module.to(place).eval()
    about = {"model": module.config(), "recipe": network.recipe.to_dict(), "classes": {}}
    return EmbeddingModel(None, module, about, network.transform, place)


def pretrained_run(  # noqa: PLR0913 - the options of --backbone
    data: Any,
    backbone: str,
    *,
    out: str | Path | None = None,
    weights: str | Path | None = None,
    labeled: bool | None = None,
    columns: Mapping[str, str] | None = None,
    allow_outside: bool = False,
    skip_bad: bool = False,
    workers: int | None = None,
    device: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    status: Callable[[str], object] = lambda text: None,
) -> Run:
    """A run folder of a data set and a pretrained backbone, made without a training step.

    All pictures are embedded and are the run's test part: the model has seen none of them. The data
    set needs no classes. A folder of an earlier call with the same data, backbone and pictures is
    returned as it is.

    data: as for `load_dataset`; labeled, columns and allow_outside too. out: the run folder; by
    default the first runs/DATA-BACKBONE-NUMBER that is free or of an earlier call. weights: a
    safetensors file in place of the backbone's pretrained weights. skip_bad: leave out pictures
    that cannot be read. workers: processes that read pictures; None: by the machine. progress:
    called with the pictures embedded and all of them; status: with the step under way.

    >>> run = pretrained_run("photos/", "tf_efficientnet_lite0")  # doctest: +SKIP
    >>> run.model().encode("a.jpg").shape  # doctest: +SKIP
    (1, 1280)
    """
    dataset = load_dataset(data, labeled=labeled, columns=columns, allow_outside=allow_outside)
    settings = RunSettings(
        device=device, skip_bad=skip_bad, allow_outside=allow_outside, workers=workers
    )
    made_of = {
        "data": str(data) if isinstance(data, (str, Path)) else dataset.name,
        "labeled": dataset.labeled,
        "columns": None if columns is None else dict(columns),
        "split": UNTRAINED,
        "backbone": backbone,
        "weights": None if weights is None else _file_stamp(Path(weights)),
        "fingerprint": fingerprint(dataset.pictures),
    }
    folder, finished = _folder(out, f"{dataset.name}-{backbone.rpartition(':')[2]}", made_of)
    if finished:
        return Run(folder)
    status(f"loading {backbone}")
    network = _Network.create(backbone, weights)
    status("reading the pictures")
    parts = prepare(dataset, "all", network.transform, settings, validation=0)
    status("embedding the pictures")
    vectors = unit(embed_all(network.module.to(parts.train.device), parts.train, progress=progress))
    return _write(new_folder(folder, ""), network, parts, vectors, made_of, settings)


def _folder(out: str | Path | None, name: str, made_of: Mapping[str, Any]) -> tuple[Path, bool]:
    """The folder of the run, and whether an earlier call has made it."""
    number = 1
    while out is None and (folder := Path("runs") / f"{name}-{number}").exists():
        if _has_run(folder, made_of):
            return folder, True
        number += 1
    folder = Path("runs") / f"{name}-{number}" if out is None else Path(out)
    return folder, _has_run(folder, made_of)


def _has_run(folder: Path, made_of: Mapping[str, Any]) -> bool:
    try:
        about = Run(folder).about
    except ValueError:
        return False
    return all(about.get(key) == value for key, value in made_of.items()) and Run(folder).finished


def _file_stamp(file: Path) -> str:
    """What changes with the content of a file."""
    return fingerprint(FilePictures([file])) if file.exists() else str(file)


def _write(
    folder: Path,
    network: _Network,
    parts: DataParts,
    vectors: Tensor,
    made_of: Mapping[str, Any],
    settings: RunSettings,
) -> Run:
    """The files of the run; run.json, which makes the folder one, comes last."""
    dataset, transform = parts.train.dataset, parts.train.settings
    about = {
        **made_of,
        "working_folder": str(Path.cwd()),
        "classes": {"test": list(dataset.class_names)},
        "pictures": {"test": len(dataset)},
        "skipped": [list(bad) for bad in parts.skipped],
        "notes": [],
        "recipe": network.recipe.to_dict(),
        "seed": settings.seed,
        "settings": settings.to_dict(),
        "model": network.module.config(),
        "transform": None if transform is None else transform.to_dict(),
        "hardware": hardware(parts.train.device),
        "format": FORMAT,
        "kinspace": __version__,
    }
    write_checkpoint(folder / "model.safetensors", network.module.state_dict(), {"step": 0})
    write_json(folder / "results.json", {"selected_step": 0, "steps": 0, "seconds": 0.0})
    write_json(folder / "run.json", about)
    table = EmbeddingTable.from_dataset(dataset, vectors)
    EmbeddingFile(folder, "test").write(table, dataset)
    return Run(folder)


@dataclass(frozen=True, eq=False)
class _Network:
    """A backbone and its pooling, with its recipe and the transform of its pictures."""

    module: Embedder
    recipe: Recipe
    transform: TransformSettings

    @classmethod
    def create(cls, name: str, weights: str | Path | None) -> _Network:
        backbone = make_backbone(name, pretrained=weights is None, weights=weights)
        pooling = "token" if backbone.prefix_tokens else "avg"
        tokens = backbone.prefix_tokens
        head = Head(backbone.features, None, pooling=pooling, prefix_tokens=tokens)
        module = Embedder(backbone, head)
        recipe = Recipe.from_dict(
            {
                "name": "untrained",
                "about": f"the features of {name}, without training: nothing below model and "
                "transform is used",
                "model": {"backbone": name, "pretrained": True, "dim": None, "pool": pooling},
                "loss": {"name": "nra"},
                "validation": {"fraction": 0.0},
            }
        )
        return cls(module, recipe, transform_settings(recipe, module))
