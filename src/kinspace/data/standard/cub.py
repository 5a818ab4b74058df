"""CUB-200-2011: 11,788 pictures of 200 bird species (Wah et al., 2011).

The folder `CUB_200_2011` (or the one it is in):

    images.txt              1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    image_class_labels.txt  1 1
    train_test_split.txt    1 0
    classes.txt             1 001.Black_footed_Albatross
    images/                 or zip archives of it, members named as in images.txt
    attributes/class_attribute_labels_continuous.txt    200 x 312 percentages (optional)
    attributes.txt          1 has_bill_shape::curved_(up_or_down)   (optional, also beside it)

A picture's attributes are those of its class, 0 .. 1, named as everywhere in kinspace:
"has_bill_shape=curved_(up_or_down)".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from kinspace.data.dataset import Attributes, Dataset
from kinspace.data.standard.annotations import column_by_key, read_rows
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset, zero_shot_parts

__all__ = ["cub200", "cub200_seen"]

SOURCE = Source(
    "cub200",
    "CUB-200-2011",
    "https://www.vision.caltech.edu/datasets/cub_200_2011/",
    "images.txt, image_class_labels.txt, train_test_split.txt, classes.txt, "
    "images/ or zip archives of it",
)
ZERO_SHOT: Counts = {"train": (5_864, 100), "test": (5_924, 100)}
SEEN: Counts = {"train": (5_994, 200), "test": (5_794, 200)}

FILES = {
    "images": ("images.txt",),
    "labels": ("image_class_labels.txt",),
    "split": ("train_test_split.txt",),
    "classes": ("classes.txt",),
    "pictures": ("images", "*.zip"),
}


def cub200(root: Folder, *, counts: Counts | None = ZERO_SHOT) -> Dataset:
    """The zero-shot protocol: the first 100 species are "train", the last 100 "test"."""
    return _load(root, seen=False, counts=counts)


def cub200_seen(root: Folder, *, counts: Counts | None = SEEN) -> Dataset:
    """The classification protocol: every species is in "train" and in "test"."""
    return replace(_load(root, seen=True, counts=counts), name="cub200_seen")


def _load(root: Folder, *, seen: bool, counts: Counts | None) -> Dataset:
    folder = SOURCE.find_root(root, "CUB_200_2011")
    files = SOURCE.find_files(folder, FILES)
    ids, names = zip(*read_rows(files["images"], 2), strict=True)
    class_ids, class_names = zip(*read_rows(files["classes"], 2), strict=True)
    number = {class_id: i for i, class_id in enumerate(class_ids)}
    of_picture = column_by_key(files["labels"], ids)
    unknown = sorted(set(of_picture) - set(number))
    if unknown:
        raise ValueError(f"{files['classes']}: expected a line for class {unknown[0]}, found none")
    labels = [number[class_id] for class_id in of_picture]
    if seen:
        parts = tuple(
            "train" if flag == "1" else "test" for flag in column_by_key(files["split"], ids)
        )
    else:
        parts = zero_shot_parts(labels, len(class_names))
    pictures = find_pictures(SOURCE, folder, names, folder="images")
    attributes = _attributes(folder, labels, len(class_names))
    return build_dataset(
        SOURCE, pictures, labels, class_names, parts, counts, attributes=attributes
    )


def _attributes(folder: Path, labels: Sequence[int], classes: int) -> Attributes | None:
    file = "class_attribute_labels_continuous.txt"
    path = next((p for p in (folder / "attributes" / file, folder / file) if p.is_file()), None)
    if path is None:
        return None
    percent = np.loadtxt(path, dtype=np.float32, ndmin=2)  # (classes, attributes)
    if len(percent) != classes:
        raise ValueError(f"{path}: expected a line for each of {classes} classes, {len(percent)}")
    values = torch.from_numpy(percent / 100)[torch.tensor(labels)]  # (pictures, attributes)
    return Attributes(_attribute_names(folder, percent.shape[1]), values)


def _attribute_names(folder: Path, columns: int) -> tuple[str, ...]:
    for place in (folder, folder / "attributes", folder.parent):
        if (place / "attributes.txt").is_file():
            listed = read_rows(place / "attributes.txt", 2)
            return tuple(name.replace("::", "=", 1) for _, name in listed)
    return tuple(f"attribute {i}" for i in range(1, columns + 1))
