"""Small pictures of the rows of a gallery, by row."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from kinspace.data.in_memory import SampleInputs
from kinspace.data.load import load_dataset
from kinspace.data.pictures import FilePictures, Pictures
from kinspace.embeddings import picture_ids
from kinspace.inference.model import EmbeddingModel
from kinspace.web import gray_jpeg, thumbnail_jpeg

__all__ = ["Thumbnails"]

SIDE = 192
KEPT = 4096  # of about 6 kB


class Thumbnails:
    r"""Pictures found once, at the start: by their names in a data set, else by their own files.

    data: where the pictures of the gallery are; by default what the run was trained on, if the
    gallery is made of it. missing: how many rows have no picture; they get a gray one.

    >>> import kinspace
    >>> model = kinspace.load("runs/moths-nra-1")  # doctest: +SKIP
    >>> Thumbnails(model).jpeg(0)[:2]  # doctest: +SKIP
    b'\xff\xd8'
    """

    def __init__(self, model: EmbeddingModel, data: Any = None) -> None:
        table = model.table
        found = _pictures(model, data)
        by_name = {} if found is None else {n: i for i, n in enumerate(picture_ids(found))}
        self._found: list[tuple[Pictures, int] | None] = []
        for row, name in enumerate(table.ids):
            path = Path(table.paths[row]) if table.paths and table.paths[row] else None
            if found is not None and name in by_name:
                self._found.append((found, by_name[name]))
            elif path is not None and path.is_file():
                self._found.append((FilePictures([path]), 0))
            else:
                self._found.append(None)
        self.missing = self._found.count(None)
        self._reading = threading.Lock()  # an archive is one file: one reads at a time
        self.jpeg = lru_cache(KEPT)(self._jpeg)

    def __len__(self) -> int:
        return len(self._found)

    def _jpeg(self, row: int) -> bytes:
        place = self._found[row]
        if place is None:
            return gray_jpeg(SIDE)
        with self._reading:
            return thumbnail_jpeg(*place, side=SIDE)


def _pictures(model: EmbeddingModel, data: Any) -> Pictures | None:
    own = any(name.startswith("part=") for name in model.table.attribute_names)
    if data is None and not own:  # names of other data may be the same: no picture is better
        return None
    try:
        pictures = load_dataset(model.about["data"] if data is None else data).pictures
    except ValueError:
        if data is not None:
            raise
        return None  # it is not where it was
    return None if isinstance(pictures, SampleInputs) else pictures
