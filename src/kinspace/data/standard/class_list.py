"""A class-list set: some classes of a larger collection; ImageNet Attributes is one.

ImageNet Attributes: the 90 classes of ImageNet with annotated attributes (Rippel et al., "Metric
learning with adaptive density discrimination", 2016, Appendix C). The folder of an ImageNet copy:

    train/n01693334/n01693334_10014.JPEG    part "train"
    val/n01693334/...                       part "val" (optional, in class folders too)

or the class folders directly, all of them part "train". Other classes there are ignored.
The object attributes themselves (Russakovsky & Fei-Fei, 2010) are no part of ImageNet. Where the
folder has them in a table, its pictures are the part "test", so that neighbors can be asked what
they share (Magnet's Fig. 6(d)):

    attributes.csv    path,black,striped,...        numbers from 0 to 1, a row a picture
                      n01693334/n01693334_10014.JPEG,0,1,...
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch

from kinspace._core.checks import first_few
from kinspace.data.dataset import Attributes, Dataset
from kinspace.data.pictures import FilePictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["IMAGENET_ATTRIBUTES", "class_list", "imagenet_attributes"]

WNIDS = """
n01693334 n01773549 n01773797 n01796340 n01872401 n01873310 n01882714 n01883070 n02071294
n02074367 n02088238 n02088364 n02088466 n02088632 n02090379 n02091134 n02091635 n02092002
n02096294 n02100583 n02100735 n02101556 n02102480 n02104029 n02104365 n02105056 n02105162
n02105251 n02105505 n02106030 n02109047 n02109525 n02110806 n02110958 n02112350 n02115913
n02119789 n02123045 n02123394 n02124075 n02125311 n02128925 n02129165 n02130308 n02326432
n02342885 n02361337 n02391049 n02410509 n02422106 n02422699 n02423022 n02441942 n02442845
n02443114 n02443484 n02444819 n02445715 n02447366 n02480495 n02480855 n02481823 n02483708
n02484975 n02486261 n02486410 n02487347 n02488291 n02488702 n02500267 n02509815 n02536864
n02802426 n02808440 n02910353 n03249569 n03325584 n03721384 n03977966 n03982430 n04118776
n04228054 n04447861 n07615774 n07745940 n07873807 n07875152 n07880968 n11939491 n12267677
"""
IMAGENET_ATTRIBUTES = tuple(WNIDS.split())

LAYOUT = "a folder for each class, in train/ (and val/) or directly"
IMAGENET = Source(
    "imagenet_attributes", "ImageNet Attributes", "https://www.image-net.org/", LAYOUT
)
ANY = Source("class_list", "class list", "where the larger collection came from", LAYOUT)

# The paper counts 116,236 examples and does not say how many of them are of the validation part,
# nor of which release: only the classes are checked.
COUNTS: Counts = {"train": (None, 90)}


def imagenet_attributes(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """The 90 classes of Magnet's attribute experiment from a copy of ImageNet."""
    folder = IMAGENET.find_root(root, "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")
    return class_list(folder, IMAGENET_ATTRIBUTES, counts=counts, source=IMAGENET)


def class_list(
    root: Folder, classes: Sequence[str], *, counts: Counts | None = None, source: Source = ANY
) -> Dataset:
    """The given classes, in that order, of a folder of class folders; all must be there."""
    folder = source.find_root(root)
    folders = {
        part: folder / part
        for part in ("train", "val")
        if any((folder / part / name).is_dir() for name in classes)
    } or {"train": folder}
    class_folders = [
        (part, label, inside / name)
        for part, inside in folders.items()
        for label, name in enumerate(classes)
    ]
    absent = [place for _, _, place in class_folders if not place.is_dir()]
    if absent:
        raise source.missing_files(folder, [f"{p.relative_to(folder).as_posix()}/" for p in absent])
    annotated, attribute_names = _annotations(folder / "attributes.csv")
    listed = [
        (path, label, "test" if _key(path) in annotated else part)
        for part, label, place in class_folders
        for path in sorted(place.iterdir())
        if path.is_file() and not path.name.startswith(".")
    ]
    return build_dataset(
        source,
        FilePictures([path for path, _, _ in listed], root=folder),
        [label for _, label, _ in listed],
        classes,
        [part for _, _, part in listed],
        counts,
        attributes=_attributes(folder, [path for path, _, _ in listed], annotated, attribute_names),
    )


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _annotations(table: Path) -> tuple[dict[str, list[float]], tuple[str, ...]]:
    """The attributes of each picture in the table, and their names; nothing without a table."""
    if not table.is_file():
        return {}, ()
    with table.open(encoding="utf-8", newline="") as stream:
        names, *rows = [row for row in csv.reader(stream) if row] or [[]]
    if len(names) < 2 or names[0] != "path":
        raise ValueError(f"{table}: expected columns path and one an attribute, got {names}")
    found = {}
    for line, (name, *values) in enumerate(rows, start=2):
        try:
            found["/".join(Path(name).parts[-2:])] = [float(value) for value in values]
        except ValueError:
            raise ValueError(f"{table}, row {line}: expected numbers, got {values}") from None
        if len(values) != len(names) - 1 or not all(0 <= float(value) <= 1 for value in values):
            raise ValueError(
                f"{table}, row {line}: expected {len(names) - 1} numbers from 0 to 1, got {values}"
            )
    return found, tuple(names[1:])


def _attributes(
    folder: Path, paths: Sequence[Path], annotated: dict[str, list[float]], names: tuple[str, ...]
) -> Attributes | None:
    """Those of the pictures with annotations; all others have 0, and are not in the test part."""
    if not annotated:
        return None
    keys = [_key(path) for path in paths]
    if absent := sorted(set(annotated) - set(keys)):
        raise ValueError(
            f"{folder / 'attributes.csv'}: expected pictures of the classes, got {len(absent)} "
            f"others: {first_few(absent)}"
        )
    nothing = [0.0] * len(names)
    return Attributes(names, torch.tensor([annotated.get(key, nothing) for key in keys]))
