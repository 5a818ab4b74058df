"""Handwritten digits, built in: scikit-learn's 1,797 pictures of 8 x 8 pixels in 10 classes."""

from __future__ import annotations

import numpy as np
import torch

from kinspace.data.dataset import Dataset
from kinspace.data.pictures import ArrayPictures

__all__ = ["digits_dataset"]


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
