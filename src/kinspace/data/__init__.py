"""From pictures as they come to data sets and their parts.

    data = open_data("photos/")     # or a table, an archive, a standard set, "digits", "moths"
    result = check(data)            # what is wrong with it
    split = zero_shot(data)         # split.train, split.test

The pages are docs/data.md and docs/datasets.md.
"""

from kinspace.data.archives import from_archive
from kinspace.data.arrays import from_arrays
from kinspace.data.checking import CheckResult, check, require_good, usable
from kinspace.data.dataset import Attributes, Dataset, from_names
from kinspace.data.digits import digits_dataset
from kinspace.data.folder import from_folder
from kinspace.data.moths_set import moths_dataset
from kinspace.data.opening import open_data
from kinspace.data.pictures import BadPicture
from kinspace.data.splits import (
    Split,
    class_folds,
    hold_out_classes,
    official,
    stratified,
    zero_shot,
)
from kinspace.data.table import from_table

__all__ = [
    "Attributes",
    "BadPicture",
    "CheckResult",
    "Dataset",
    "Split",
    "check",
    "class_folds",
    "digits_dataset",
    "from_archive",
    "from_arrays",
    "from_folder",
    "from_names",
    "from_table",
    "hold_out_classes",
    "moths_dataset",
    "official",
    "open_data",
    "require_good",
    "stratified",
    "usable",
    "zero_shot",
]
