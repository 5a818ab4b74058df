"""Thumbnails of the pictures of a gallery, by row."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from kinspace.data.in_memory import SampleInputs
from kinspace.data.load import load_dataset
from kinspace.data.pictures import FilePictures, Pictures
from kinspace.embeddings import EmbeddingTable, picture_ids
from kinspace.inference.model import EmbeddingModel
from kinspace.run import load_run_data
from kinspace.web import gray_jpeg, thumbnail_jpeg

__all__ = ["Thumbnails"]

_Source = tuple[Pictures, int] | None
SIDE = 192
KEPT = 4096  # of about 6 kB


class Thumbnails:
    r"""Thumbnails of a gallery, whose pictures are located once: in a data set by id, else by path.

    data: the pictures of the gallery; by default the data of the run, if the gallery is made of it.
    missing: the number of rows whose picture is not found; their thumbnail is gray.

    >>> import kinspace
    >>> model = kinspace.load("runs/moths-nra-1")  # doctest: +SKIP
    >>> Thumbnails(model).jpeg(0)[:2]  # doctest: +SKIP
    b'\xff\xd8'
    """

    def __init__(self, model: EmbeddingModel, data: Any = None) -> None:
        found = _pictures(model, data)
        by_name = {} if found is None else {n: i for i, n in enumerate(picture_ids(found))}
        self._by_id: dict[str, _Source] = {}
        if found is not None:
            self._by_id = {n: (found, by_name[n]) for n in model.table.ids if n in by_name}
        self._lock = threading.Lock()  # an archive is one file: one thread reads at a time
        self._of_id = lru_cache(KEPT)(self._jpeg)
        self.update(model.table)

    def update(self, table: EmbeddingTable) -> None:
        """Find the pictures of rows that are new."""
        for row, name in enumerate(table.ids):
            if name not in self._by_id:
                path = Path(table.paths[row]) if table.paths and table.paths[row] else None
                there = path is not None and path.is_file()
                self._by_id[name] = (FilePictures([path]), 0) if path and there else None
        self._ids = table.ids
        self.missing = sum(self._by_id[name] is None for name in table.ids)

    def __len__(self) -> int:
        return len(self._ids)

    def jpeg(self, row: int) -> bytes:
        """The thumbnail of a row."""
        return self._of_id(self._ids[row])

    def _jpeg(self, name: str) -> bytes:
        source = self._by_id[name]
        if source is None:
            return gray_jpeg(SIDE)
        with self._lock:
            return thumbnail_jpeg(*source, side=SIDE)


def _pictures(model: EmbeddingModel, data: Any) -> Pictures | None:
    own = any(name.startswith("part=") for name in model.table.attribute_names)
    if data is None and not own:  # other data may have the same ids: no picture is better
        return None
    try:
        found = load_run_data(model.about) if data is None else load_dataset(data)
    except ValueError:
        if data is not None:
            raise
        return None  # the data have moved
    return None if isinstance(found.pictures, SampleInputs) else found.pictures
