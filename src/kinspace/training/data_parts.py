"""The parts of a data set that a training uses: split, checked and cached.

Every picture is read before the first step. Pictures that cannot be read are an error that lists
all of them; with `skip_bad` they are left out, and run.json lists them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core.device import cpu_count
from kinspace.data import (
    Dataset,
    PictureCache,
    Split,
    TransformSettings,
    UnreadablePictures,
    cache_in_memory,
    cache_on_disk,
    check,
    drop_unreadable,
    hold_out_classes,
    official,
    random_classes,
    require_readable,
    stratified,
    zero_shot,
)
from kinspace.data.dataloader import (
    Batch,
    CachedLoader,
    FeatureLoader,
    IndexBatches,
    PictureLoader,
    sequential_batches,
)
from kinspace.data.in_memory import SampleInputs
from kinspace.data.transforms import eval_transform, square_transform, train_transform
from kinspace.distributed import rank, world_size
from kinspace.recipes.schema import SPLITS
from kinspace.training.settings import RunSettings

__all__ = [
    "DataPart",
    "DataParts",
    "embedding_dim",
    "prepare",
    "split_for",
    "split_names",
    "unread_parts",
]

_TEST_FRACTION = 0.25  # of each class's pictures, in a stratified split


@dataclass(frozen=True, eq=False)
class DataPart:
    """A part of the data and the way it is read: from a cache, or from files by worker processes.

    settings: of the transform; None for inputs that are tensors already. features: of a frozen
    backbone, (views, samples, features), on the device: these are the inputs then, and the
    pictures are not read.
    """

    dataset: Dataset
    settings: TransformSettings | None
    device: torch.device
    cache: PictureCache | None = None
    workers: int = 0
    channels_last: bool = False
    features: Tensor | None = None

    def part(self, dataset: Dataset) -> DataPart:
        """A part of this part, with the same cache."""
        cache = None if self.cache is None else self.cache.part(dataset, self.dataset)
        features = self.features
        if features is not None:
            features = features[:, dataset.indices_in(self.dataset).to(features.device)]
        return replace(self, dataset=dataset, cache=cache, features=features)

    def batches(
        self, batches: IndexBatches, *, train: bool, seed: int = 0
    ) -> CachedLoader | PictureLoader | FeatureLoader:
        """A loader of these batches of indices; train: with random crops."""
        if self.features is not None:
            labels = self.dataset.labels
            return FeatureLoader(self.features, labels, batches, train=train, seed=seed)
        if self.cache is not None and self.settings is not None:
            return CachedLoader(
                self.cache,
                batches,
                self.settings,
                train=train,
                device=self.device,
                channels_last=self.channels_last,
                seed=seed,
            )
        transform: Any = None
        if self.settings is not None:
            transform = (train_transform if train else eval_transform)(self.settings)
        return PictureLoader(
            self.dataset, batches, transform, workers=self.workers, device=self.device, seed=seed
        )

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """This process's share of all samples, in their order."""
        yield from self.batches(self._own_share(batch_size), train=False)

    def squares(self, batch_size: int) -> Iterator[Tensor]:
        """The same share as uint8 squares on the device, before the crop."""
        assert self.settings is not None  # `DataParts.require_views` checks it
        batches = self._own_share(batch_size)
        if self.cache is not None:
            for batch in batches:
                yield self.cache.squares(batch).to(self.device)
        else:
            whole = square_transform(self.settings)
            for loaded in PictureLoader(
                self.dataset, batches, whole, workers=self.workers, device=self.device
            ):
                yield loaded.images

    def _own_share(self, batch_size: int) -> list[list[int]]:
        return sequential_batches(
            len(self.dataset), batch_size, rank=rank(), world_size=world_size()
        )


@dataclass(frozen=True, eq=False)
class DataParts:
    """The parts to train on, to choose the model by, and to test on; the unreadable pictures."""

    train: DataPart
    validation: DataPart | None
    test: DataPart | None
    skipped: tuple[tuple[str, str], ...] = ()  # name and reason

    def require_views(self, views: int) -> None:
        """Check that inputs are pictures, if the test takes several views; a ValueError if not."""
        if views > 1 and self.train.settings is None:
            raise ValueError(f"test.views: expected 1, inputs are no pictures, got {views}")

    def to_dict(self) -> dict[str, Any]:
        """Classes and number of pictures of each part, and what was left out, for run.json."""
        datasets = {name: part.dataset for name, part in self.by_name().items()}
        return {
            "classes": {name: list(dataset.class_names) for name, dataset in datasets.items()},
            "pictures": {name: len(dataset) for name, dataset in datasets.items()},
            "skipped": [list(bad) for bad in self.skipped],
        }

    def by_name(self) -> dict[str, DataPart]:
        """The parts that exist, by their names."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}


def prepare(
    dataset: Dataset,
    split: str,
    transform: TransformSettings,
    settings: RunSettings,
    *,
    validation: float,
) -> DataParts:
    """Read all pictures, and split the data set into parts (see the module's docstring)."""
    device = settings.on_device()
    if isinstance(dataset.pictures, SampleInputs):
        return _parts(dataset, split, settings, validation, DataPart(dataset, None, device))
    skipped: tuple[tuple[str, str], ...] = ()
    try:
        cache = _cache(dataset, transform, settings, device)
    except UnreadablePictures as error:
        if not settings.skip_bad:
            raise
        skipped = tuple((bad.name, bad.reason) for bad in error.bad.values())
        dataset = drop_unreadable(dataset, error)
        cache = _cache(dataset, transform, settings, device)
    whole = DataPart(
        dataset,
        transform,
        device,
        cache,
        workers=_workers(settings),
        channels_last=settings.channels_last,
    )
    return _parts(dataset, split, settings, validation, whole, skipped)


def unread_parts(
    dataset: Dataset, split: str, transform: TransformSettings, settings: RunSettings
) -> DataParts:
    """The parts without a look at the pictures, for features of them that are there already."""
    device = settings.on_device()
    inputs = isinstance(dataset.pictures, SampleInputs)
    whole = DataPart(
        dataset, None if inputs else transform, device, workers=0 if inputs else _workers(settings)
    )
    return _parts(dataset, split, settings, 0.0, whole)


def _parts(
    dataset: Dataset,
    name: str,
    settings: RunSettings,
    validation: float,
    whole: DataPart,
    skipped: tuple[tuple[str, str], ...] = (),
) -> DataParts:
    train, held_out, test = split_names(dataset, name, validation=validation, seed=settings.seed)
    return DataParts(
        whole.part(train),
        None if held_out is None else whole.part(held_out),
        None if test is None else whole.part(test),
        skipped,
    )


def split_for(dataset: Dataset, name: str) -> str:
    """The split that "auto" stands for; any other as it is.

    >>> from kinspace.data import digits_dataset
    >>> split_for(digits_dataset(), "auto"), split_for(digits_dataset(), "all")
    ('zero_shot', 'all')
    """
    if name != "auto":
        return name
    if not dataset.standard:
        return "random_classes"
    return "official" if _has_classes_to_test(dataset) else "zero_shot"


def _has_classes_to_test(dataset: Dataset) -> bool:
    """Whether the official parts test on classes of their own, other than the second half.

    So it is with Stanford Online Products, In-Shop Clothes and Omniglot: half of their classes are
    not the published training classes.
    """
    if dataset.parts is None or dataset.num_classes < 2:
        return False
    trains = torch.tensor([part in ("train", "val") for part in dataset.parts])
    trained, tested = dataset.labels[trains].unique(), dataset.labels[~trains].unique()
    if not len(trained) or not len(tested) or bool(torch.isin(trained, tested).any()):
        return False
    first_half: list[int] = list(range((dataset.num_classes + 1) // 2))
    return bool(trained.tolist() != first_half)


def split_names(
    dataset: Dataset, name: str, *, validation: float, seed: int
) -> tuple[Dataset, Dataset | None, Dataset | None]:
    """The train, validation (or None) and test (or None) part, by the name of a split.

    zero_shot: train on the first half of the classes, test on the others. random_classes: the same
    with classes drawn by the seed. official: the parts of the data set. stratified: test on a
    quarter of each class's pictures. all: no test part. The validation classes are a fraction of
    the training classes, at least two of them.

    >>> from kinspace.data import digits_dataset
    >>> parts = split_names(digits_dataset(), "zero_shot", validation=0.4, seed=0)
    >>> [part.num_classes for part in parts]
    [3, 2, 5]
    """
    test: Dataset | None = None
    train, name = dataset, split_for(dataset, name)
    if name == "zero_shot":
        train, test = _both(zero_shot(dataset))
    elif name == "random_classes":
        train, test = _both(random_classes(dataset, seed=seed))
    elif name == "official":
        train, test = _both(official(dataset))
    elif name == "stratified":
        train, test = _both(stratified(dataset, _TEST_FRACTION, seed=seed))
    elif name != "all":
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {name!r}")
    if not validation or train.num_classes < 4:
        return train, None, test
    fraction = max(validation, 2 / train.num_classes)
    inner = hold_out_classes(train, fraction, seed=seed)
    return inner.train, inner.validation, test


def embedding_dim(model: nn.Module, part: DataPart) -> int:
    """The dimension of the model's embeddings, by embedding two samples."""
    model.to(part.device).eval()
    batch = next(part.in_order(2))
    with torch.no_grad():
        vectors = model(batch.images)
    if not isinstance(vectors, Tensor) or vectors.ndim != 2:
        came = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
        raise ValueError(f"model: expected vectors (batch, dim), got {came}")
    return int(vectors.shape[1])


def _both(split: Split) -> tuple[Dataset, Dataset]:
    return split.train, split.test


def _workers(settings: RunSettings) -> int:
    if settings.workers is not None:
        return settings.workers
    return min(8, cpu_count())


def _cache(
    dataset: Dataset, transform: TransformSettings, settings: RunSettings, device: torch.device
) -> PictureCache | None:
    needed = len(dataset) * 3 * transform.resize**2
    where = settings.cache
    readers = None if settings.workers is None else max(settings.workers, 1)
    if where == "auto":
        where = _fastest_place(needed, device)
    if where == "none":  # otherwise making the cache checks them
        require_readable(dataset, check(dataset, duplicates=False, workers=readers))
        return None
    if where not in ("memory", "gpu"):
        return cache_on_disk(dataset, Path(where), transform, workers=readers)
    cache = cache_in_memory(dataset, transform, workers=readers)
    return cache.to(device) if where == "gpu" and device.type == "cuda" else cache


def _fastest_place(needed: int, device: torch.device) -> str:
    """The fastest place of which a cache of this size takes at most half."""
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.exists() else needed
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > min(free, pages) / 2:
        return "none"
    if device.type == "cuda" and needed < torch.cuda.mem_get_info(device)[0] / 2:
        return "gpu"
    return "memory"
