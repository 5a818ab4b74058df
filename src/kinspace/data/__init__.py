"""From pictures as they come to data sets, their parts, and batches.

    data = open_data("photos/")     # or a table, an archive, a standard set, "digits", "moths"
    result = check(data)            # what is wrong with it
    split = zero_shot(data)         # split.train, split.test
    settings = TransformSettings(size=224, resize=256)
    cache = cache_in_memory(data, settings)
    loader = CachedLoader(cache.part(split.train, data), sampler, settings)

The pages are docs/data.md and docs/datasets.md.
"""

from kinspace.data.archives import from_archive
from kinspace.data.arrays import from_arrays
from kinspace.data.cache import PictureCache, cache_in_memory, cache_on_disk
from kinspace.data.crops import augmented_views
from kinspace.data.dataloader import Batch, CachedLoader, PictureLoader, in_order
from kinspace.data.dataset import Attributes, Dataset, from_names
from kinspace.data.digits import digits_dataset
from kinspace.data.folder import from_folder
from kinspace.data.load import open_data
from kinspace.data.moths_set import moths_dataset
from kinspace.data.splits import (
    Split,
    class_folds,
    hold_out_classes,
    official,
    stratified,
    zero_shot,
)
from kinspace.data.table import from_table
from kinspace.data.transforms import TransformSettings, eval_transform, train_transform
from kinspace.data.unreadable import BadPicture, BadPictures
from kinspace.data.validation import CheckResult, check, require_good, usable

__all__ = [
    "Attributes",
    "BadPicture",
    "BadPictures",
    "Batch",
    "CachedLoader",
    "CheckResult",
    "Dataset",
    "PictureCache",
    "PictureLoader",
    "Split",
    "TransformSettings",
    "augmented_views",
    "cache_in_memory",
    "cache_on_disk",
    "check",
    "class_folds",
    "digits_dataset",
    "eval_transform",
    "from_archive",
    "from_arrays",
    "from_folder",
    "from_names",
    "from_table",
    "hold_out_classes",
    "in_order",
    "moths_dataset",
    "official",
    "open_data",
    "require_good",
    "stratified",
    "train_transform",
    "usable",
    "zero_shot",
]
