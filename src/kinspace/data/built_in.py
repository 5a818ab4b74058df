"""The built-in data sets: handwritten digits, and moths that are drawn.

The digits are scikit-learn's 1,797 pictures of 8 x 8 pixels in 10 classes. Of the moths, species
are classes, genera their parents, and the attributes are those they are drawn with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from kinspace.data.dataset import Attributes, Dataset
from kinspace.data.pictures import ArrayPictures

__all__ = ["BUILT_IN_SETS", "digits_dataset", "moths_dataset"]


def digits_dataset() -> Dataset:
    """The digits as gray pictures, 0 black and 255 white.

    >>> digits = digits_dataset()
    >>> len(digits), digits.num_classes, digits[0][0].size
    (1797, 10, (8, 8))
    """
    from sklearn.datasets import load_digits  # takes a second or two to import

    bunch = load_digits()
    images = (bunch.images * (255 / 16)).round().astype(np.uint8)  # from 0 .. 16
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    names = tuple(str(digit) for digit in range(10))
    return Dataset(ArrayPictures(images, prefix="digit"), labels, names, name="digits")


def moths_dataset(
    cache: str | Path | None = None,
    *,
    species: int = 120,
    per_species: int = 40,
    size: int = 96,
    seed: int = 0,
    workers: int | None = None,
) -> Dataset:
    """Moths drawn once, kept in a cache folder, and read from it after that.

    The options are those of `kinspace.data.moths.load_moths`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     moths = moths_dataset(folder, species=5, per_species=2)
    >>> len(moths), moths.class_names[0], moths.parent_names[moths.parents[0]]
    (10, 'Noctarula vespera', 'Noctarula')
    """
    from kinspace.data.moths import load_moths

    moths = load_moths(
        cache, species=species, per_species=per_species, size=size, seed=seed, workers=workers
    )
    genera = tuple(dict.fromkeys(moths.genera))
    number = {genus: i for i, genus in enumerate(genera)}
    values = torch.from_numpy(moths.attributes).to(torch.float32)
    return Dataset(
        ArrayPictures(moths.images, prefix="moth"),
        torch.from_numpy(moths.labels),
        moths.class_names,
        attributes=Attributes(tuple(moths.attribute_names), values),
        parents=tuple(number[genus] for genus in moths.genera),
        parent_names=genera,
        name="moths",
    )


BUILT_IN_SETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits_dataset,
    "moths": moths_dataset,
}
