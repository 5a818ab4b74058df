"""Changes that the page makes to a gallery: a picture is added, or its label is put right."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kinspace._core.atomic_files import write_atomically
from kinspace.inference.model import EmbeddingModel

__all__ = ["FOLDER", "GalleryChanges", "class_name_of"]

FOLDER = "added"  # of a run, with the pictures that were added on the page
LONGEST = 100  # letters of the name of a class
STARTS = {b"\xff\xd8": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"BM": ".bmp", b"RIFF": ".webp"}
STARTS |= {b"II*\0": ".tif", b"MM\0*": ".tif"}


def class_name_of(text: str) -> str:
    """The name of a class that someone has typed; a ValueError for one that is none.

    >>> class_name_of(" luna ")
    'luna'
    """
    name = " ".join(text.split())
    if not name or len(name) > LONGEST or not name.isprintable():
        raise ValueError(f"class: expected a name of 1 to {LONGEST} letters, got {text[:40]!r}")
    return name


class GalleryChanges:
    """Changes of a run's gallery, one after another; each is in its journal when it returns.

    >>> import kinspace
    >>> changes = GalleryChanges(kinspace.load("runs/moths-nra-1"))  # doctest: +SKIP
    >>> changes.relabel("moth 3", "luna")  # doctest: +SKIP
    """

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model
        self._lock = threading.Lock()

    def add(self, data: bytes, vector: NDArray[np.float32], class_name: str) -> str:
        """Keep a picture, as it came, as a file of the run, and add it; returns its id.

        data: of a file that has been decoded already. The name of a class may be a new one. In a
        gallery without classes it has to be empty. A picture that was added before is given the
        class.
        """
        model, gallery = self._model, self._model.gallery
        assert gallery is not None
        name_of_file = hashlib.blake2b(data, digest_size=8).hexdigest() + _ending(data)
        file = (model.run.folder / FOLDER / name_of_file).absolute()
        labeled = gallery.table.labels is not None
        if not labeled and class_name:
            raise ValueError("class: expected none for a gallery without classes, got one")
        name = class_name_of(class_name) if labeled else None
        with self._lock:
            if str(file) in (gallery.table.paths or ()):
                (picture_id,) = gallery.find([str(file)])
                if name is not None:
                    gallery.relabel([picture_id], name)
                return picture_id
            file.parent.mkdir(exist_ok=True)
            write_atomically(file, lambda part: _write(part, data))
            names = None if name is None else [name]
            ids = [f"{FOLDER}/{name_of_file}"]
            gallery.add(vector[None], names, [str(file)], model.thresholds, ids)
            if model.thresholds is None and labeled:  # there may be enough classes now
                model.calibrate()
                model.save_thresholds()
            return gallery.find([str(file)])[0]

    def relabel(self, picture_id: str, class_name: str) -> None:
        """Give a picture of the gallery another class, which may be new."""
        gallery = self._model.gallery
        assert gallery is not None
        with self._lock:
            gallery.relabel([picture_id], class_name_of(class_name))


def _ending(data: bytes) -> str:
    """The ending of the name of a picture's file, by its first bytes.

    >>> _ending(b"GIF89a")
    '.gif'
    """
    return next((end for start, end in STARTS.items() if data.startswith(start)), ".avif")


def _write(part: Path, data: bytes) -> None:
    part.write_bytes(data)
