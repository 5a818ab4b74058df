"""The standard sets in their official layouts on disk, with their official parts and counts.

Each loader takes the folder of a copy and returns a `Dataset`; `counts=None` leaves the counts
unchecked. `docs/datasets.md` has the layouts, the counts and where to get the sets. The names that
end in `_seen` are the classification protocol of a set whose own name is the zero-shot one.
"""

from kinspace.data.standard.aircraft import aircraft, aircraft_seen
from kinspace.data.standard.cars import cars196, cars196_seen
from kinspace.data.standard.class_list import IMAGENET_ATTRIBUTES, class_list, imagenet_attributes
from kinspace.data.standard.cub import cub200, cub200_seen
from kinspace.data.standard.dogs import dogs
from kinspace.data.standard.flowers import flowers102, flowers102_seen
from kinspace.data.standard.inshop import inshop
from kinspace.data.standard.mnist import fashion_mnist, mnist
from kinspace.data.standard.omniglot import omniglot
from kinspace.data.standard.pets import pets
from kinspace.data.standard.sop import sop
from kinspace.data.standard.source import Counts, Loader, Source

__all__ = [
    "IMAGENET_ATTRIBUTES",
    "STANDARD_SETS",
    "Counts",
    "Loader",
    "Source",
    "aircraft",
    "aircraft_seen",
    "cars196",
    "cars196_seen",
    "class_list",
    "cub200",
    "cub200_seen",
    "dogs",
    "fashion_mnist",
    "flowers102",
    "flowers102_seen",
    "imagenet_attributes",
    "inshop",
    "mnist",
    "omniglot",
    "pets",
    "sop",
]

STANDARD_SETS: dict[str, Loader] = {
    "cub200": cub200,
    "cub200_seen": cub200_seen,
    "cars196": cars196,
    "cars196_seen": cars196_seen,
    "sop": sop,
    "inshop": inshop,
    "flowers102": flowers102,
    "flowers102_seen": flowers102_seen,
    "aircraft": aircraft,
    "aircraft_seen": aircraft_seen,
    "dogs": dogs,
    "pets": pets,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "omniglot": omniglot,
    "imagenet_attributes": imagenet_attributes,
}
