"""One type for every set of pictures, labeled or not.

A labeled data set always has all of its classes: labels are 0 .. C-1 and each occurs. A part of it
is a data set again, its classes renumbered in the old order. An unlabeled data set has no classes,
and the label of each picture is -1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils import data

from kinspace._core.checks import plural
from kinspace.data.pictures import Pictures, PictureSubset

__all__ = ["NO_LABEL", "Attributes", "Dataset", "from_names", "natural_order", "unlabeled"]

NO_LABEL = -1  # of each picture of a data set without classes


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==
class Attributes:
    """Attributes of each picture besides its class: one column per name, values in 0 .. 1.

    A categorical attribute has one column per value, "color=brown".

    >>> Attributes(("striped", "color=brown"), torch.tensor([[1.0, 0.0]])).values.shape
    torch.Size([1, 2])
    """

    names: tuple[str, ...]
    values: Tensor  # (pictures, attributes), float32

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ValueError(
                f"attributes: expected one column for each of {len(self.names)} names, "
                f"got shape {tuple(self.values.shape)}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(data.Dataset[tuple[Any, int, int]]):
    """Pictures, labeled or not. `dataset[i]` is (image, label, i), the image after the transform.

    Without class_names the data set is unlabeled: `labeled` is False, `num_classes` 0, and each
    label is -1. It can be embedded, searched and reported on; training and evaluation need classes.

    parts: for each picture the official part it is in ("train", "test", "query", "gallery", ...).
    parents: for each class the number of its group in parent_names (genus, product kind).
    standard: a published or built-in set, of which papers train on the first half of the classes.

    >>> import numpy as np
    >>> from kinspace.data.pictures import ArrayPictures
    >>> pictures = ArrayPictures(np.zeros((3, 8, 8), np.uint8))
    >>> moths = Dataset(pictures, torch.tensor([1, 0, 1]), ("io", "luna"))
    >>> image, label, index = moths[2]
    >>> image.size, label, index
    ((8, 8), 1, 2)
    >>> moths
    <Dataset 'pictures': 3 pictures of 2 classes>
    """

    pictures: Pictures
    labels: Tensor
    class_names: tuple[str, ...]
    attributes: Attributes | None = None
    parts: tuple[str, ...] | None = None
    parents: tuple[int, ...] | None = None
    parent_names: tuple[str, ...] = ()
    name: str = "pictures"
    standard: bool = False
    transform: Callable[[Image.Image], Any] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """One line, without the thousands of labels and names."""
        count = plural(len(self.pictures), "picture")
        kinds = f"of {plural(self.num_classes, 'class', 'classes')}"
        words = [f"{count} {kinds if self.labeled else 'without classes'}"]
        if self.attributes is not None:
            words.append(f"{len(self.attributes.names)} attributes")
        words += [f"{number:,} {part}" for part, number in Counter(self.parts or ()).items()]
        return f"<Dataset {self.name!r}: {', '.join(words)}>"

    def __post_init__(self) -> None:
        count = len(self.pictures)
        if self.labels.shape != (count,) or self.labels.dtype != torch.int64:
            raise ValueError(
                f"labels: expected int64 of shape ({count},), one for each picture, "
                f"got {self.labels.dtype} {tuple(self.labels.shape)}"
            )
        if not count:
            raise ValueError(f"{self.name}: expected at least one picture, got none")
        present = self.labels.unique()
        if not self.labeled:
            if present.tolist() != [NO_LABEL]:
                raise ValueError(
                    f"labels: expected {NO_LABEL} for every picture of a data set without class "
                    f"names, got {int(present[0])} to {int(present[-1])}"
                )
        elif present.tolist() != list(range(len(self.class_names))):
            raise ValueError(
                f"labels: expected all of 0 .. {len(self.class_names) - 1}, one for each class "
                f"name, got {len(present)} values from {int(present[0])} to {int(present[-1])}"
            )
        for what, value, size in (
            ("attributes", None if self.attributes is None else self.attributes.values, count),
            ("parts", self.parts, count),
            ("parents", self.parents, len(self.class_names)),
        ):
            if value is not None and len(value) != size:
                raise ValueError(f"{what}: expected {size} entries, got {len(value)}")

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        image: Any = self.pictures.read(index)
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.labels[index]), index

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 for an unlabeled data set."""
        return len(self.class_names)

    @property
    def labeled(self) -> bool:
        """Whether the pictures have classes."""
        return bool(self.class_names)

    def require_labels(self, what: str) -> None:
        """Raise a ValueError if the pictures have no classes; what: that which needs them.

        >>> from kinspace.data.in_memory import digits_dataset
        >>> digits_dataset().without_labels().require_labels("train")
        Traceback (most recent call last):
        ValueError: train expects classes: one folder a class, or a table with a column 'label';
        'digits' has 1,797 pictures without classes
        """
        if not self.labeled:
            raise ValueError(
                f"{what} expects classes: one folder a class, or a table with a column 'label'; "
                f"{self.name!r} has {plural(len(self), 'picture')} without classes"
            )

    def without_labels(self) -> Dataset:
        """The same pictures without their classes.

        >>> from kinspace.data.in_memory import digits_dataset
        >>> digits_dataset().without_labels()
        <Dataset 'digits': 1,797 pictures without classes>
        """
        labels = torch.full_like(self.labels, NO_LABEL)
        return replace(self, labels=labels, class_names=(), parents=None, parent_names=())

    def with_transform(self, transform: Callable[[Image.Image], Any] | None) -> Dataset:
        """The same pictures with another transform."""
        return replace(self, transform=transform)

    def subset(self, indices: Sequence[int] | Tensor) -> Dataset:
        """The pictures with these indices, in that order, as a data set of its own."""
        places = torch.as_tensor(indices)
        if places.dtype == torch.bool:
            raise ValueError("indices: expected numbers, got a mask; pass mask.nonzero().flatten()")
        places = places.long()
        labels, old = self.labels[places], list[int]()
        if self.labeled:
            kept, labels = labels.unique(return_inverse=True)
            old = kept.tolist()
        attributes = self.attributes
        return replace(
            self,
            pictures=PictureSubset(self.pictures, places.tolist()),
            labels=labels,
            class_names=tuple(self.class_names[c] for c in old),
            attributes=attributes and Attributes(attributes.names, attributes.values[places]),
            parts=self.parts and tuple(self.parts[i] for i in places.tolist()),
            parents=self.parents and tuple(self.parents[c] for c in old),
        )

    def indices_in(self, whole: Dataset) -> Tensor:
        """The indices of these pictures in the data set they were taken from.

        >>> from kinspace.data.in_memory import digits_dataset
        >>> digits = digits_dataset()
        >>> digits.subset([7, 8, 9]).subset([2, 0]).indices_in(digits)
        tensor([9, 7])
        """
        pictures: Pictures = self.pictures
        places = torch.arange(len(self))
        while pictures is not whole.pictures:
            if not isinstance(pictures, PictureSubset):
                raise ValueError(
                    f"whole: expected the data set that these {len(self)} pictures of "
                    f"{self.name!r} were taken from, got another of {len(whole)}: {whole.name!r}"
                )
            places = torch.tensor(pictures.indices)[places]
            pictures = pictures.whole
        return places

    def part(self, *names: str) -> Dataset:
        """The pictures of one or more official parts: `cub.part("train")`."""
        if self.parts is None:
            raise ValueError(f"{self.name}: has no official parts")
        places = [i for i, part in enumerate(self.parts) if part in names]
        if not places:
            known = ", ".join(repr(part) for part in sorted(set(self.parts)))
            raise ValueError(f"{self.name}: no pictures in part {names}; choose from {known}")
        return self.subset(places)


def from_names(pictures: Pictures, classes: Sequence[str], **rest: Any) -> Dataset:
    """A data set from the class name of each picture; classes are numbered in natural order.

    >>> import numpy as np
    >>> from kinspace.data.pictures import ArrayPictures
    >>> pictures = ArrayPictures(np.zeros((3, 8, 8), np.uint8))
    >>> from_names(pictures, ["luna", "io", "luna"]).labels
    tensor([1, 0, 1])
    """
    names = tuple(sorted(set(classes), key=natural_order))
    number = {name: i for i, name in enumerate(names)}
    labels = torch.tensor([number[name] for name in classes], dtype=torch.int64)
    return Dataset(pictures, labels, names, **rest)


def unlabeled(pictures: Pictures, **rest: Any) -> Dataset:
    """A data set without classes.

    >>> import numpy as np
    >>> from kinspace.data.pictures import ArrayPictures
    >>> unlabeled(ArrayPictures(np.zeros((3, 8, 8), np.uint8))).num_classes
    0
    """
    return Dataset(pictures, torch.full((len(pictures),), NO_LABEL), (), **rest)


def natural_order(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """A key to sort names by: numbers in them by their value, the rest letter by letter.

    >>> sorted(["kind 10", "kind 2", "10", "2", "kind"], key=natural_order)
    ['2', '10', 'kind', 'kind 2', 'kind 10']
    """
    parts: list[str | tuple[int, str]] = []
    for place, part in enumerate(re.split(r"(\d+)", name)):  # text and numbers in turn
        digits = part.lstrip("0")
        parts.append((len(digits), digits) if place % 2 else part)
    return parts, name
