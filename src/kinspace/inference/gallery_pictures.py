"""The pictures of a table of embeddings: in a data set by their ids, else the files they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from kinspace.data.in_memory import SampleInputs
from kinspace.data.load import load_dataset
from kinspace.data.pictures import FilePictures, Pictures, UnreadablePicture
from kinspace.embeddings import EmbeddingTable, picture_ids
from kinspace.run import Run, load_run_data

__all__ = ["TablePictures", "table_pictures"]


class TablePictures:
    """Pictures by row of a table; reading one that is not found raises `UnreadablePicture`.

    >>> pictures = TablePictures(["a.jpg"], [None])
    >>> len(pictures), pictures.missing
    (1, 1)
    """

    def __init__(self, names: list[str], sources: list[tuple[Pictures, int] | None]) -> None:
        self._names = names
        self._sources = sources
        self.missing = sources.count(None)

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        """The id of the row."""
        return self._names[index]

    def read(self, index: int) -> Image.Image:
        """The picture as upright RGB."""
        source = self._sources[index]
        if source is None:
            raise UnreadablePicture(self._names[index], "not found")
        pictures, place = source
        return pictures.read(place)

    def stamp(self, index: int) -> object:
        """What changes with the picture."""
        source = self._sources[index]
        return None if source is None else source[0].stamp(source[1])


def table_pictures(
    table: EmbeddingTable, run: Run | None = None, data: Any = None
) -> TablePictures:
    """The pictures of a table's rows.

    data: the data set they are in; by default that of the run, if the table was made of it.

    >>> import numpy as np
    >>> table = EmbeddingTable(np.eye(2), ids=("digit 3", "other"))
    >>> table_pictures(table, data="digits").missing
    1
    """
    found = _dataset_pictures(table, run, data)
    places = {} if found is None else {name: at for at, name in enumerate(picture_ids(found))}
    sources: list[tuple[Pictures, int] | None] = []
    for row, name in enumerate(table.ids):
        path = Path(table.paths[row]) if table.paths and table.paths[row] else None
        if path is not None and path.is_file():
            sources.append((FilePictures([path]), 0))
        elif found is not None and name in places:
            sources.append((found, places[name]))
        else:
            sources.append(None)
    return TablePictures(list(table.ids), sources)


def _dataset_pictures(table: EmbeddingTable, run: Run | None, data: Any) -> Pictures | None:
    if data is not None:
        return load_dataset(data).pictures
    own = any(name.startswith("part=") for name in table.attribute_names)
    if run is None or not own:  # other data may have the same ids
        return None
    try:
        pictures = load_run_data(run.about).pictures
    except ValueError:  # the data have moved
        return None
    return None if isinstance(pictures, SampleInputs) else pictures
