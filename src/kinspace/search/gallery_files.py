"""The files of a gallery in a run folder, and the one moment at which a new gallery is there.

gallery.npz                     the table, the keys of its rows, and which index belongs to it
search-faiss-GENERATION.npz     the index of faiss
gallery-GENERATION.journal      what was added, removed and relabeled since
gallery.lock                    held by the process that writes

Each time gallery.npz is written it has another generation, a random text. Files that belong to it
have the generation in their name and are written before it; a journal begins when the first change
comes. So the rename of gallery.npz is the only moment at which anything changes: before it there is
the old gallery with its index and journal, after it the new one. Files of other generations are
what a killed process left, are never read, and the next process that writes removes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from kinspace._core import checks
from kinspace._core.atomic_files import DAMAGED_NPZ, clear_parts, write_atomically
from kinspace._core.checks import brief
from kinspace._core.locks import FolderLock
from kinspace._table_files import table_of
from kinspace.embeddings import EmbeddingTable
from kinspace.search.gallery_rows import GalleryRows
from kinspace.search.journal import Journal

__all__ = ["FILE", "GalleryFiles", "Snapshot", "new_generation"]

FILE, LOCK = "gallery.npz", "gallery.lock"
# of galleries that were written before there were generations
OLD_FILE = "search.json"
OLD_FILES = {"faiss": "search-faiss.npz", "milvus": "search-milvus.json"}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What gallery.npz says: the rows, the kind of the index and where it is.

    generation: "" for a gallery that was written before there were generations.
    """

    rows: GalleryRows
    generation: str
    backend: str
    address: Mapping[str, str]


def new_generation() -> str:
    """A text that no other gallery has.

    >>> len(new_generation())
    12
    """
    return uuid4().hex[:12]


class GalleryFiles:
    """The files of a gallery in a folder.

    >>> GalleryFiles(Path("run")).journal("a1").file.name
    'gallery-a1.journal'
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / FILE

    def lock(self, what: str, *, wait: float = 10.0) -> AbstractContextManager[None]:
        """Be the only process that writes; see `FolderLock.held`."""
        return FolderLock(self.folder / LOCK).held(what, wait=wait)

    def journal(self, generation: str) -> Journal:
        """The journal of a generation."""
        return Journal(self.folder / f"gallery-{generation}.journal")

    def faiss_name(self, generation: str) -> str:
        """The name of the file with the index of a generation."""
        return f"search-faiss-{generation}.npz"

    def generation(self) -> str | None:
        """The generation that is there now; None without a gallery."""
        try:
            with self.file.open("rb") as stream, np.load(stream, allow_pickle=False) as found:
                if "gallery" not in found.files:
                    return ""
                return str(json.loads(bytes(found["gallery"]).decode())["generation"])
        except FileNotFoundError:
            return None
        except DAMAGED_NPZ:
            return ""  # `read` says what is wrong

    def read(self) -> Snapshot:
        """The gallery; a ValueError if the file is none."""
        try:
            with self.file.open("rb") as stream, np.load(stream, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            if "gallery" not in arrays:
                return self._read_old()
            about = json.loads(bytes(arrays["gallery"]).decode())
            rows = GalleryRows(table_of(arrays), arrays["keys"], int(about["next_key"]))
            if len(rows.keys) != len(rows.table):
                raise ValueError(f"{len(rows.keys)} keys for {len(rows.table)} rows")
            address = {str(name): str(value) for name, value in about["address"].items()}
            return Snapshot(rows, str(about["generation"]), str(about["search"]), address)
        except FileNotFoundError:
            raise
        except DAMAGED_NPZ as error:
            if str(self.folder) in str(error):
                raise
            raise ValueError(f"{self.file}: expected a gallery, got {brief(error)}") from None

    def _read_old(self) -> Snapshot:
        """A gallery whose index is in search.json, which can only be compared by its size."""
        rows = GalleryRows.of(EmbeddingTable.load(self.file))
        path = self.folder / OLD_FILE
        if not path.exists():
            return Snapshot(rows, "", "exact", {})
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            backend, count = str(about["search"]), about["rows"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: expected the kind of an index, got {error!r}") from None
        file = checks.lookup("index", backend, OLD_FILES)
        if count != len(rows.table):
            raise ValueError(
                f"{path}: expected an index of the {len(rows.table)} pictures of the gallery, "
                f"got one of {count}; build it again with: kinspace index --replace {self.folder}"
            )
        return Snapshot(rows, "", backend, {"file": file})

    def commit(self, snapshot: Snapshot) -> None:
        """Put a gallery in the place of the one before; its index has been written already."""
        words = {
            "generation": snapshot.generation,
            "search": snapshot.backend,
            "address": dict(snapshot.address),
            "next_key": snapshot.rows.next_key,
        }
        arrays: dict[str, Any] = {
            "gallery": np.frombuffer(json.dumps(words).encode(), np.uint8),
            "keys": snapshot.rows.keys,
            **snapshot.rows.table.arrays(),
        }

        def write(part: Path) -> None:
            with part.open("wb") as out:
                np.savez(out, **arrays)

        write_atomically(self.file, write)

    def clean(self, generation: str) -> None:
        """Remove the files of other generations, and what a killed process left of any."""
        kept = {self.journal(generation).file.name, self.faiss_name(generation)}
        found = [*self.folder.glob("gallery-*.journal"), *self.folder.glob("search-faiss-*.npz")]
        old = [self.folder / name for name in (OLD_FILE, *OLD_FILES.values())]
        for path in [*(path for path in found if path.name not in kept), *old]:
            path.unlink(missing_ok=True)
        for names in ("gallery.npz.*", "search-*", "thresholds.json.*"):
            clear_parts(self.folder, names)

    def size(self) -> int:
        """Bytes of gallery.npz."""
        return self.file.stat().st_size
