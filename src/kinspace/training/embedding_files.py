"""Embeddings kept in a run folder, and what each file was made of.

    RUN/embeddings/test.npz             the test part by the chosen weights
    RUN/embeddings/test.json            what it was made of
    RUN/embeddings/test-untrained.npz   by the backbone before the first step; test-pixels.npz
    RUN/embeddings/other/test.npz       of another data set, the last one

The training leaves the first; `Run.embeddings` makes the others when they are wanted. A file counts
as long as weights, transform and pictures are those it was made of.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kinspace._core.atomic_files import read_json, write_atomically, write_json
from kinspace.data.dataset import Dataset
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import PictureSubset, fingerprint
from kinspace.embeddings import EmbeddingTable

__all__ = ["WEIGHTS", "EmbeddingFile"]

WEIGHTS = {"model": "model.safetensors", "untrained": "start.safetensors", "pixels": None}


@dataclass(frozen=True)
class EmbeddingFile:
    """The file for one part of the data, by the "model", the "untrained" backbone or "pixels".

    run: the run folder. own: whether the data is that of the run.

    >>> EmbeddingFile(Path("run"), "test", "untrained").path.as_posix()
    'run/embeddings/test-untrained.npz'
    """

    run: Path
    part: str
    by: str = "model"
    own: bool = True

    @property
    def path(self) -> Path:
        """The table; beside it, ending in .json, what it was made of."""
        name = self.part if self.by == "model" else f"{self.part}-{self.by}"
        folder = self.run / "embeddings"
        return (folder if self.own else folder / "other") / f"{name}.npz"

    def write(self, table: EmbeddingTable, dataset: Dataset) -> None:
        """Keep the table of a data set; not of inputs in which a change would not be seen."""
        if not _has_fingerprint(dataset):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stamp = self.path.with_suffix(".json")
        stamp.unlink(missing_ok=True)  # written last: without it the table does not count
        write_atomically(self.path, table.save)
        write_json(stamp, self._stamp(dataset))

    def vectors(self, dataset: Dataset) -> NDArray[Any] | None:
        """The kept vectors of a data set; None where there are none of it and these weights."""
        try:
            if not _has_fingerprint(dataset):
                return None
            if read_json(self.path.with_suffix(".json")) != self._stamp(dataset):
                return None
            vectors = EmbeddingTable.load(self.path).vectors
        except (OSError, ValueError):
            return None
        return vectors if len(vectors) == len(dataset) else None

    def _stamp(self, dataset: Dataset) -> dict[str, Any]:
        """All that decides what the vectors are."""
        about, weights = read_json(self.run / "run.json"), WEIGHTS[self.by]
        return {
            "weights": None if weights is None else _digest(self.run / weights),
            "model": about["model"],
            "test": about["recipe"].get("test"),
            "transform": about["transform"],
            "pictures": fingerprint(dataset.pictures),
        }


def _has_fingerprint(dataset: Dataset) -> bool:
    pictures = dataset.pictures
    while isinstance(pictures, PictureSubset):
        pictures = pictures.whole
    return not isinstance(pictures, SampleInputs)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
