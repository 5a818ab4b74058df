"""The embeddings of a run's parts, made once and kept in its folder (`Run.embeddings`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.data.dataset import Dataset
from kinspace.data.transforms import TransformSettings
from kinspace.embeddings import EmbeddingTable
from kinspace.inference.loader import chosen_weights, load_module
from kinspace.models.weights import take_weights
from kinspace.run import PARTS, Run, Splits
from kinspace.training.data_parts import DataPart, prepare
from kinspace.training.embedding import Pixels, embed_all
from kinspace.training.run_folder import WEIGHTS, EmbeddingFile, read_checkpoint
from kinspace.training.settings import RunSettings

__all__ = ["BASELINES", "RunEmbeddings", "picture_part"]

BASELINES = ("untrained", "pixels")
PLACES = ("auto", "memory", "gpu", "none")  # of a cache, those that are no folder


@dataclass(eq=False)
class RunEmbeddings:
    """The tables of a run; where several are wanted, the pictures of a part are decoded once.

    device, module: as for `Run.model`. workers: processes that read pictures; None: as the run had
    them. status: called with each step; progress: with the pictures done and all of a part.

    >>> from kinspace.run import open_run
    >>> run = open_run("runs/moths-nra-1")  # doctest: +SKIP
    >>> tables = RunEmbeddings(run, run.splits())  # doctest: +SKIP
    >>> tables.table("test").dim, tables.table("test", by="pixels").dim  # doctest: +SKIP
    (64, 3072)
    """

    run: Run
    splits: Splits
    device: str | torch.device | None = None
    module: nn.Module | None = None
    workers: int | None = None
    status: Callable[[str], object] = lambda text: None
    progress: Callable[[int, int], object] | None = None

    def __post_init__(self) -> None:
        chosen_weights(self.run.folder)
        self._decoded: tuple[Dataset, DataPart] | None = None

    def table(self, part: str = "test", by: str = "model") -> EmbeddingTable:
        """The embeddings of a part, read from the run folder if they are there; see `Run`."""
        checks.choice("part", part, (*PARTS, "all"))
        checks.choice("by", by, tuple(WEIGHTS) if self.run.trained else ("model", "pixels"))
        if part == "all":
            return self._whole(by)
        dataset: Dataset | None = getattr(self.splits, part)
        if dataset is None:
            there = [name for name in PARTS if getattr(self.splits, name) is not None]
            raise ValueError(
                f"part: expected one of {', '.join(there)}, all, got {part!r}; the run has no such "
                f"part of {self.splits.whole.name}"
            )
        return self._table(part, dataset, by)

    def vectors(self, dataset: Dataset, by: str = "model") -> Tensor:
        """The embeddings of a part of the data, not kept: on the device, in its order."""
        part = self._part_of(dataset)
        if by == "pixels":
            return embed_all(Pixels(), part, progress=self.progress)
        path = self.run.folder / str(WEIGHTS[by])
        take_weights(self._module, read_checkpoint(path)[0], source=str(path))
        found = embed_all(
            self._module,
            part,
            views=self.run.recipe.test.views,
            what="features" if by == "untrained" else "test",
            progress=self.progress,
        )
        return unit(found) if by == "model" else found

    def _table(self, part: str, dataset: Dataset, by: str) -> EmbeddingTable:
        file = EmbeddingFile(self.run.folder, part, by, self.splits.own)
        vectors: Any = file.vectors(dataset)
        kept = vectors is not None
        if not kept:
            self.status(f"embedding the {part} part" + ("" if by == "model" else f", {by}"))
            vectors = self.vectors(dataset, by)
        # names, paths and classes of the data as it was opened: it may have moved
        table = EmbeddingTable.from_dataset(dataset, vectors, whole=self.splits.whole)
        if not kept:
            file.write(table, dataset)
        return table

    def _whole(self, by: str) -> EmbeddingTable:
        """The parts' tables, put together in the order of the data set."""
        whole, parts = self.splits.whole, self.splits.parts
        rest = np.ones(len(whole), bool)
        for part in parts.values():
            rest[part.indices_in(whole).numpy()] = False
        if rest.any():  # official parts may leave pictures out
            parts["rest"] = whole.subset(np.flatnonzero(rest).tolist())
        found: Any = None
        for name, part in parts.items():
            vectors = self._table(name, part, by).vectors
            if found is None:
                found = np.empty((len(whole), vectors.shape[1]), vectors.dtype)
            found[part.indices_in(whole).numpy()] = vectors
        return EmbeddingTable.from_dataset(whole, found)

    @cached_property
    def _module(self) -> nn.Module:
        return load_module(self.run, self.device, self.module)

    def _part_of(self, dataset: Dataset) -> DataPart:
        """The pictures of a data set, decoded; kept until those of another one are wanted."""
        if self._decoded is None or self._decoded[0] is not dataset:
            self._decoded = None  # its memory first
            self.status("reading the pictures")
            made = picture_part(
                self.run, dataset, self.splits.whole, device=self.device, workers=self.workers
            )
            self._decoded = dataset, made
        return self._decoded[1]


def picture_part(
    run: Run,
    dataset: Dataset,
    whole: Dataset,
    *,
    device: str | torch.device | None = None,
    workers: int | None = None,
) -> DataPart:
    """The pictures of a part of `whole` as the run's model takes them.

    They come out of the run's cache where that is a folder, which is of the whole set.
    """
    about = run.about
    settings = {**about["settings"], "skip_bad": False, "split": None, "tensorboard": False}
    settings["device"] = None if device is None else str(device)
    if workers is not None:
        settings["workers"] = workers
    transform = TransformSettings.from_dict(about["transform"] or {})
    # a folder is a cache of the whole set, and of tensors nothing is decoded
    alone = settings["cache"] in PLACES and about["transform"] is not None
    chosen = dataset if alone else whole
    made = prepare(chosen, "all", transform, RunSettings.from_dict(settings), validation=0).train
    return made if chosen is dataset else made.part(dataset)
