"""Pictures in any accepted form, made the input of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from kinspace._core.picture import rgb
from kinspace.data.pictures import ArrayPictures, FilePictures

__all__ = ["as_list", "network_input"]

EXPECTED = (
    "a path, a PIL image, a uint8 array (height, width) or (height, width, 3), a uint8 tensor "
    "(3, height, width), a floating point tensor (3, height, width) made by model.transform, or "
    "several of these"
)


def as_list(images: Any, *, pictures: bool = True) -> list[Any]:
    """One or many, as a list of single ones. pictures False: a tensor or array is one a row.

    >>> len(as_list("a.jpg")), len(as_list(np.zeros((8, 8, 3), np.uint8)))
    (1, 1)
    >>> len(as_list(["a.jpg", "b.jpg"])), len(as_list(torch.zeros(5, 3, 8, 8)))
    (2, 5)
    """
    if isinstance(images, (str, Path, Image.Image)):
        return [images]
    if isinstance(images, (Tensor, np.ndarray)):
        color = isinstance(images, Tensor) or images.shape[-1] == 3
        alone = images.ndim == 2 or (images.ndim == 3 and color)
        if pictures and not alone and not (images.ndim == 4 and color):
            raise ValueError(f"images: expected {EXPECTED}, got shape {tuple(images.shape)}")
        return [images] if pictures and alone else list(images)
    if isinstance(images, Iterable):
        return list(images)
    raise ValueError(f"images: expected {EXPECTED}, got {type(images).__name__}")


def network_input(image: Any, transform: Callable[[Image.Image], Tensor] | None) -> Tensor:
    """The network's input for one picture. transform None: the inputs are no pictures.

    >>> network_input(np.zeros((8, 8), np.uint8), lambda picture: torch.tensor(picture.size))
    tensor([8, 8])
    """
    if transform is None:
        if not isinstance(image, (Tensor, np.ndarray)):
            raise ValueError(
                "images: expected tensors or arrays, which this model was trained on, "
                f"got {type(image).__name__}"
            )
        return torch.as_tensor(image)
    if isinstance(image, Tensor):
        if image.ndim != 3 or len(image) != 3:
            raise ValueError(
                f"images: expected tensors (3, height, width), got {tuple(image.shape)}"
            )
        if image.is_floating_point():
            return image
        image = image.permute(1, 2, 0).cpu().numpy()
    if isinstance(image, np.ndarray):
        return transform(ArrayPictures(np.ascontiguousarray(image)[None]).read(0))
    if isinstance(image, Image.Image):
        return transform(rgb(ImageOps.exif_transpose(image)))
    if isinstance(image, (str, Path)):
        return transform(FilePictures([Path(image)]).read(0))
    raise ValueError(f"images: expected {EXPECTED}, got {type(image).__name__}")
