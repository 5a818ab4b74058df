"""Stanford Online Products: 120,053 pictures of 22,634 products (Oh Song et al., 2016).

The folder `Stanford_Online_Products` (or the one it is in):

    Ebay_train.txt      image_id class_id super_class_id path
                        1 1 1 bicycle_final/111085122871_0.JPG
    Ebay_test.txt
    bicycle_final/, cabinet_final/, ... twelve kinds of product

A class is a product, named by its class_id; its parent is its kind. No product is in both parts.
"""

from __future__ import annotations

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import read_rows
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["sop"]

SOURCE = Source(
    "sop",
    "Stanford Online Products",
    "https://cvgl.stanford.edu/projects/lifted_struct/",
    "Ebay_train.txt, Ebay_test.txt, bicycle_final/ and the folders of the other kinds",
)
COUNTS: Counts = {"train": (59_551, 11_318), "test": (60_502, 11_316)}
FILES = {"train": ("Ebay_train.txt",), "test": ("Ebay_test.txt",)}


def sop(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """The zero-shot protocol, as published: products in "train" or in "test"."""
    folder = SOURCE.find_root(root, "Stanford_Online_Products")
    files = SOURCE.find_files(folder, FILES)
    names: list[str] = []
    labels: list[int] = []
    parts: list[str] = []
    number: dict[str, int] = {}  # class_id -> class, in the order of the lists
    kinds: list[str] = []  # of each class
    for part, path in files.items():
        for _, class_id, _, name in read_rows(path, 4, skip=1):
            if class_id not in number:
                number[class_id] = len(number)
                kinds.append(name.partition("/")[0].removesuffix("_final"))
            names.append(name)
            labels.append(number[class_id])
            parts.append(part)
    parent_names = tuple(sorted(set(kinds)))
    return build_dataset(
        SOURCE,
        find_pictures(SOURCE, folder, names),
        labels,
        tuple(number),
        parts,
        counts,
        parents=tuple(parent_names.index(kind) for kind in kinds),
        parent_names=parent_names,
    )
