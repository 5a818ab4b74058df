"""Cars196: 16,185 pictures of 196 models of cars (Krause et al., 2013).

Published in two layouts. The first:

    cars_annos.mat      annotations: relative_im_path ("car_ims/000001.jpg"), class, test;
                        class_names
    car_ims/

The later one, made for a challenge, with the labels of its test pictures published afterwards:

    devkit/cars_meta.mat                class_names
    devkit/cars_train_annos.mat         annotations: class, fname ("00001.jpg")
    cars_test_annos_withlabels.mat      (or in devkit/)
    cars_train/, cars_test/

Both hold the same pictures, in another order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import read_mat_column, read_mat_table
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset, zero_shot_parts

__all__ = ["cars196", "cars196_seen"]

SOURCE = Source(
    "cars196",
    "Cars196",
    "https://ai.stanford.edu/~jkrause/cars/car_dataset.html (home page; now often offline)",
    "either cars_annos.mat and car_ims/, or devkit/cars_meta.mat, devkit/cars_train_annos.mat, "
    "cars_test_annos_withlabels.mat, cars_train/ and cars_test/",
)
ZERO_SHOT: Counts = {"train": (8_054, 98), "test": (8_131, 98)}
SEEN: Counts = {"train": (8_144, 196), "test": (8_041, 196)}

FIRST = {
    "annotations": ("cars_annos.mat", "devkit/cars_annos.mat"),
    "pictures": ("car_ims",),
}
LATER = {
    "meta": ("devkit/cars_meta.mat", "cars_meta.mat"),
    "train": ("devkit/cars_train_annos.mat", "cars_train_annos.mat"),
    "test": ("cars_test_annos_withlabels.mat", "devkit/cars_test_annos_withlabels.mat"),
    "train pictures": ("cars_train",),
    "test pictures": ("cars_test",),
}


def cars196(root: Folder, *, counts: Counts | None = ZERO_SHOT) -> Dataset:
    """The zero-shot protocol: the first 98 models are "train", the last 98 "test"."""
    return _load(root, seen=False, counts=counts)


def cars196_seen(root: Folder, *, counts: Counts | None = SEEN) -> Dataset:
    """The classification protocol: every model is in "train" and in "test"."""
    return replace(_load(root, seen=True, counts=counts), name="cars196_seen")


@dataclass(frozen=True)
class _Lists:
    names: list[str]  # of the pictures, from the copy's folder
    classes: list[int]  # from 1
    parts: list[str]
    class_names: list[str]


def _load(root: Folder, *, seen: bool, counts: Counts | None) -> Dataset:
    folder = SOURCE.find_root(root, "stanford_cars")
    # the first layout's list is also handed out beside the later layout's pictures
    first = (folder / "car_ims").is_dir() or (
        any((folder / name).is_file() for name in FIRST["annotations"])
        and not (folder / "cars_train").is_dir()
    )
    lists = _first_layout(folder) if first else _later_layout(folder)
    labels = [number - 1 for number in lists.classes]
    parts = lists.parts if seen else zero_shot_parts(labels, len(lists.class_names))
    pictures = find_pictures(SOURCE, folder, lists.names)
    return build_dataset(SOURCE, pictures, labels, lists.class_names, parts, counts)


def _first_layout(folder: Path) -> _Lists:
    path = SOURCE.find_files(folder, FIRST)["annotations"]
    names, classes, test = read_mat_table(path, "annotations", "relative_im_path", "class", "test")
    parts = ["test" if flag else "train" for flag in test]
    return _Lists(names, classes, parts, read_mat_column(path, "class_names"))


def _later_layout(folder: Path) -> _Lists:
    files = SOURCE.find_files(folder, LATER)
    lists = _Lists([], [], [], read_mat_column(files["meta"], "class_names"))
    for part in ("train", "test"):
        names, classes = read_mat_table(files[part], "annotations", "fname", "class")
        lists.names.extend(f"cars_{part}/{name}" for name in names)
        lists.classes.extend(classes)
        lists.parts.extend([part] * len(names))
    return lists
