"""A file on disk with the moths, so that they are drawn only once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kinspace._core.atomic_files import DAMAGED_NPZ, write_atomically
from kinspace.data.moths.attributes import VOCABULARY
from kinspace.data.moths.collection import Moths, draw_moths

__all__ = ["GENERATOR", "cache_folder", "load_moths", "read_moths", "write_moths"]

GENERATOR = 2  # counts up whenever the same parameters give other pictures


def cache_folder() -> Path:
    """The folder for files that can be made again: $XDG_CACHE_HOME or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "kinspace"


def write_moths(moths: Moths, file: Path) -> None:
    """Write the file atomically: a reader sees all of it or none."""
    arrays: dict[str, Any] = {
        "images": moths.images,
        "labels": moths.labels,
        "class_names": np.array(moths.class_names),
        "genera": np.array(moths.genera),
        **{f"column {name}": values for name, values in moths.columns.items()},
    }

    def write(part: Path) -> None:
        with part.open("wb") as stream:  # savez would add .npz to the name
            np.savez(stream, **arrays)

    write_atomically(file, write)


def read_moths(file: Path) -> Moths:
    """Read a file of `write_moths`."""
    # Opened here: np.load leaves a file that is no archive open.
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return Moths(
            images=arrays["images"],
            labels=arrays["labels"],
            class_names=tuple(arrays["class_names"].tolist()),
            genera=tuple(arrays["genera"].tolist()),
            columns={name: arrays[f"column {name}"] for name in VOCABULARY},
        )


def load_moths(
    cache: str | Path | None = None,
    *,
    species: int = 120,
    per_species: int = 40,
    size: int = 96,
    seed: int = 0,
    workers: int | None = None,
) -> Moths:
    """`draw_moths`, kept in the folder `cache` (default: `cache_folder()`) for the next time.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     drawn = load_moths(folder, species=2, per_species=2)
    ...     again = load_moths(folder, species=2, per_species=2)
    >>> bool((drawn.images == again.images).all())
    True
    """
    folder = cache_folder() if cache is None else Path(cache)
    folder.mkdir(parents=True, exist_ok=True)  # before the drawing, which takes a while
    file = folder / f"moths-{GENERATOR}-{species}x{per_species}-{size}px-seed{seed}.npz"
    try:
        moths = read_moths(file)
        if moths.images.shape == (species * per_species, size, size, 3):
            return moths
    except DAMAGED_NPZ:
        pass  # missing or broken: make it again
    moths = draw_moths(
        species=species, per_species=per_species, size=size, seed=seed, workers=workers
    )
    write_moths(moths, file)
    return moths
