"""Batches of (images, labels, indices) for training and evaluation, on their device.

Three loaders with one interface. `CachedLoader` takes decoded pictures from a cache and crops whole
batches on the device; `PictureLoader` reads the files in each epoch, by workers, for sets too large
for a cache; `FeatureLoader` takes the features that a frozen backbone has computed. They take their
batches of indices from a batch sampler, or for an evaluation from `sequential_batches`.

The crop of a sample depends on the seed, the number of the batch since the start of the run, and
the sample: not on the worker, device or process, nor on what was drawn before. So a resumed run
has the same crops, and so have several processes:

    for images, labels, indices in loader:
        step(images, labels)
        sampler.advance()
        checkpoint["sampler"], checkpoint["loader"] = sampler.state_dict(), loader.state_dict()

A batch counts when the loop has received it; those prefetched and not received are made again.

`SampleRNG` is a counter-based generator: a hash of the words, mixed one after the other by the
finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), for all samples at once. A sample that
is twice in a process's share has two crops.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils import data

from kinspace._core import checks
from kinspace.data.cache import PictureCache
from kinspace.data.dataset import Dataset
from kinspace.data.transforms import (
    TransformSettings,
    center_crops,
    crop_batch,
    random_crops,
    to_device,
)

__all__ = [
    "Batch",
    "CachedLoader",
    "FeatureLoader",
    "IndexBatches",
    "PictureLoader",
    "SampleRNG",
    "sequential_batches",
]

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_PREFETCHED = 2  # batches on their way to the GPU while the model computes
_IN_FLIGHT = 6  # batches that are made or being worked on, at most


class SampleRNG:
    """Random numbers for the samples of each batch, and the number of batches so far.

    >>> rng = SampleRNG(seed=0)
    >>> rng.uniform(7, [5, 6], 2).round(3)
    array([[0.53 , 0.887],
           [0.022, 0.691]])
    >>> rng.uniform(7, [6], 2).round(3).ravel()
    array([0.887, 0.691])
    """

    def __init__(self, seed: int) -> None:
        self.seed = checks.integer("seed", seed, at_least=0)
        self.batches = 0

    def seeds(self, number: int, indices: Sequence[int]) -> NDArray[np.int64]:
        """A seed for each sample of the batch of that number."""
        (words,) = self._hashed(number, indices, 1) >> np.uint64(1)
        seeds: NDArray[np.int64] = words.astype(np.int64)
        return seeds

    def uniform(self, number: int, indices: Sequence[int], draws: int) -> NDArray[np.float64]:
        """(draws, samples) numbers in 0 .. 1, 1 not among them."""
        words = self._hashed(number, indices, draws) >> np.uint64(11)
        return words.astype(np.float64) * 2.0**-53

    def _hashed(self, number: int, indices: Sequence[int], draws: int) -> NDArray[np.uint64]:
        samples = np.asarray(indices, dtype=np.uint64)
        columns = np.arange(draws, dtype=np.uint64)[:, None]
        state = np.zeros((draws, len(samples)), dtype=np.uint64)
        with np.errstate(over="ignore"):  # it counts modulo 2^64
            words = (np.uint64(self.seed), np.uint64(number), samples, _repeats(samples), columns)
            for word in words:
                state = _mixed((state ^ word) + _STEP)
        return state

    def state_dict(self) -> dict[str, int]:
        """The seed and the number of batches so far."""
        return {"seed": self.seed, "batches": self.batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after that number of batches."""
        if set(state) != {"seed", "batches"}:
            raise ValueError(
                f"state_dict: expected the keys seed and batches, got {', '.join(state) or 'none'}"
            )
        self.seed, self.batches = state["seed"], state["batches"]


def _repeats(samples: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each sample, how often it occurs before this place.

    >>> _repeats(np.array([7, 3, 7, 7], dtype=np.uint64))
    array([0, 0, 1, 2], dtype=uint64)
    """
    order = np.argsort(samples, kind="stable")
    ranked = samples[order]
    places = np.arange(len(samples), dtype=np.uint64)
    first = np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(samples)]
    found = np.empty_like(places)
    found[order] = places - np.maximum.accumulate(np.where(first, places, np.uint64(0)))
    return found


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        words = (words ^ (words >> shift)) * factor
    return words ^ (words >> _SHIFTS[-1])


class Batch(NamedTuple):
    """One batch on its device."""

    images: Tensor  # (batch, 3, size, size) float32, or features (batch, features)
    labels: Tensor  # (batch,) int64
    indices: Tensor  # (batch,) int64, places in the data set


class IndexBatches(Protocol):
    """Which samples make a batch: a sampler of `kinspace.samplers`, torch's, or a list."""

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the next epoch."""

    def __len__(self) -> int:
        """How many there are."""


def sequential_batches(
    count: int, batch_size: int, *, rank: int = 0, world_size: int = 1
) -> list[list[int]]:
    """All samples in order, for an evaluation: batches of `batch_size`, the last one smaller.

    Each of several processes has a contiguous range, as in `kinspace.samplers.batch_sampler`.

    >>> sequential_batches(5, 2)
    [[0, 1], [2, 3], [4]]
    >>> sequential_batches(5, 2, rank=1, world_size=2)
    [[2, 3], [4]]
    """
    checks.integer("batch_size", batch_size, at_least=1)
    begin, end = (count * edge // world_size for edge in (rank, rank + 1))
    starts = range(begin, end, batch_size)
    return [list(range(start, min(start + batch_size, end))) for start in starts]


class CachedLoader:
    """Batches from decoded pictures: random crops in training, center crops with `train=False`.

    On a GPU the next batches are made while the model computes. A cache on the GPU,
    `cache.to("cuda")`, leaves nothing to copy.

    >>> from kinspace.data.cache import cache_in_memory
    >>> from kinspace.data.in_memory import digits_dataset
    >>> settings = TransformSettings(size=28, resize=32)
    >>> cache = cache_in_memory(digits_dataset(), settings, workers=1)
    >>> loader = CachedLoader(cache, sequential_batches(1797, 128), settings, train=False)
    >>> batch = next(iter(loader))
    >>> len(loader), batch.images.shape, batch.indices[:3]
    (15, torch.Size([128, 3, 28, 28]), tensor([0, 1, 2]))
    """

    def __init__(
        self,
        cache: PictureCache,
        batch_sampler: IndexBatches,
        settings: TransformSettings,
        *,
        train: bool = True,
        device: str | torch.device = "cpu",
        channels_last: bool = False,
        seed: int = 0,
    ) -> None:
        if (cache.resize, cache.fit) != (settings.resize, settings.fit):
            raise ValueError(
                f"settings: expected resize {cache.resize} and fit {cache.fit!r}, those of the "
                f"cache, got {settings.resize} and {settings.fit!r}"
            )
        self._cache = cache
        self._labels = cache.labels.cpu()
        self._sampler = batch_sampler
        self._settings = settings if train else settings.at_test()
        self._train = train
        self._device = _device(device)
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._rng = SampleRNG(seed)
        here = cache.pictures.device
        if here.type != "cpu" and here != self._device:
            raise ValueError(f"device: expected {here}, that of the cache, got {self._device}")

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Batch]:
        numbered = enumerate(self._sampler, self._rng.batches)
        if self._device.type == "cuda":
            batches = self._prefetch(numbered)
        else:
            batches = (self._batch(number, indices) for number, indices in numbered)
        for batch in batches:
            self._rng.batches += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The seed and the number of batches so far."""
        return self._rng.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the crops of the next batch."""
        self._rng.load_state_dict(state)

    def _batch(self, number: int, indices: list[int]) -> Batch:
        settings, count, squares = self._settings, len(indices), self._cache.pictures
        places = torch.tensor(indices)
        rows = self._cache.rows_of(places)
        if self._train:
            crops = random_crops(self._rng.uniform(number, indices, 4), settings)
        else:
            crops = center_crops(count, settings)
        labels = self._labels[places]
        if squares.device != self._device:
            squares = _pinned(squares, rows).to(self._device, non_blocking=True)
            rows = torch.arange(count)
        table = to_device(torch.stack([places, labels, rows, *crops]), self._device)  # (7, batch)
        images = crop_batch(squares, table[2], table[3:], settings, layout=self._layout)
        return Batch(images, labels=table[1], indices=table[0])

    def _prefetch(self, numbered: Iterator[tuple[int, list[int]]]) -> Iterator[Batch]:
        """Make batches in advance, on a thread and a stream of their own.

        The host may be far ahead of a busy GPU. A batch starts when the GPU has finished the one
        `_IN_FLIGHT` before it, so that no more than these take memory.
        """
        side = _side_stream(self._device)

        def make(
            number: int, indices: list[int], room: torch.cuda.Event | None
        ) -> tuple[Batch, torch.cuda.Event]:
            if room is not None:
                room.synchronize()
            with torch.cuda.stream(side):
                return self._batch(number, indices), side.record_event()

        with ThreadPoolExecutor(1, thread_name_prefix="kinspace-batches") as thread:
            waiting: deque[Future[tuple[Batch, torch.cuda.Event]]] = deque()
            used: deque[torch.cuda.Event] = deque()  # the ends of the last steps
            for number, indices in numbered:
                room = used.popleft() if len(used) >= _IN_FLIGHT - _PREFETCHED else None
                waiting.append(thread.submit(make, number, indices, room))
                if len(waiting) > _PREFETCHED:
                    yield _synchronized(*waiting.popleft().result())
                    used.append(torch.cuda.Event(blocking=True))
                    used[-1].record(torch.cuda.current_stream(self._device))
            while waiting:
                yield _synchronized(*waiting.popleft().result())


class PictureLoader:
    """Batches read from the files by workers: for sets too large for a cache.

    Seeds torch's global generator for each picture (and puts it back), so that a transform of
    torchvision's draws the same whatever the number of workers.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> from kinspace.data.transforms import train_transform
    >>> transform = train_transform(TransformSettings(size=28, resize=32))
    >>> loader = PictureLoader(digits_dataset(), [[5, 6], [7, 8]], transform)
    >>> [batch.labels.tolist() for batch in loader]
    [[5, 6], [7, 8]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_sampler: IndexBatches,
        transform: Callable[[Image.Image], Tensor],
        *,
        workers: int = 0,
        device: str | torch.device = "cpu",
        seed: int = 0,
    ) -> None:
        checks.integer("workers", workers, at_least=0)
        self._device = _device(device)
        self._rng = SampleRNG(seed)
        self._seeds = _SeededIndices(batch_sampler, self._rng)
        self._loader: data.DataLoader[Any] = data.DataLoader(
            _SeededPictures(dataset.with_transform(transform)),
            batch_sampler=self._seeds,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=self._device.type == "cuda",
            generator=torch.Generator(),  # by default each epoch would draw from the global one
        )

    def __len__(self) -> int:
        return len(self._seeds)

    def __iter__(self) -> Iterator[Batch]:
        for columns in self._loader:
            self._rng.batches += 1
            yield Batch(*(column.to(self._device, non_blocking=True) for column in columns))

    def state_dict(self) -> dict[str, int]:
        """The seed and the number of batches so far."""
        return self._rng.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the crops of the next batch."""
        self._rng.load_state_dict(state)


class FeatureLoader:
    """Batches of features that are computed once: in training a random view of each sample.

    features: (views, samples, features), the first view that of the center crop, which is the only
    one with `train=False`.

    >>> features, labels = torch.arange(6.0).reshape(1, 3, 2), torch.tensor([0, 0, 1])
    >>> batch = next(iter(FeatureLoader(features, labels, [[2, 0]])))
    >>> batch.images, batch.labels
    (tensor([[4., 5.],
            [0., 1.]]), tensor([1, 0]))
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        batch_sampler: IndexBatches,
        *,
        train: bool = True,
        seed: int = 0,
    ) -> None:
        self._features = features if train else features[:1]
        self._labels = labels.cpu()
        self._sampler = batch_sampler
        self._rng = SampleRNG(seed)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Batch]:
        device = self._features.device
        for number, indices in enumerate(self._sampler, self._rng.batches):
            places = torch.tensor(indices)
            views = torch.zeros_like(places)
            if len(self._features) > 1:
                drawn = self._rng.uniform(number, indices, 1)[0]
                views = torch.from_numpy((drawn * len(self._features)).astype("int64"))
            labels = self._labels[places]
            table = to_device(torch.stack([views, places, labels]), device)
            self._rng.batches += 1
            yield Batch(self._features[table[0], table[1]], labels=table[2], indices=table[1])

    def state_dict(self) -> dict[str, int]:
        """The seed and the number of batches so far."""
        return self._rng.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the views of the next batch."""
        self._rng.load_state_dict(state)


class _SeededIndices(data.Sampler[list[tuple[int, int]]]):
    """Batches of (index, seed): seeds are drawn in the process that counts the batches."""

    def __init__(self, batches: IndexBatches, rng: SampleRNG) -> None:
        self._batches = batches
        self._rng = rng

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for number, indices in enumerate(self._batches, self._rng.batches):
            seeds = self._rng.seeds(number, indices)
            yield list(zip(indices, seeds.tolist(), strict=True))


class _SeededPictures(data.Dataset[tuple[Any, int, int]]):
    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __getitem__(self, place: tuple[int, int]) -> tuple[Any, int, int]:
        index, seed = place
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self._dataset[index]


def _device(device: str | torch.device) -> torch.device:
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:  # tensors there have a number
        return torch.device("cuda", torch.cuda.current_device())
    return device


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all loaders, because torch reserves a stream's memory for that stream."""
    return torch.cuda.Stream(device)


def _pinned(pictures: Tensor, rows: Tensor) -> Tensor:
    """Some pictures in pinned memory, from which the GPU copies by itself."""
    staged = torch.empty((len(rows), *pictures.shape[1:]), dtype=torch.uint8, pin_memory=True)
    return torch.index_select(pictures, 0, rows, out=staged)


def _synchronized(batch: Batch, made: torch.cuda.Event) -> Batch:
    """Make the stream of the model wait for the batch."""
    stream = torch.cuda.current_stream(batch.images.device)
    stream.wait_event(made)
    for column in batch:
        column.record_stream(stream)  # its memory is not used again before this stream is done
    return batch
