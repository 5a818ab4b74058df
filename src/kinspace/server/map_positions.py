"""Where each picture of a gallery is on its map; worked out once and kept in the run folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core.atomic_files import write_atomically
from kinspace.evaluation.neighbors import nearest
from kinspace.inference.model import Model
from kinspace.report.map import POINTS, layout

__all__ = ["FILE", "gallery_places", "kept_places", "places"]

FILE = "map.npz"
NEAR = 5  # rows of the sample that decide where another row is


def places(vectors: NDArray[Any], *, seed: int = 0, sample: int = POINTS) -> NDArray[np.float32]:
    """Places (rows, 2) in 0 .. 1 by t-SNE (`report.map.layout`).

    Of more than `sample` rows, so many drawn by the seed are laid out; each of the others is at the
    mean of its 5 nearest of these, weighted by exp(cosine / 0.1).

    >>> x = np.random.default_rng(0).standard_normal((30, 4))
    >>> places(x, sample=20).shape
    (30, 2)
    """
    count = len(vectors)
    if count <= sample:
        return layout(vectors, seed=seed).astype(np.float32)
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:sample])
    others = np.setdiff1d(np.arange(count), rows)
    found = np.empty((count, 2))
    found[rows] = layout(vectors[rows], seed=seed)
    gallery, asked = torch.from_numpy(vectors[rows]), torch.from_numpy(vectors[others])
    cosines, near = nearest(asked, NEAR, gallery=gallery)
    weights = ((cosines - cosines[:, :1]) / 0.1).exp().numpy()
    weights /= weights.sum(1, keepdims=True)
    found[others] = (weights[:, :, None] * found[rows][near.numpy()]).sum(1)
    return found.astype(np.float32)


def gallery_places(
    model: Model, *, seed: int = 0, status: Callable[[str], None] = lambda text: None
) -> NDArray[np.float32]:
    """The places of a model's gallery: those in RUN/map.npz if they are of these vectors."""
    kept = kept_places(model, seed=seed)
    if kept is not None:
        return kept
    status("drawing the map, once; it may take a minute")
    made = places(model.table.vectors, seed=seed)

    def write(part: Path) -> None:
        with part.open("wb") as stream:
            np.savez(stream, places=made, of=np.array(_mark(model, seed)))

    try:
        write_atomically(model.folder / FILE, write)
    except OSError as error:  # a folder that may only be read is served too
        status(f"the map is not kept, and drawn again the next time: {error}")
    return made


def kept_places(model: Model, *, seed: int = 0) -> NDArray[np.float32] | None:
    """Those in RUN/map.npz, or None where there are none of these vectors."""
    try:
        with np.load(model.folder / FILE, allow_pickle=False) as arrays:
            found = np.asarray(arrays["places"], np.float32)
            if str(arrays["of"]) == _mark(model, seed) and found.shape == (len(model.table), 2):
                return found
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None  # there is none, or it is broken: it is made anew
    return None


def _mark(model: Model, seed: int) -> str:
    vectors = np.ascontiguousarray(model.table.vectors)
    return f"{hashlib.blake2b(vectors.tobytes(), digest_size=16).hexdigest()} {seed}"
