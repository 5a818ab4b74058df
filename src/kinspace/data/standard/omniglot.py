"""Omniglot: 32,460 drawings of 1,623 characters of 50 alphabets (Lake et al., 2015).

    images_background/Alphabet_of_the_Magi/character01/0709_01.png      part "train"
    images_evaluation/Angelic/character01/0965_01.png                   part "test"

or one file `omniglot28.npz` (itself, or in the folder) with the drawings in 28 x 28: images,
labels, class_names, class_split (background, evaluation), class_alphabet, alphabets.

A class is a character, "Alphabet/character01", 20 drawings each; its parent is its alphabet.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from kinspace.data.dataset import Dataset
from kinspace.data.pictures import ArrayPictures, FilePictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["omniglot"]

SOURCE = Source(
    "omniglot",
    "Omniglot",
    "https://github.com/brendenlake/omniglot",
    "images_background/ and images_evaluation/ with alphabets/characters/drawings, "
    "or omniglot28.npz",
)
COUNTS: Counts = {"train": (19_280, 964), "test": (13_180, 659)}
PARTS = {"background": "train", "evaluation": "test"}
FILES = {split: (f"images_{split}",) for split in PARTS}
ARRAYS = ("images", "labels", "class_names", "class_split", "class_alphabet", "alphabets")


def omniglot(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """The zero-shot protocol, as published: 30 alphabets are "train", 20 others "test"."""
    folder = SOURCE.find_root(root, "omniglot-py")
    packed = folder if folder.is_file() else folder / "omniglot28.npz"
    return _from_arrays(packed, counts) if packed.is_file() else _from_folders(folder, counts)


def _from_folders(folder: Path, counts: Counts | None) -> Dataset:
    files = SOURCE.find_files(folder, FILES)
    paths: list[Path] = []
    labels: list[int] = []
    parts: list[str] = []
    number: dict[str, int] = {}
    for split, part in PARTS.items():
        for path in sorted(files[split].glob("*/*/*.png")):
            character = path.parent.relative_to(files[split]).as_posix()
            labels.append(number.setdefault(character, len(number)))
            paths.append(path)
            parts.append(part)
    alphabets = [name.partition("/")[0] for name in number]
    parent_names = tuple(sorted(set(alphabets)))
    return build_dataset(
        SOURCE,
        FilePictures(paths, root=folder),
        labels,
        tuple(number),
        parts,
        counts,
        parents=tuple(parent_names.index(alphabet) for alphabet in alphabets),
        parent_names=parent_names,
    )


def _from_arrays(path: Path, counts: Counts | None) -> Dataset:
    try:
        with np.load(path, allow_pickle=False) as packed:
            images, labels, names, split, alphabet, alphabets = (packed[key] for key in ARRAYS)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: expected an npz file with {', '.join(ARRAYS)}: {error}"
        ) from None
    numbers = labels.tolist()
    part = [PARTS[name] for name in split.tolist()]
    return build_dataset(
        SOURCE,
        ArrayPictures(images, prefix=SOURCE.name),
        numbers,
        names.tolist(),
        [part[label] for label in numbers],
        counts,
        parents=tuple(alphabet.tolist()),
        parent_names=tuple(alphabets.tolist()),
    )
