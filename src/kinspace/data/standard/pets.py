"""Oxford-IIIT Pet: 37 breeds of cats and dogs (Parkhi et al., 2012).

    annotations/trainval.txt    Abyssinian_100 1 1 1        (name, breed from 1, species, ...)
    annotations/test.txt
    images/Abyssinian_100.jpg   or zip archives of it

or a copy with one table:

    labels.csv                  path,label_index,class_name,split
                                images/Abyssinian_1.jpg,0,Abyssinian,trainval
    *.zip                       or images/

The parts are "train" (the official trainval list) and "test". The archive also holds 41 pictures
that are in neither list ("unlisted" in the table): they are no part of the benchmark and are left
out. A breed's parent is its species; as in the official names, cats begin with a capital.
"""

from __future__ import annotations

import csv
from pathlib import Path

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import parse_number, read_rows
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["pets"]

SOURCE = Source(
    "pets",
    "Oxford-IIIT Pet",
    "https://www.robots.ox.ac.uk/~vgg/data/pets/",
    "annotations/trainval.txt, annotations/test.txt (or labels.csv), images/ or zip archives of it",
)
COUNTS: Counts = {"train": (3_680, 37), "test": (3_669, 37)}
LISTS = {
    "train": ("annotations/trainval.txt",),
    "test": ("annotations/test.txt",),
    "pictures": ("images", "*.zip"),
}
COLUMNS = ("path", "label_index", "class_name", "split")
SPLITS = {"trainval": "train", "test": "test", "unlisted": None}
SPECIES = ("cat", "dog")

Listed = list[tuple[str, int, str]]  # file name in images/, breed from 0, part


def pets(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """The published classification protocol: every breed is in "train" and in "test"."""
    folder = SOURCE.find_root(root, "oxford-iiit-pet")
    table = folder / "labels.csv"
    listed = _from_table(table) if table.is_file() else _from_lists(folder)
    names = [name for name, _, _ in listed]
    labels = [label for _, label, _ in listed]
    breed = {label: name.rpartition("_")[0] for name, label, _ in listed}
    class_names = [breed[label] for label in sorted(breed)]
    return build_dataset(
        SOURCE,
        find_pictures(SOURCE, folder, names, folder="images"),
        labels,
        class_names,
        [part for _, _, part in listed],
        counts,
        parents=tuple(0 if name[0].isupper() else 1 for name in class_names),
        parent_names=SPECIES,
    )


def _from_lists(folder: Path) -> Listed:
    files = SOURCE.find_files(folder, LISTS)
    return [
        (f"{name}.jpg", parse_number(files[part], breed) - 1, part)
        for part in ("train", "test")
        for name, breed, _, _ in read_rows(files[part], 4)
    ]


def _from_table(table: Path) -> Listed:
    with table.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{table}: expected columns {COLUMNS}, got {reader.fieldnames}")
        listed = []
        for row in reader:
            if row["split"] not in SPLITS:
                known = ", ".join(SPLITS)
                raise ValueError(f"{table}: expected a split of {known}, got {row['split']!r}")
            part = SPLITS[row["split"]]
            if part is not None:
                name = row["path"].removeprefix("images/")
                listed.append((name, parse_number(table, row["label_index"]), part))
        return listed
