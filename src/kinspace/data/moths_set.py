"""The moths as a data set: species are classes, genera their parents, attributes as drawn."""

from __future__ import annotations

from pathlib import Path

import torch

from kinspace.data.dataset import Attributes, Dataset
from kinspace.data.pictures import ArrayPictures

__all__ = ["moths_dataset"]


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
