"""Stanford Dogs: 20,580 pictures of 120 breeds, from ImageNet (Khosla et al., 2011).

    train_list.mat      file_list ("n02085620-Chihuahua/n02085620_5927.jpg"), labels from 1
    test_list.mat
    Images/             or zip archives of it

Each breed has 100 pictures in "train", the rest in "test".
"""

from __future__ import annotations

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import read_mat_column
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["dogs"]

SOURCE = Source(
    "dogs",
    "Stanford Dogs",
    "http://vision.stanford.edu/aditya86/ImageNetDogs/",
    "train_list.mat, test_list.mat, Images/ or zip archives of it",
)
COUNTS: Counts = {"train": (12_000, 120), "test": (8_580, 120)}
FILES = {
    "train": ("train_list.mat", "lists/train_list.mat"),
    "test": ("test_list.mat", "lists/test_list.mat"),
    "pictures": ("Images", "*.zip"),
}


def dogs(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """The published classification protocol: every breed is in "train" and in "test"."""
    folder = SOURCE.find_root(root)
    files = SOURCE.find_files(folder, FILES)
    names: list[str] = []
    labels: list[int] = []
    parts: list[str] = []
    for part in ("train", "test"):
        listed = read_mat_column(files[part], "file_list")
        names.extend(listed)
        labels.extend(number - 1 for number in read_mat_column(files[part], "labels"))
        parts.extend([part] * len(listed))
    breed = {label: name.partition("/")[0] for label, name in zip(labels, names, strict=True)}
    class_names = [breed[label] for label in sorted(breed)]
    pictures = find_pictures(SOURCE, folder, names, folder="Images")
    return build_dataset(SOURCE, pictures, labels, class_names, parts, counts)
