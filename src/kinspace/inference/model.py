"""A trained model at work: encode, search, classify, add."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.cpus import cpu_count
from kinspace._core.device import pick_device
from kinspace._core.normalization import unit
from kinspace.data.transforms import TransformSettings, eval_transform
from kinspace.embeddings import EmbeddingTable
from kinspace.inference.inputs import listed, prepared
from kinspace.search import Index, Where
from kinspace.search.answers import UNKNOWN, Added, Neighbor, Verdict
from kinspace.search.gallery import Gallery
from kinspace.search.thresholds import Thresholds

__all__ = ["Model"]


@dataclass(eq=False, repr=False)
class Model:
    """A run folder in memory; made by `kinspace.load`.

    module: the network. about: what run.json says. settings: what becomes of a picture before the
    network, None where the model takes tensors. thresholds: None before `kinspace index`.

    >>> import kinspace
    >>> model = kinspace.load("runs/moths-nra-1")  # doctest: +SKIP
    >>> model.encode(["a.jpg", "b.jpg"]).shape  # doctest: +SKIP
    (2, 64)
    >>> model.classify("a.jpg").class_name  # doctest: +SKIP
    'luna'
    """

    folder: Path
    module: nn.Module
    about: Mapping[str, Any]
    settings: TransformSettings | None
    device: torch.device
    thresholds: Thresholds | None = None
    gallery: Gallery | None = None

    def __repr__(self) -> str:
        """In a line; `module` shows the layers."""
        there = "no" if self.gallery is None else f"{len(self.gallery.table):,}"
        method = self.about["recipe"]["name"]
        return f"<Model {self.folder}: {method}, on {self.device}, {there} pictures to search>"

    @property
    def transform(self) -> Callable[[Image.Image], Tensor] | None:
        """From an upright RGB picture to the network's input."""
        return None if self.settings is None else eval_transform(self.settings)

    @property
    def table(self) -> EmbeddingTable:
        """The gallery: vectors, classes, names and attributes of its pictures."""
        return self._gallery().table

    @property
    def index(self) -> Index:
        """The gallery as it is searched; ids are rows of the table."""
        return self._gallery().index

    def _gallery(self) -> Gallery:
        if self.gallery is None:
            raise ValueError(
                f"{self.folder}: expected a gallery to search in, got none; make one with: "
                f"kinspace index {self.folder}"
            )
        return self.gallery

    @torch.no_grad()
    def encode(
        self,
        images: Any,
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> NDArray[np.float32]:
        """Vectors of length 1, float32 (pictures, dim), of one picture or many.

        images: paths, PIL images, uint8 arrays (height, width, 3) or tensors (3, height, width).
        Floating point tensors go into the network as they are: `model.transform` makes them.
        device: the network goes there first, and stays; None: it is where it should be. progress:
        a bar on the terminal. A whole data set is better given to `kinspace embed`.
        """
        checks.integer("batch_size", batch_size, at_least=1)
        asked = listed(images, pictures=self.settings is not None)
        if not asked:
            raise ValueError("images: expected at least one, got none")
        if device is not None:
            self.device = pick_device(device)
            self.module.to(self.device)
        transform = self.transform
        rows = []
        with ThreadPoolExecutor(min(8, cpu_count())) as readers:
            for some in _batches(asked, batch_size, progress):
                inputs = list(readers.map(lambda image: prepared(image, transform), some))
                rows.append(self.embed_inputs(_stacked(inputs)).cpu().numpy())
        return np.concatenate(rows)

    @torch.no_grad()
    def embed_inputs(self, inputs: Tensor) -> Tensor:
        """Vectors of length 1 of a batch of the network's inputs, on the device."""
        return unit(self.module(inputs.to(self.device)).float())

    def search(self, image: Any, k: int = 10, *, where: Where | None = None) -> list[Neighbor]:
        """The k pictures of the gallery nearest to one picture, nearest first.

        where: only among those that fit, {"class": "luna"} or {"class": ["io", "luna"],
        "striped": True}.
        """
        return self.near(self._one(image), k, where=where)

    def neighbors(self, picture: str | int, k: int = 10) -> list[Neighbor]:
        """The k other pictures nearest to one of the gallery, by its id or row."""
        row = self._gallery().row_of(picture)
        found = self.near(self.table.vectors[row], k + 1)
        return [neighbor for neighbor in found if neighbor.row != row][:k]

    def near(
        self, vector: NDArray[Any], k: int = 10, *, where: Where | None = None
    ) -> list[Neighbor]:
        """The k pictures of the gallery nearest to a vector (dim,)."""
        same = None if self.thresholds is None else self.thresholds.same
        return self._gallery().near(vector, k, where, same)

    def classify(self, image: Any, k: int = 10) -> Verdict:
        """The class of one picture, or "unknown".

        By soft votes of its k nearest, or of the clusters of the gallery's classes where the run
        was trained with clusters (Magnet). Unknown where not even the nearest picture is as similar
        as the threshold `known`; without thresholds nothing is unknown.
        """
        return self.classify_vector(self._one(image), k)

    def classify_vector(self, vector: NDArray[Any], k: int = 10) -> Verdict:
        """The same of a vector (dim,), as `encode` makes them."""
        gallery = self._gallery()
        near = self.near(vector, k)
        index = self.about["recipe"].get("index")
        best, share = gallery.soft_knn(near) if index is None else gallery.knc(vector, index)
        limit = None if self.thresholds is None else self.thresholds.known
        known = limit is None or near[0].similarity >= limit
        return Verdict(best if known else UNKNOWN, share, best, near[0].similarity, tuple(near))

    def add(self, images: Any, labels: str | Sequence[str]) -> list[Added]:
        """Put pictures into the gallery, of new classes too, without training.

        labels: the class name of each picture, or one for all. Says for each class which other one
        is nearest and whether the two are confusable. `save_gallery` makes it lasting.
        """
        asked = listed(images, pictures=self.settings is not None)
        names = [labels] * len(asked) if isinstance(labels, str) else list(labels)
        if len(names) != len(asked) or not all(isinstance(name, str) and name for name in names):
            raise ValueError(
                f"labels: expected {len(asked)} class names, one a picture, or one for all, "
                f"got {labels!r}"
            )
        paths = [str(image) if isinstance(image, (str, Path)) else None for image in asked]
        limit = None if self.thresholds is None else self.thresholds.known
        return self._gallery().add(self.encode(asked), names, paths, limit)

    def save_gallery(self) -> None:
        """Write the gallery, with what was added, to the run folder."""
        self._gallery().save(self.folder)

    def _one(self, image: Any) -> NDArray[np.float32]:
        vectors = self.encode(image)
        if len(vectors) != 1:
            raise ValueError(f"image: expected one picture, got {len(vectors)}")
        one: NDArray[np.float32] = vectors[0]
        return one


def _stacked(inputs: list[Tensor]) -> Tensor:
    if len(shapes := {tuple(each.shape) for each in inputs}) > 1:
        raise ValueError(f"images: expected inputs of one shape, got {sorted(shapes)}")
    return torch.stack(inputs)


def _batches(asked: list[Any], size: int, progress: bool) -> Iterator[list[Any]]:
    starts: Any = range(0, len(asked), size)
    if progress:
        from rich.progress import track

        starts = track(starts, "embedding", total=math.ceil(len(asked) / size), transient=True)
    for at in starts:
        yield asked[at : at + size]
