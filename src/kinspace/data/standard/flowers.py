"""Oxford Flowers102: 8,189 pictures of 102 kinds of flowers (Nilsback & Zisserman, 2008).

    imagelabels.mat         labels: the class from 1 of image_00001, image_00002, ...
    setid.mat               trnid, valid, tstid: the numbers of the pictures of each part
    jpg/image_00001.jpg     or zip archives of it

The files have no class names; those here are the home page's, in the order of the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import read_mat_column
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset, zero_shot_parts

__all__ = ["flowers102", "flowers102_seen"]

SOURCE = Source(
    "flowers102",
    "Oxford Flowers102",
    "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
    "imagelabels.mat, setid.mat, jpg/ or zip archives of it",
)
ZERO_SHOT: Counts = {"train": (3_493, 51), "test": (4_696, 51)}
SEEN: Counts = {"train": (1_020, 102), "val": (1_020, 102), "test": (6_149, 102)}

FILES = {
    "labels": ("imagelabels.mat",),
    "split": ("setid.mat",),
    "pictures": ("jpg", "*.zip"),
}
PARTS = {"train": "trnid", "val": "valid", "test": "tstid"}

NAMES = """
pink primrose, hard-leaved pocket orchid, canterbury bells, sweet pea, english marigold, tiger
lily, moon orchid, bird of paradise, monkshood, globe thistle, snapdragon, colt's foot, king
protea, spear thistle, yellow iris, globe-flower, purple coneflower, peruvian lily, balloon
flower, giant white arum lily, fire lily, pincushion flower, fritillary, red ginger, grape
hyacinth, corn poppy, prince of wales feathers, stemless gentian, artichoke, sweet william,
carnation, garden phlox, love in the mist, mexican aster, alpine sea holly, ruby-lipped
cattleya, cape flower, great masterwort, siam tulip, lenten rose, barbeton daisy, daffodil,
sword lily, poinsettia, bolero deep blue, wallflower, marigold, buttercup, oxeye daisy, common
dandelion, petunia, wild pansy, primula, sunflower, pelargonium, bishop of llandaff, gaura,
geranium, orange dahlia, pink-yellow dahlia, cautleya spicata, japanese anemone, black-eyed
susan, silverbush, californian poppy, osteospermum, spring crocus, bearded iris, windflower,
tree poppy, gazania, azalea, water lily, rose, thorn apple, morning glory, passion flower,
lotus, toad lily, anthurium, frangipani, clematis, hibiscus, columbine, desert-rose, tree
mallow, magnolia, cyclamen, watercress, canna lily, hippeastrum, bee balm, ball moss, foxglove,
bougainvillea, camellia, mallow, mexican petunia, bromelia, blanket flower, trumpet creeper,
blackberry lily
"""


def flowers102(root: Folder, *, counts: Counts | None = ZERO_SHOT) -> Dataset:
    """The zero-shot protocol: the first 51 kinds are "train", the last 51 "test"."""
    return _load(root, seen=False, counts=counts)


def flowers102_seen(root: Folder, *, counts: Counts | None = SEEN) -> Dataset:
    """The classification protocol: every kind is in "train", "val" and "test"."""
    return replace(_load(root, seen=True, counts=counts), name="flowers102_seen")


def _load(root: Folder, *, seen: bool, counts: Counts | None) -> Dataset:
    folder = SOURCE.find_root(root, "flowers-102")
    files = SOURCE.find_files(folder, FILES)
    labels = [number - 1 for number in read_mat_column(files["labels"], "labels")]
    class_names = " ".join(NAMES.split()).split(", ")[: max(labels) + 1]
    parts = (
        _official(files["split"], len(labels))
        if seen
        else zero_shot_parts(labels, len(class_names))
    )
    names = [f"image_{number:05}.jpg" for number in range(1, len(labels) + 1)]
    pictures = find_pictures(SOURCE, folder, names, folder="jpg")
    return build_dataset(SOURCE, pictures, labels, class_names, parts, counts)


def _official(path: Path, pictures: int) -> Sequence[str]:
    part = {
        number: name
        for name, variable in PARTS.items()
        for number in read_mat_column(path, variable)
    }
    if sorted(part) != list(range(1, pictures + 1)):
        raise ValueError(f"{path}: expected each of {pictures:,} pictures in one of the parts")
    return [part[number] for number in range(1, pictures + 1)]
