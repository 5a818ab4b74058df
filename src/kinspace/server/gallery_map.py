"""The map of a gallery: a position for each picture, computed once and kept in the run folder."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core.atomic_files import DAMAGED_NPZ, write_atomically
from kinspace.evaluation.similarity import nearest
from kinspace.inference.model import EmbeddingModel
from kinspace.report.map import POINTS, layout
from kinspace.server import catalog

__all__ = ["FILE", "GalleryMap", "gallery_positions", "map_positions", "saved_positions"]

FILE = "map.npz"
NEAR = 5  # rows of the sample that decide where another row is
LOWER_PRIORITY = 10  # nice value of the thread that computes the map
LOG = logging.getLogger("kinspace.server")


class GalleryMap:
    """The map as the page asks for it: ready at once if the run folder has it.

    Otherwise a thread computes it while the server answers other requests. `response` is JSON:
    {"state": "drawing"}, {"state": "failed"}, or {"state": "ready"} with the positions. status:
    called with messages for the terminal.

    >>> import kinspace
    >>> model = kinspace.load("runs/moths-nra-1")  # doctest: +SKIP
    >>> GalleryMap(model).response  # doctest: +SKIP
    b'{"state":"drawing"}'
    """

    def __init__(
        self, model: EmbeddingModel, status: Callable[[str], None] = lambda text: None
    ) -> None:
        self._model, self._status = model, status
        self._placed: tuple[tuple[str, ...], NDArray[np.float32]] | None = None  # ids, positions
        self.response = catalog.to_json({"state": "drawing"})
        saved = saved_positions(model)
        if saved is not None:
            self._set_ready(model.table.ids, saved)
            return
        # a daemon thread: stopping the server does not wait for the map
        threading.Thread(target=self._compute, name="kinspace-map", daemon=True).start()

    def update(self) -> None:
        """Place rows that are new beside their nearest; the others stay where they are."""
        if self._placed is None:
            return
        table, (ids, positions) = self._model.table, self._placed
        row_of = {name: row for row, name in enumerate(ids)}
        known = np.array([row_of.get(name, -1) for name in table.ids])
        if (known < 0).all():
            return
        placed = np.where(known[:, None] >= 0, positions[known], 0)
        there = known >= 0
        if not there.all():
            placed[~there] = _among(table.vectors[~there], table.vectors[there], placed[there])
        self._set_ready(table.ids, placed.astype(np.float32))
        _save(self._model, placed.astype(np.float32), 0, self._status)

    def _set_ready(self, ids: tuple[str, ...], positions: NDArray[np.float32]) -> None:
        self._placed = (ids, positions)
        self.response = catalog.to_json({"state": "ready"} | catalog.map_points(positions))

    def _compute(self) -> None:
        if sys.platform == "linux":  # threads have their own priority there: requests go first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWER_PRIORITY)
        try:
            ids = self._model.table.ids
            found = gallery_positions(self._model, status=self._status)
            self._set_ready(ids, found)
            if self._model.table.ids != ids:  # changed meanwhile
                self.update()
            self._status("the map is ready")
        except Exception:  # without a map everything else is still served
            LOG.exception("the map could not be computed")
            self.response = catalog.to_json({"state": "failed"})


def gallery_positions(
    model: EmbeddingModel, *, seed: int = 0, status: Callable[[str], None] = lambda text: None
) -> NDArray[np.float32]:
    """The positions of a model's gallery, from RUN/map.npz if it was made from the same vectors.

    Otherwise they are computed and written there.

    >>> import kinspace
    >>> gallery_positions(kinspace.load("runs/moths-nra-1")).shape  # doctest: +SKIP
    (5000, 2)
    """
    saved = saved_positions(model, seed=seed)
    if saved is not None:
        return saved
    status("computing the map, once; it may take a minute")
    positions = map_positions(model.table.vectors, seed=seed)
    _save(model, positions, seed, status)
    return positions


def _save(
    model: EmbeddingModel,
    positions: NDArray[np.float32],
    seed: int,
    status: Callable[[str], None],
) -> None:
    if model.folder is None:
        return

    def write(part: Path) -> None:
        with part.open("wb") as stream:
            np.savez(stream, positions=positions, of=np.array(_fingerprint(model, seed)))

    try:
        write_atomically(model.folder / FILE, write)
    except OSError as error:  # a read-only folder can be served too
        status(f"the map cannot be saved and will be computed again next time: {error}")


def saved_positions(model: EmbeddingModel, *, seed: int = 0) -> NDArray[np.float32] | None:
    """The positions in RUN/map.npz, or None if there are none for these vectors."""
    if model.folder is None:
        return None
    try:
        with np.load(model.folder / FILE, allow_pickle=False) as arrays:
            found = np.asarray(arrays["positions"], np.float32)
            same = str(arrays["of"]) == _fingerprint(model, seed)
            return found if same and found.shape == (len(model.table), 2) else None
    except DAMAGED_NPZ:
        return None  # a missing or broken file is written again


def map_positions(
    vectors: NDArray[Any], *, seed: int = 0, sample: int = POINTS
) -> NDArray[np.float32]:
    """Positions (rows, 2) between 0 and 1 by t-SNE (`report.map.layout`).

    With more than `sample` rows, t-SNE runs on a random sample of that size; each other row is put
    at the mean of its 5 nearest rows of the sample, weighted by exp(cosine / 0.1).

    >>> x = np.random.default_rng(0).standard_normal((30, 4))
    >>> map_positions(x, sample=20).shape
    (30, 2)
    """
    count = len(vectors)
    if count <= sample:
        return layout(vectors, seed=seed).astype(np.float32)
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:sample])
    others = np.setdiff1d(np.arange(count), rows)
    positions = np.empty((count, 2))
    positions[rows] = layout(vectors[rows], seed=seed)
    positions[others] = _among(vectors[others], vectors[rows], positions[rows])
    return positions.astype(np.float32)


def _among(
    vectors: NDArray[Any], placed: NDArray[Any], positions: NDArray[Any]
) -> NDArray[np.float64]:
    """Positions of vectors among others that are placed: the weighted mean of the nearest."""
    gallery, queries = torch.from_numpy(placed), torch.from_numpy(vectors)
    cosines, near = nearest(queries, min(NEAR, len(gallery)), gallery=gallery)  # (vectors, 5)
    weights = ((cosines - cosines[:, :1]) / 0.1).exp().numpy()
    weights /= weights.sum(1, keepdims=True)
    found: NDArray[np.float64] = (weights[:, :, None] * positions[near.numpy()]).sum(1)
    return found


def _fingerprint(model: EmbeddingModel, seed: int) -> str:
    vectors = np.ascontiguousarray(model.table.vectors)
    return f"{hashlib.blake2b(vectors.tobytes(), digest_size=16).hexdigest()} {seed}"
