"""The work that `kill_points` kills: a gallery with each index, a training, and commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kill_commands import COMMAND_SCENARIOS
from kill_trainings import TrainingWork
from kinspace.embeddings import EmbeddingTable
from kinspace.search import Gallery

__all__ = ["SCENARIOS"]

for package in ("faiss", "pymilvus", "milvus_lite.adapter.grpc.server", "scipy.sparse"):
    import_module(package)  # once, in the process that the others are forks of
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


EVERY = {"command-report": 3}  # of the moments, where a trial takes long
SCENARIOS: dict[str, Any] = {
    **{
        f"gallery-{backend}-{work}": GalleryWork(backend, work)
        for backend in ("exact", "faiss", "milvus")
        for work in ("index", "add", "remove", "relabel", "save")
    },
    "train": TrainingWork(),
    **COMMAND_SCENARIOS,
}
