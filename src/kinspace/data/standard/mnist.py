"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): 70,000 pictures of 28 x 28.

Both come as four idx files, plain or with .gz, in the folder or in its `raw`:

    train-images-idx3-ubyte, train-labels-idx1-ubyte        60,000, part "train"
    t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte          10,000, part "test"

An idx file is two zero bytes, the type (8: unsigned byte), the number of dimensions, each
dimension as a big-endian 32-bit integer, and the values.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kinspace.data.dataset import Dataset
from kinspace.data.pictures import ArrayPictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["fashion_mnist", "mnist", "read_idx"]

LAYOUT = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, "
    "t10k-labels-idx1-ubyte, plain or .gz"
)
MNIST = Source("mnist", "MNIST", "http://yann.lecun.com/exdb/mnist/", LAYOUT)
FASHION = Source(
    "fashion_mnist", "Fashion-MNIST", "https://github.com/zalandoresearch/fashion-mnist", LAYOUT
)
COUNTS: Counts = {"train": (60_000, 10), "test": (10_000, 10)}

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
PREFIXES = {"train": "train", "test": "t10k"}


def mnist(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """Ten handwritten digits; the published parts "train" and "test"."""
    return _load(MNIST, MNIST.find_root(root, "MNIST/raw", "raw"), DIGITS, counts)


def fashion_mnist(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """Ten kinds of clothes; the published parts "train" and "test"."""
    return _load(FASHION, FASHION.find_root(root, "FashionMNIST/raw", "raw"), CLOTHES, counts)


def _load(
    source: Source, folder: Path, class_names: Sequence[str], counts: Counts | None
) -> Dataset:
    patterns = {
        f"{part} {what}": _spellings(f"{prefix}-{what}", dimensions)
        for part, prefix in PREFIXES.items()
        for what, dimensions in (("images", 3), ("labels", 1))
    }
    files = source.find_files(folder, patterns)
    images = [read_idx(files[f"{part} images"], 3) for part in PREFIXES]
    labels = [read_idx(files[f"{part} labels"], 1) for part in PREFIXES]
    for part, drawn, numbers in zip(PREFIXES, images, labels, strict=True):
        if len(drawn) != len(numbers):
            raise ValueError(
                f"{source.title}: expected a label for each of {len(drawn):,} pictures in part "
                f"{part!r}, found {len(numbers):,}. Get it from {source.home}"
            )
    parts = [part for part, numbers in zip(PREFIXES, labels, strict=True) for _ in numbers]
    pictures = ArrayPictures(np.concatenate(images), prefix=source.name)
    return build_dataset(
        source, pictures, np.concatenate(labels).tolist(), class_names, parts, counts
    )


def _spellings(stem: str, dimensions: int) -> tuple[str, ...]:
    # the dot is in the names that some unpackers make
    plain = [f"{stem}{mark}idx{dimensions}-ubyte" for mark in "-."]
    return plain[0], f"{plain[0]}.gz", plain[1], f"{plain[1]}.gz"


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an idx file, plain or compressed."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)) or len(data) < start:
        raise ValueError(f"{path}: not an idx file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    values = np.frombuffer(data, np.uint8, offset=start)
    if values.size != np.prod(shape):
        raise ValueError(f"{path}: expected {np.prod(shape):,} values, found {values.size:,}")
    return values.reshape(shape)
