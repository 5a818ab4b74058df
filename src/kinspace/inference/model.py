"""A trained model or a pretrained backbone: encode, compare, search, classify, add.

Only JSON and safetensors of a run folder are read: no file can run code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.device import cpu_count, pick_device
from kinspace._core.vectors import unit
from kinspace.data.transforms import TransformSettings, eval_transform, square_transform
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.class_evidence import CANDIDATES
from kinspace.evaluation.thresholds import (
    DEFAULT_STRANGERS,
    FEWEST_CLASSES,
    Thresholds,
    calibrate,
    held_out_rows,
)
from kinspace.inference.inputs import as_list, network_input
from kinspace.models.inference_network import inference_network
from kinspace.run import Run
from kinspace.search import Index, Where
from kinspace.search.class_votes import Added, Neighbor, Verdict, decide, nearest_class
from kinspace.search.gallery import Gallery
from kinspace.training.embedding import mean_over_views

__all__ = ["THRESHOLDS", "EmbeddingModel"]

THRESHOLDS = "thresholds.json"


@dataclass(eq=False, repr=False)
class EmbeddingModel:
    """A run folder or a pretrained backbone in memory; made by `kinspace.load` and `Run.model`.

    folder: None for a backbone. module: the network. about: what run.json says. settings: what
    becomes of a picture before the network, None where the model takes tensors. views: with more
    than one (`test.views`) a vector is the mean over this number of crops of its picture, the same
    for all. thresholds: None before `kinspace index`.

    >>> import kinspace
    >>> model = kinspace.load("runs/moths-nra-1")  # doctest: +SKIP
    >>> model.encode(["a.jpg", "b.jpg"]).shape  # doctest: +SKIP
    (2, 64)
    >>> model.classify("a.jpg").class_name  # doctest: +SKIP
    'luna'
    """

    folder: Path | None
    module: nn.Module
    about: Mapping[str, Any]
    settings: TransformSettings | None
    device: torch.device
    thresholds: Thresholds | None = None
    gallery: Gallery | None = None
    views: int = 1

    def __repr__(self) -> str:
        """In a line; `module` shows the layers."""
        there = "no" if self.gallery is None else f"{len(self.gallery.table):,}"
        method = "" if self.folder is None else f"{self.about['recipe']['name']}, "
        where = f"{method}on {self.device}, {there} pictures to search"
        return f"<EmbeddingModel {self.where}: {where}>"

    @property
    def where(self) -> str:
        """What `load` was given: the path of the run folder, or the name of the backbone."""
        return self.name if self.folder is None else str(self.folder)

    @property
    def name(self) -> str:
        """The name of the run folder, or of the backbone."""
        if self.folder is not None:
            return self.folder.resolve().name
        return str(self.about["recipe"]["model"]["backbone"])

    @property
    def run(self) -> Run:
        """The run; a ValueError for a backbone, which has none."""
        if self.folder is None:
            raise ValueError(
                f"{self.name}: expected a run folder, got a backbone; make one of your pictures: "
                f"kinspace index --backbone {self.name} DATA"
            )
        return Run(self.folder)

    @property
    def transform(self) -> Callable[[Image.Image], Tensor] | None:
        """From an upright RGB picture to what `embed_inputs` takes.

        With one view that is the network's input, with more the whole square, uint8.
        """
        if self.settings is None:
            return None
        make = eval_transform if self.views == 1 else square_transform
        transform: Callable[[Image.Image], Tensor] = make(self.settings)
        return transform

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
            make = f"kinspace index {self.folder}" if self.folder else "model.add(images)"
            raise ValueError(
                f"{self.where}: expected a gallery to search in, got none; make one with: {make}"
            )
        return self.gallery

    def encode(
        self,
        images: Any,
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        truncate_dim: int | None = None,
        progress: bool = False,
    ) -> NDArray[np.float32]:
        """Vectors of length 1, float32 (pictures, dim), of one picture or many.

        images: paths, PIL images, uint8 arrays (height, width, 3) or tensors (3, height, width).
        Floating point tensors go into the network as they are, as one view.
        device: the network goes there first, and stays; None: it stays where it is. progress:
        a bar on the terminal. A whole data set is better given to `kinspace embed`. On a CPU many
        pictures go through a faster network of the same numbers
        (`kinspace.models.inference_network`).
        """
        checks.integer("batch_size", batch_size, at_least=1)
        asked = as_list(images, pictures=self.settings is not None)
        if not asked:
            raise ValueError("images: expected at least one, got none")
        if device is not None:
            self.device = pick_device(device)
            self.module.to(self.device)
        transform = self.transform
        with ThreadPoolExecutor(min(8, cpu_count())) as readers:
            batches = (
                _stacked(list(readers.map(lambda image: network_input(image, transform), some)))
                for some in _batches(asked, batch_size, progress)
            )
            found = np.concatenate(list(self.embed_batches(batches, pictures=len(asked))))
        return found if truncate_dim is None else truncated(found, truncate_dim)

    def embed_inputs(self, inputs: Tensor) -> Tensor:
        """Vectors of length 1 of a batch that `transform` made, on the device.

        Floating point inputs go through the network once; of uint8 squares the views do.
        """
        return self._embedded(self.module, inputs.to(self.device))

    def embed_batches(
        self, batches: Iterable[Tensor], *, pictures: int
    ) -> Iterator[NDArray[np.float32]]:
        """`embed_inputs` of many batches, as arrays. pictures: how many there are in all."""
        on_device = (inputs.to(self.device) for inputs in batches)
        with inference_network(self.module, pictures=pictures * self.views) as network:
            found: Iterable[Tensor]
            if self.views == 1:
                found = (unit(vectors.float()) for vectors in network.map(on_device))
            else:
                found = (self._embedded(network, inputs) for inputs in on_device)
            for vectors in found:
                yield vectors.cpu().numpy()

    @torch.no_grad()
    def _embedded(self, network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        if self.settings is None or inputs.is_floating_point():
            return unit(network(inputs).float())
        return unit(mean_over_views(network, inputs, self.views, self.settings))

    def similarity(self, a: Any, b: Any) -> NDArray[np.float32]:
        """The cosine of each of `a` with each of `b`, (a, b).

        a, b: pictures as `encode` takes them, or vectors: floating point, (dim,) or (vectors, dim).
        A model of tensors takes its inputs alone.

        >>> model.similarity(["a.jpg", "b.jpg"], "c.jpg")  # doctest: +SKIP
        array([[0.83],
               [0.12]], dtype=float32)
        """
        found = [self._unit_vectors(each) for each in (a, b)]
        if found[0].shape[1] != found[1].shape[1]:
            raise ValueError(
                f"b: expected vectors of {found[0].shape[1]} numbers like those of a, got "
                f"{found[1].shape[1]}"
            )
        cosines: NDArray[np.float32] = found[0] @ found[1].T
        return cosines

    def _unit_vectors(self, given: Any) -> NDArray[np.float32]:
        vectors = None if self.settings is None else _as_vectors(given)
        return self.encode(given) if vectors is None else unit(vectors).numpy()

    def same(self, a: Any, b: Any, *, strangers: float | None = None) -> NDArray[np.bool_]:
        """Whether each of `a` and each of `b` are of one class, (a, b), by their cosine alone.

        a, b: as for `similarity`. strangers: the share of the pairs of two classes that may be
        taken for one; None: the dial of the thresholds.

        >>> model.same("a.jpg", ["b.jpg", "c.jpg"])  # doctest: +SKIP
        array([[ True, False]])
        """
        limit = self._calibrated().at(strangers).cosine
        found: NDArray[np.bool_] = self.similarity(a, b) >= limit
        return found

    def _calibrated(self) -> Thresholds:
        if self.thresholds is None:
            raise ValueError(
                f"{self.where}: expected thresholds, got none; they need {FEWEST_CLASSES} classes "
                f"in the gallery, and are set by: kinspace index {self.where}"
            )
        return self.thresholds

    def calibrate(self, strangers: float | None = None) -> Thresholds | None:
        """Set the thresholds on the gallery as it is now; None where it has too few classes.

        They are set on the classes that the network was not trained on, each left out of the
        gallery in turn; where these are too few, on all. Of a network that was trained on all
        classes (`kinspace train --final`) they are those of the run that left some for a test.
        strangers: the dial, the share of strangers that may get through; None: as before. To be
        called after many pictures or classes were added; `save_gallery` makes it lasting.
        """
        if strangers is None:
            strangers = DEFAULT_STRANGERS if self.thresholds is None else self.thresholds.strangers
        table, trained = self.table, frozenset[str]()
        if self.folder is not None:
            judge = self.run.evaluated_by
            if judge is not None:
                table = judge.embeddings("all", device=self.device)
            trained = (judge or self.run).trained_classes
        held_out = held_out_rows(table, trained)
        self.thresholds = calibrate(table, held_out, strangers=strangers)
        return self.thresholds

    def search(
        self,
        image: Any,
        k: int = 10,
        *,
        where: Where | None = None,
        strangers: float | None = None,
    ) -> list[Neighbor]:
        """The k pictures of the gallery nearest to one picture, nearest first.

        where: only among those that fit, {"class": "luna"} or {"class": ["io", "luna"],
        "striped": True}. strangers: the dial, as for `classify`, which decides `Neighbor.same`.
        """
        return self.near(self._one(image), k, where=where, strangers=strangers)

    def neighbors(self, picture: str | int, k: int = 10) -> list[Neighbor]:
        """The k other pictures nearest to one of the gallery, by its id or row.

        `same` says whether they have its label.
        """
        gallery = self._gallery()
        row, labels = gallery.row_of(picture), gallery.table.labels
        found = gallery.ranked(self.table.vectors[row], k + 1)
        return [
            each if labels is None else replace(each, same=each.label == labels[row])
            for each in found
            if each.row != row
        ][:k]

    def near(
        self,
        vector: NDArray[Any],
        k: int = 10,
        *,
        where: Where | None = None,
        strangers: float | None = None,
    ) -> list[Neighbor]:
        """The k pictures of the gallery nearest to a vector (dim,).

        Of a longer vector than the gallery has only the first numbers count.
        """
        gallery = self._gallery()
        vector = self._as_in_gallery(np.asarray(vector)[None])[0]
        if self.thresholds is None or gallery.table.labels is None:
            return gallery.ranked(vector, k, where)
        verdict = self.classify_vector(vector, k, strangers=strangers)
        if where is None:
            return list(verdict.neighbors)
        return [
            replace(each, same=each.class_name == verdict.class_name)
            for each in gallery.ranked(vector, k, where)
        ]

    def classify(self, image: Any, k: int = 10, *, strangers: float | None = None) -> Verdict:
        """The class of one picture, or "unknown".

        The class is that of the most evidence: its nearest pictures, at most five, are the most
        similar on average; a picture that is in the gallery is of its class. Where the run was
        trained with clusters (Magnet), those of the gallery's classes find it. It does not depend
        on k, the number of neighbors in the answer.

        strangers: the dial, from 0.001 (strict) to 0.5 (lenient): the share of pictures of classes
        that the gallery does not have which may get a class. None: that of the thresholds. Without
        thresholds nothing is unknown.
        """
        return self.classify_vector(self._one(image), k, strangers=strangers)

    def classify_vector(
        self, vector: NDArray[Any], k: int = 10, *, strangers: float | None = None
    ) -> Verdict:
        """The same of a vector (dim,), as `encode` makes them."""
        gallery = self._gallery()
        vector = self._as_in_gallery(np.asarray(vector)[None])[0]
        near = gallery.near(vector, max(checks.integer("k", k, at_least=1), CANDIDATES))
        index, chosen = self.about["recipe"].get("index"), None
        if index is not None:
            chosen, _ = gallery.knc(vector, index)
        verdict = decide(near, gallery.class_sizes, self.thresholds, strangers, chosen=chosen)
        if gallery.rerank == "none":
            return replace(verdict, neighbors=verdict.neighbors[:k])
        shown = map(verdict.marked, gallery.ranked(vector, k))
        return replace(verdict, neighbors=tuple(shown))

    def add(self, images: Any, labels: str | Sequence[str] | None = None) -> list[Added]:
        """Put pictures into the gallery, of new classes too, without training.

        labels: the class name of each picture, or one for all; None where the gallery has no
        classes. Says for each class which other one is nearest and whether the two are confusable.
        In a run folder the pictures are on the disk when this returns, in the journal of the
        gallery. The first pictures given to a backbone are its gallery.
        """
        asked = as_list(images, pictures=self.settings is not None)
        names = None if labels is None else _class_names(labels, len(asked))
        paths = [
            str(Path(image).absolute()) if isinstance(image, (str, Path)) else None
            for image in asked
        ]
        if self.gallery is None and self.folder is None:
            first = Gallery.of_pictures(self.encode(asked), names, paths, device=self.device)
            self.gallery = first
            counts = Counter(names or ())
            return [Added(name, n, True, None, None, None) for name, n in counts.items()]
        vectors = self._as_in_gallery(self.encode(asked))
        return self._gallery().add(vectors, names, paths, self.thresholds)

    def nearest_classes(
        self, before: EmbeddingTable, vectors: NDArray[Any], names: Sequence[str]
    ) -> tuple[Added, ...]:
        """What vectors with class names add to a gallery, by class; see `Added`."""
        classes = np.array(names)
        return tuple(
            nearest_class(before, name, vectors[classes == name], self.thresholds)
            for name in dict.fromkeys(names)
        )

    def remove(self, pictures: Sequence[str | int]) -> int:
        """Take pictures out of the gallery, by id, row or file; returns how many there were."""
        return self._gallery().remove(self._gallery().find(pictures))

    def relabel(self, pictures: Sequence[str | int], class_name: str) -> int:
        """Give pictures of the gallery another class, or a new one; returns how many changed."""
        return self._gallery().relabel(self._gallery().find(pictures), class_name)

    def save_gallery(self) -> None:
        """Write the gallery to the run folder as one file, with what its journal has.

        Its thresholds are written too.
        """
        self._gallery().save(self.run.folder)
        self.save_thresholds()

    def save_thresholds(self) -> None:
        """Write the thresholds to the run folder, or remove the file where there are none."""
        file = self.run.folder / THRESHOLDS
        if self.thresholds is None:
            file.unlink(missing_ok=True)
        else:
            self.thresholds.save(file)

    def _as_in_gallery(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """The vectors, truncated where those of the gallery are."""
        dim = self.table.dim
        return truncated(vectors, dim) if vectors.shape[1] > dim else vectors

    def _one(self, image: Any) -> NDArray[np.float32]:
        vectors = self.encode(image)
        if len(vectors) != 1:
            raise ValueError(f"image: expected one picture, got {len(vectors)}")
        one: NDArray[np.float32] = vectors[0]
        return one


def _class_names(labels: str | Sequence[str], count: int) -> list[str]:
    """A class name for each of `count` pictures."""
    names = [labels] * count if isinstance(labels, str) else list(labels)
    if len(names) != count or not all(isinstance(name, str) and name for name in names):
        raise ValueError(
            f"labels: expected {count} class names, one a picture, or one for all, got {labels!r}"
        )
    return names


def _as_vectors(given: Any) -> Tensor | None:
    """Floating point vectors as (vectors, dim); None if it is something else."""
    if isinstance(given, (list, tuple)) and given:
        rows = [_as_vectors(each) for each in given]
        if any(row is None or len(row) != 1 for row in rows):
            return None
        return torch.cat([row for row in rows if row is not None])
    if not isinstance(given, (Tensor, np.ndarray)):
        return None
    vectors = torch.as_tensor(given)
    if not vectors.is_floating_point() or vectors.ndim not in (1, 2):
        return None
    return vectors.detach().cpu().float().reshape(-1, vectors.shape[-1])


def truncated(vectors: NDArray[Any], dim: int) -> NDArray[np.float32]:
    """The first `dim` numbers of each vector, at length 1.

    >>> truncated(np.array([[3.0, 4.0, 12.0]]), 2)
    array([[0.6, 0.8]], dtype=float32)
    """
    found: NDArray[np.float32] = EmbeddingTable(vectors).truncated(dim).vectors.astype(np.float32)
    return found


def _stacked(inputs: list[Tensor]) -> Tensor:
    if len(shapes := {tuple(each.shape) for each in inputs}) > 1:
        raise ValueError(f"images: expected inputs of one shape, got {sorted(shapes)}")
    if len(kinds := {each.dtype for each in inputs}) > 1:
        raise ValueError(f"images: expected inputs of one type, got {sorted(map(str, kinds))}")
    return torch.stack(inputs)


def _batches(asked: list[Any], size: int, progress: bool) -> Iterator[list[Any]]:
    starts: Any = range(0, len(asked), size)
    if progress:
        from rich.progress import track

        starts = track(starts, "embedding", total=math.ceil(len(asked) / size), transient=True)
    for at in starts:
        yield asked[at : at + size]
