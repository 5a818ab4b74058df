"""Any data set of (input, label) as one of ours: tables, spectra, sentences already encoded.

Its inputs take the place of pictures, so that splits, samplers and loaders work on it as they are.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import data

from kinspace.data.dataset import Dataset

__all__ = ["Samples", "from_samples"]


class Samples(Protocol):
    """A map-style data set as PyTorch has them."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """(input, label), or more after these two."""


class SampleInputs:
    """The inputs of another data set in the place of pictures."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, index: int) -> str:
        """What to call a sample."""
        return f"sample {index}"

    def read(self, index: int) -> Any:
        """The input."""
        return self._samples[index][0]

    def stamp(self, index: int) -> object:
        """Nothing is known that would tell whether a sample has changed."""
        return None


def from_samples(samples: Samples, *, name: str = "samples") -> Dataset:
    """A `Dataset` of the samples; labels are numbered anew, in their order.

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
