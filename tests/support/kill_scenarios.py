"""The work that `kill_points` kills: a gallery with each index, and a training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kinspace
from kinspace.embeddings import EmbeddingTable
from kinspace.search import Gallery
from kinspace.training import resume_training
from odd_pictures import write_clean

__all__ = ["SCENARIOS"]

for package in ("faiss", "pymilvus", "milvus_lite.adapter.grpc.server", "scipy.sparse"):
    import_module(package)  # once, in the process that the others are forks of
torch.set_num_threads(1)
CLASSES = ("io", "luna", "atlas")


def table(seed: int, count: int = 30) -> EmbeddingTable:
    vectors = np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = tuple(f"{seed}-{row}.png" for row in range(count))
    paths = tuple(f"/photos/{name}" for name in ids)
    return EmbeddingTable(vectors, np.arange(count) % 3, ids, paths, class_names=CLASSES)


def described(gallery: Gallery) -> dict[str, list[Any]]:
    """Each row by its id: class, file and vector, and the row's place."""
    found, paths = gallery.table, gallery.table.paths or ()
    assert found.labels is not None
    return {
        name: [
            row,
            found.class_name(int(found.labels[row])),
            paths[row],
            [round(float(x), 5) for x in found.vectors[row]],
        ]
        for row, name in enumerate(found.ids)
    }


def built(folder: Path, backend: str, seed: int) -> Gallery:
    gallery = Gallery(table(seed))
    if backend != "exact":
        gallery.build(folder, backend)
    return gallery


@dataclass(frozen=True)
class GalleryWork:
    """A gallery with the index `backend`; work: what is done to it."""

    backend: str
    work: str

    def prepare(self, folder: Path) -> None:
        gallery = built(folder, self.backend, 1)
        gallery.save(folder)
        if self.work == "save":
            add(gallery, 5, "vega")
            gallery.remove(["1-3.png", "1-7.png"])
        close(gallery)

    def steps(self, folder: Path) -> Iterator[Any]:
        if self.work == "index":
            before = Gallery.load(folder)
            yield described(before)
            after = built(folder, self.backend, 2)
            after.save(folder)
            yield described(after)
            return
        gallery = Gallery.load(folder)
        yield described(gallery)
        if self.work == "add":
            for seed in (5, 6):
                add(gallery, seed, f"new {seed}")
                yield described(gallery)
        elif self.work == "remove":
            for names in (["1-0.png", "1-29.png"], ["1-4.png"]):
                gallery.remove(names)
                yield described(gallery)
        elif self.work == "relabel":
            for name in ("luna", "vega"):
                gallery.relabel(["1-0.png", "1-9.png"], name)
                yield described(gallery)
        else:
            gallery.save(folder)
            yield described(gallery)

    def check(self, folder: Path, allowed: list[Any]) -> None:
        allowed = json.loads(json.dumps(allowed))
        gallery = Gallery.load(folder)
        found = json.loads(json.dumps(described(gallery)))
        assert found in allowed, "other rows than before or after the change"
        self._finds_its_own(gallery)
        # it can be gone on with, and nothing is left lying about
        add(gallery, 9, "last")
        gallery.save(folder)
        close(gallery)
        again = Gallery.load(folder)
        assert len(again.table) == len(found) + 2
        self._finds_its_own(again)
        left = {path.name for path in folder.iterdir()}
        assert not [name for name in left if name.endswith((".part", ".journal"))], left
        assert len([name for name in left if name.startswith("search-faiss")]) <= 1, left
        close(again)

    def _finds_its_own(self, gallery: Gallery) -> None:
        assert len(gallery.index) == len(gallery.table)
        for row, vector in enumerate(gallery.table.vectors):
            [near] = gallery.near(vector, 1)
            assert near.row == row, f"row {row} finds row {near.row}"
            assert near.similarity > 0.9999
            [same] = gallery.near(vector, 1, {"class": near.class_name})
            assert same.row == row, "the index has another class"


def add(gallery: Gallery, seed: int, name: str) -> None:
    more = table(seed, 2)
    gallery.add(more.vectors, [name] * 2, more.paths or (), None)


def close(gallery: Gallery) -> None:
    if hasattr(gallery.index, "close"):
        gallery.index.close()


OPTIONS: dict[str, Any] = {"device": "cpu", "workers": 0, "quiet": True, "cache": "none"}
CHANGES: dict[str, Any] = {
    "model.options": {"width": 4, "size": 16},
    "model.dim": 8,
    "transform.size": 16,
    "transform.resize": 18,
    "validation.every": 4,
    "validation.fraction": 0.4,
    "schedule.steps": 8,
    "warm_start.steps": 0,
    "search.budget": 0,
}


@dataclass(frozen=True)
class TrainingWork:
    """A training of eight steps with a checkpoint after every third."""

    def prepare(self, folder: Path) -> None:
        write_clean(folder / "photos", classes=8, each=6)

    def steps(self, folder: Path) -> Iterator[Any]:
        yield None
        train(folder)
        yield outcome(folder)

    def check(self, folder: Path, allowed: list[Any]) -> None:
        place = folder / "run"
        if not (place / "results.json").exists():
            if (place / "run.json").exists():
                resume_training(place, quiet=True)
            else:
                train(folder)  # nothing had begun; what is left is no hindrance
        assert outcome(folder) in allowed, "other numbers than without the kill"
        left = [path.name for path in place.rglob("*.part")]
        assert not left, left


def train(folder: Path) -> None:
    kinspace.train(
        str(folder / "photos"),
        method="contrastive",
        changes=CHANGES,
        out=folder / "run",
        save_every=3,
        log_every=2,
        **OPTIONS,
    )


def outcome(folder: Path) -> list[Any]:
    """The measures and the metrics of a training, without what depends on the clock."""
    run = kinspace.Run(folder / "run")
    clocks = ("images/s", "left", "seconds")
    results = {name: value for name, value in run.results.items() if name not in clocks}
    rows = [{k: v for k, v in row.items() if k not in clocks} for row in run.metrics]
    return [json.loads(json.dumps(results)), rows]


EVERY = {"train": 4}  # of the moments; a trial takes some seconds
SCENARIOS: dict[str, Any] = {
    f"gallery-{backend}-{work}": GalleryWork(backend, work)
    for backend in ("exact", "faiss", "milvus")
    for work in ("index", "add", "remove", "relabel", "save")
} | {"train": TrainingWork()}
