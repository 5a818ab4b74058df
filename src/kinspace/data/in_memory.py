"""Data sets in memory: from arrays of pictures, from a map-style data set, and the built-in ones.

The inputs of a map-style data set of (input, label), rows of a table, spectra, encoded sentences,
take the place of pictures, so that splits, samplers and loaders work on them as they are.

Built in are handwritten digits, scikit-learn's 1,797 pictures of 8 x 8 pixels in 10 classes, and
moths that are drawn: species are classes, genera their parents, and the attributes are those they
are drawn with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils import data

from kinspace.data.dataset import Attributes, Dataset, from_names
from kinspace.data.pictures import ArrayPictures

__all__ = [
    "BUILT_IN_SETS",
    "SampleInputs",
    "Samples",
    "digits_dataset",
    "from_arrays",
    "from_samples",
    "moths_dataset",
]


def from_arrays(
    images: NDArray[np.uint8] | Tensor,
    labels: ArrayLike | Tensor,
    class_names: Sequence[str] | None = None,
    *,
    attributes: Attributes | None = None,
    name: str = "pictures",
) -> Dataset:
    """A data set of 8-bit pictures, (pictures, height, width) gray or (..., 3) RGB.

    labels: a number or a name for each picture. With class_names, numbers index it;
    without, every number that occurs is a class, in the order of the numbers.

    >>> from_arrays(np.zeros((3, 8, 8), np.uint8), [7, 3, 7]).class_names
    ('3', '7')
    >>> from_arrays(np.zeros((2, 8, 8), np.uint8), [1, 0], ["io", "luna"]).labels
    tensor([1, 0])
    >>> from_arrays(np.zeros((2, 8, 8), np.uint8), ["luna", "io"]).labels
    tensor([1, 0])
    """
    pictures = ArrayPictures(np.asarray(images))
    values = np.asarray(labels)
    if values.shape != (len(pictures),) or values.dtype.kind not in "iuUT":
        raise ValueError(
            f"labels: expected {len(pictures)} whole numbers or names, one for each picture, "
            f"got {values.dtype} {values.shape}"
        )
    if values.dtype.kind in "UT":
        if class_names is not None:
            raise ValueError(
                f"labels: expected numbers together with class_names, got names such as "
                f"{str(values[0])!r}; leave class_names out"
            )
        return from_names(pictures, [str(v) for v in values], attributes=attributes, name=name)
    numbers = torch.from_numpy(values.astype(np.int64))
    if class_names is None:
        kept, numbers = numbers.unique(return_inverse=True)
        class_names = [str(number) for number in kept.tolist()]
    return Dataset(pictures, numbers, tuple(class_names), attributes=attributes, name=name)


class Samples(Protocol):
    """A map-style data set, as in PyTorch."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """(input, label), or more after these two."""


class SampleInputs:
    """The inputs of another data set, in place of pictures."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, index: int) -> str:
        """The name of a sample."""
        return f"sample {index}"

    def read(self, index: int) -> Any:
        """The input."""
        return self._samples[index][0]

    def stamp(self, index: int) -> object:
        """None: a change of a sample is not detected."""
        return None


def from_samples(samples: Samples, *, name: str = "samples") -> Dataset:
    """A `Dataset` of the samples; classes are the labels in rising order.

    Labels are taken from the attribute `labels` or `targets`, from the second tensor of a
    TensorDataset, or else by reading every sample once.

    >>> dataset = from_samples(data.TensorDataset(torch.randn(4, 3), torch.tensor([7, 5, 7, 5])))
    >>> dataset.labels, dataset.class_names
    (tensor([1, 0, 1, 0]), ('5', '7'))
    """
    values = _labels(samples)
    if values.ndim != 1 or len(values) != len(samples) or values.is_floating_point():
        raise ValueError(
            f"labels: expected one whole number for each of {len(samples)} samples, got "
            f"{values.dtype} of shape {tuple(values.shape)}"
        )
    present, labels = values.unique(return_inverse=True)
    names = tuple(str(value) for value in present.tolist())
    return Dataset(SampleInputs(samples), labels, names, name=name)  # type: ignore[arg-type]


def _labels(samples: Samples) -> Tensor:
    if isinstance(samples, data.TensorDataset) and len(samples.tensors) > 1:
        return samples.tensors[1].cpu()
    for attribute in ("labels", "targets"):
        if (found := getattr(samples, attribute, None)) is not None:
            return torch.as_tensor(found).cpu()
    return torch.tensor([int(samples[index][1]) for index in range(len(samples))])


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
    pictures = ArrayPictures(images, prefix="digit")
    return Dataset(pictures, labels, names, name="digits", standard=True)


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
        standard=True,
    )


BUILT_IN_SETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits_dataset,
    "moths": moths_dataset,
}
