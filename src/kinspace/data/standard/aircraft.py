"""FGVC-Aircraft, release 2013b: 10,000 pictures of 100 aircraft variants (Maji et al., 2013).

The folder `fgvc-aircraft-2013b/data` (or one it is in):

    variants.txt                                707-320
    images_variant_{train,val,test}.txt         1025794 707-320
    images_family_{train,val,test}.txt          1025794 Boeing 707      (optional: parents)
    images/1025794.jpg                          or zip archives of it

Classes are in the order of variants.txt. A variant's parent is its family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import read_rows
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset, zero_shot_parts

__all__ = ["aircraft", "aircraft_seen"]

SOURCE = Source(
    "aircraft",
    "FGVC-Aircraft",
    "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
    "variants.txt, images_variant_train.txt, images_variant_val.txt, images_variant_test.txt, "
    "images/ or zip archives of it",
)
ZERO_SHOT: Counts = {"train": (5_000, 50), "test": (5_000, 50)}
SEEN: Counts = {"train": (3_334, 100), "val": (3_333, 100), "test": (3_333, 100)}

PARTS = ("train", "val", "test")
FILES = {
    "variants": ("variants.txt",),
    **{part: (f"images_variant_{part}.txt",) for part in PARTS},
    "pictures": ("images", "*.zip"),
}


def aircraft(root: Folder, *, counts: Counts | None = ZERO_SHOT) -> Dataset:
    """The zero-shot protocol: the first 50 variants are "train", the last 50 "test"."""
    return _load(root, seen=False, counts=counts)


def aircraft_seen(root: Folder, *, counts: Counts | None = SEEN) -> Dataset:
    """The classification protocol: every variant is in "train", "val" and "test"."""
    return replace(_load(root, seen=True, counts=counts), name="aircraft_seen")


def _load(root: Folder, *, seen: bool, counts: Counts | None) -> Dataset:
    folder = SOURCE.find_root(root, "fgvc-aircraft-2013b/data", "data")
    files = SOURCE.find_files(folder, FILES)
    variants = files["variants"].read_text(encoding="utf-8").split("\n")
    variants = [variant.strip() for variant in variants if variant.strip()]
    number = {variant: i for i, variant in enumerate(variants)}
    listed = [(*row, part) for part in PARTS for row in read_rows(files[part], 2)]
    unknown = [variant for _, variant, _ in listed if variant not in number]
    if unknown:
        raise ValueError(f"{files['variants']}: expected a line {unknown[0]!r}, found none")
    ids = [image for image, _, _ in listed]
    labels = [number[variant] for _, variant, _ in listed]
    parts = [part for _, _, part in listed] if seen else zero_shot_parts(labels, len(variants))
    pictures = find_pictures(SOURCE, folder, [f"{i}.jpg" for i in ids], folder="images")
    hierarchy = _families(folder, ids, labels)
    return build_dataset(SOURCE, pictures, labels, variants, parts, counts, **hierarchy)


def _families(folder: Path, ids: Sequence[str], labels: Sequence[int]) -> dict[str, Any]:
    paths = [folder / f"images_family_{part}.txt" for part in PARTS]
    if not all(path.is_file() for path in paths):
        return {}
    of_picture = dict(row for path in paths for row in read_rows(path, 2))
    family = {
        label: of_picture[image]
        for image, label in zip(ids, labels, strict=True)
        if image in of_picture
    }
    names = tuple(sorted(set(family.values())))
    parents = tuple(names.index(family[label]) for label in sorted(family))
    return {"parents": parents, "parent_names": names}
