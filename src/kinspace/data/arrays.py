"""Pictures in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kinspace.data.dataset import Attributes, Dataset, from_names
from kinspace.data.pictures import ArrayPictures

__all__ = ["from_arrays"]


def from_arrays(
    images: NDArray[np.uint8] | Tensor,
    labels: ArrayLike | Tensor,
    class_names: Sequence[str] | None = None,
    *,
    attributes: Attributes | None = None,
    name: str = "pictures",
) -> Dataset:
    """A data set of 8-bit pictures, (pictures, height, width) gray or (..., 3) RGB.

    labels: a number or a name for each picture. With class_names, numbers are places in it;
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
