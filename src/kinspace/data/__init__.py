"""Data sets: loading, checks, splits, transforms, caches and loaders.

    data = load_dataset("photos/")  # or a table, an archive, a standard set, "digits", "moths"
    result = check(data)            # lists what is wrong
    split = zero_shot(data)         # split.train, split.test
    settings = TransformSettings(size=224, resize=256)
    cache = cache_in_memory(data, settings)
    loader = CachedLoader(cache.part(split.train, data), sampler, settings)

The pages are docs/data.md and docs/datasets.md.
"""

from kinspace.data.archives import from_archive
from kinspace.data.cache import PictureCache, cache_in_memory, cache_on_disk
from kinspace.data.csv_table import from_table
from kinspace.data.dataloader import Batch, CachedLoader, PictureLoader, sequential_batches
from kinspace.data.dataset import Attributes, Dataset, from_names, unlabeled
from kinspace.data.folder import from_folder
from kinspace.data.in_memory import digits_dataset, from_arrays, moths_dataset
from kinspace.data.load import load_dataset
from kinspace.data.pictures import UnreadablePicture, UnreadablePictures
from kinspace.data.splits import (
    Split,
    class_folds,
    hold_out_classes,
    official,
    random_classes,
    stratified,
    zero_shot,
)
from kinspace.data.transforms import (
    TransformSettings,
    augmented_views,
    eval_transform,
    train_transform,
)
from kinspace.data.validation import CheckResult, check, drop_unreadable, require_readable

__all__ = [
    "Attributes",
    "Batch",
    "CachedLoader",
    "CheckResult",
    "Dataset",
    "PictureCache",
    "PictureLoader",
    "Split",
    "TransformSettings",
    "UnreadablePicture",
    "UnreadablePictures",
    "augmented_views",
    "cache_in_memory",
    "cache_on_disk",
    "check",
    "class_folds",
    "digits_dataset",
    "drop_unreadable",
    "eval_transform",
    "from_archive",
    "from_arrays",
    "from_folder",
    "from_names",
    "from_table",
    "hold_out_classes",
    "load_dataset",
    "moths_dataset",
    "official",
    "random_classes",
    "require_readable",
    "sequential_batches",
    "stratified",
    "train_transform",
    "unlabeled",
    "zero_shot",
]
