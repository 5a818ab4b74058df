"""From a run folder to its embedding tables: the test part, and what is shown beside it.

They are kept in RUN/embeddings and made again when the weights or the pictures change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinspace._core.json_files import write_json
from kinspace.data import Dataset
from kinspace.data.load import load_dataset
from kinspace.data.pictures import FilePictures, Pictures, PictureSubset, fingerprint
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.summary import Status
from kinspace.models import make_embedder
from kinspace.recipes import Recipe
from kinspace.run import Run
from kinspace.training.checkpoint import read_checkpoint
from kinspace.training.components import transform_settings
from kinspace.training.data_parts import DataPart, prepare, split_names
from kinspace.training.embedding import embed_all
from kinspace.training.final_evaluation import Pixels
from kinspace.training.settings import run_settings

__all__ = ["BASELINES", "RunEmbedder", "RunTables", "embed_run", "table_of"]

BASELINES = ("untrained", "pixels")
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class RunTables:
    """Tables by name: test, train and validation by the model, "untrained" and "pixels" of test.

    whole: the data set of the parts; parts: the data sets in the order of their tables' rows.
    """

    tables: dict[str, EmbeddingTable]
    parts: dict[str, Dataset]
    whole: Dataset
    notes: list[str] = field(default_factory=list)

    @property
    def baselines(self) -> dict[str, EmbeddingTable]:
        """What the model is compared with."""
        return {name: self.tables[name] for name in BASELINES if name in self.tables}


def embed_run(
    run: Run,
    data: Any = None,
    *,
    model: nn.Module | None = None,
    device: str | None = None,
    status: Status = lambda text: None,
) -> RunTables:
    """Embed the parts of a run by its chosen weights, or take the tables that it has already.

    data: where the run's data is now, or another data set, which is then judged as a whole.
    model: the module of a run that was trained with one of your own.
    """
    about = run.about
    if not (run.folder / "model.safetensors").exists():
        raise ValueError(
            f"{run.folder}: expected a run with chosen weights, got one still under way"
        )
    recipe = Recipe.from_dict(about["recipe"])
    whole = _without(_opened(run, data), [name for name, _ in about["skipped"]])
    parts, notes = _parts(run, whole, recipe, given=data is not None)
    stamp = {
        "weights": _digest(run.folder / "model.safetensors"),
        "pictures": fingerprint(whole.pictures),
        "parts": {name: len(part) for name, part in parts.items()},
    }
    folder = run.folder / "embeddings"
    kept = _kept(folder, stamp)
    if kept is None:
        status("reading the pictures")
        embedder = RunEmbedder(run, whole, model=model, device=device)
        kept = {}
        for name, part in parts.items():
            status(f"embedding the {name} part")
            kept[name] = table_of(part, embedder.vectors(part))
        for name in BASELINES:
            status(f"embedding the test part, {name}")
            kept[name] = table_of(parts["test"], embedder.vectors(parts["test"], name))
        _keep(folder, kept, stamp)
    return RunTables(kept, parts, whole, notes)


def table_of(dataset: Dataset, vectors: Tensor | np.ndarray[Any, Any]) -> EmbeddingTable:
    """The embeddings of a data set with all that it knows of its pictures.

    >>> from kinspace.data import digits_dataset
    >>> table_of(digits_dataset().subset([3, 4]), np.eye(2)).ids
    ('digit 3', 'digit 4')
    """
    names = [dataset.pictures.name(index) for index in range(len(dataset))]
    if len(set(names)) < len(names):  # a data set may hold a picture twice
        names = [f"{name} ({place})" for place, name in enumerate(names)]
    attributes = dataset.attributes
    return EmbeddingTable(
        vectors if isinstance(vectors, np.ndarray) else vectors.cpu().numpy(),
        dataset.labels.numpy(),
        tuple(names),
        _paths(dataset.pictures),
        None if attributes is None else attributes.values.numpy(),
        () if attributes is None else attributes.names,
        dataset.class_names,
    )


def _paths(pictures: Pictures) -> tuple[str, ...] | None:
    places: Sequence[int] = range(len(pictures))
    while isinstance(pictures, PictureSubset):
        places = [pictures.indices[place] for place in places]
        pictures = pictures.whole
    if not isinstance(pictures, FilePictures):
        return None
    return tuple(str(pictures.path(place)) for place in places)


def _opened(run: Run, data: Any) -> Dataset:
    if data is not None:
        return load_dataset(data)
    if (run.folder / "hierarchy.json").exists():
        raise ValueError(
            f"{run.folder}: a run of kinspace hierarchy, on merged classes; its hierarchy.json "
            "has what it found; to judge it on other classes, say which data: DATA"
        )
    try:
        return load_dataset(run.about["data"])
    except ValueError as error:
        raise ValueError(
            f"{run.folder}: its data cannot be opened ({error}); say where it is now: DATA"
        ) from None


def _without(dataset: Dataset, skipped: Sequence[str]) -> Dataset:
    if not skipped:
        return dataset
    bad = set(skipped)
    names = [dataset.pictures.name(index) for index in range(len(dataset))]
    return dataset.subset([place for place, name in enumerate(names) if name not in bad])


def _parts(
    run: Run, whole: Dataset, recipe: Recipe, *, given: bool
) -> tuple[dict[str, Dataset], list[str]]:
    """The parts as the run had them; of other data one part, to be judged as a whole."""
    about = run.about
    try:
        found = split_names(
            whole, about["split"], validation=recipe.validation.fraction, seed=about["seed"]
        )
    except ValueError:  # this data cannot be divided so
        found = (whole, None, None)
    parts = {name: part for name, part in zip(PARTS, found, strict=True) if part is not None}
    now = {name: [list(part.class_names), len(part)] for name, part in parts.items()}
    if now == {
        name: [about["classes"][name], about["pictures"][name]] for name in about["classes"]
    }:
        if "test" not in parts:  # trained on everything: the best there is to look at
            return parts | {"test": parts["train"]}, [
                "nothing was kept for a test: these are the pictures trained on"
            ]
        return parts, []
    if not given:
        raise ValueError(
            f"{run.folder}: the data is not what it was trained on, pictures or classes differ; "
            "say which data to judge: DATA"
        )
    shared = set(about["classes"]["train"]) & set(whole.class_names)
    notes = [f"judged on other data than it was trained and tested on: {whole.name}"]
    if shared:
        notes.append(f"classes with the name of one trained on: {len(shared):,}")
    return {"test": whole}, notes


class RunEmbedder:
    """The model of a run and the feed of its pictures: embeds by what was learnt, or by less."""

    def __init__(
        self, run: Run, whole: Dataset, *, model: nn.Module | None = None, device: str | None = None
    ) -> None:
        about = run.about
        if model is None and not isinstance(about["model"], dict):
            raise ValueError(
                f"{run.folder}: was trained with a model of your own, {about['model']}; pass it "
                "as model= from Python"
            )
        here = {"device": device, "skip_bad": False, "split": None, "tensorboard": False}
        settings = run_settings(about["settings"] | here)
        recipe = Recipe.from_dict(about["recipe"])
        self.folder, self.views = run.folder, recipe.test.views
        self.model = make_embedder(about["model"]) if model is None else model
        transform = transform_settings(recipe, self.model)
        self.feed: DataPart = prepare(whole, "all", transform, settings, validation=0).train
        self.model.to(self.feed.device)
        if settings.channels_last and self.feed.settings is not None:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def vectors(self, part: Dataset, by: str = "model") -> Tensor:
        """Embeddings by the "model" as chosen, by the "untrained" backbone, or by "pixels"."""
        feed = self.feed.part(part)
        if by == "pixels":
            return embed_all(Pixels(), feed)
        name = "model" if by == "model" else "start"
        tensors, _ = read_checkpoint(self.folder / f"{name}.safetensors", self.feed.device)
        self.model.load_state_dict(tensors)
        what = "features" if by == "untrained" else "test"
        return embed_all(self.model, feed, views=self.views, what=what)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _kept(folder: Path, stamp: dict[str, Any]) -> dict[str, EmbeddingTable] | None:
    """The tables on the disk, if they are of these weights and pictures."""
    try:
        kept = json.loads((folder / "made_of.json").read_text(encoding="utf-8"))
        if kept["stamp"] != stamp:
            return None
        return {name: EmbeddingTable.load(folder / f"{name}.npz") for name in kept["tables"]}
    except (OSError, ValueError, KeyError):
        return None


def _keep(folder: Path, tables: dict[str, EmbeddingTable], stamp: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    mark = folder / "made_of.json"
    mark.unlink(missing_ok=True)  # it is written last: without it nothing here counts
    for name, table in tables.items():
        table.save(folder / f"{name}.npz")
    write_json(mark, {"stamp": stamp, "tables": list(tables)})
