"""A set of photos in files, and the settings of their caches."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from kinspace.data.dataset import Dataset, from_names
from kinspace.data.pictures import FilePictures
from kinspace.data.transforms import Square, TransformSettings

COUNT = 24
SETTINGS = TransformSettings(size=28, resize=32)


def write_photos(folder: Path) -> Dataset:
    """Pictures of several sizes, three classes."""
    random = np.random.default_rng(0)
    folder.mkdir()
    paths = [folder / f"photo {number:02}.png" for number in range(COUNT)]
    for number, path in enumerate(paths):
        shape = (20 + number, 60 - number, 3)
        Image.fromarray(random.integers(256, size=shape, dtype=np.uint8)).save(path)
    names = [("io", "luna", "polyphemus")[number % 3] for number in range(COUNT)]
    return from_names(FilePictures(paths, root=folder), names)


def path_of(photos: Dataset, index: int) -> Path:
    assert isinstance(photos.pictures, FilePictures)
    return photos.pictures.path(index)


def squares_of(photos: Dataset, fit: str = "squash") -> Tensor:
    square = Square(32, fit)
    return torch.stack([tv.pil_to_tensor(square(photos.pictures.read(i))) for i in range(COUNT)])
