"""A collection of moths: pictures, species, genera and attributes; and a sheet of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kinspace._core import checks
from kinspace._core.device import cpu_count
from kinspace.data.moths.attributes import ATTRIBUTE_NAMES, VOCABULARY, attribute_table, describe
from kinspace.data.moths.scene import Picture, draw_moth
from kinspace.data.moths.species import MEMBERS
from kinspace.data.moths.species_list import make_species, species_catalog
from kinspace.data.process_pool import process_map

__all__ = ["Moths", "contact_sheet", "draw_moths", "draw_picture"]

_FEW = 400  # pictures; a process that draws fewer takes longer to start than to draw


@dataclass(frozen=True)
class Moths:
    """Pictures of moths. Species are the classes, genera the level above them.

    Class `c` is named `class_names[c]` and belongs to the genus `genera[c]`. The pictures of a
    class follow each other. `columns` holds the attributes as words, one entry a picture;
    `attributes` the same as 0 and 1, one column for each of `attribute_names`.

    >>> moths = draw_moths(species=1, per_species=2)
    >>> moths.describe(0)["species"], moths.attributes.shape[1] == len(moths.attribute_names)
    ('Noctarula vespera', True)
    """

    images: NDArray[np.uint8]  # (pictures, size, size, 3)
    labels: NDArray[np.int64]  # (pictures,)
    class_names: tuple[str, ...]
    genera: tuple[str, ...]
    columns: dict[str, NDArray[np.str_]]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of the attributes, such as 'pattern=banded'."""
        return ATTRIBUTE_NAMES

    @property
    def attributes(self) -> NDArray[np.uint8]:
        """The attributes as 0 and 1, (pictures, attributes)."""
        return attribute_table(self.columns)

    def describe(self, picture: int) -> dict[str, str]:
        """Everything known of one picture, in words."""
        label = int(self.labels[picture])
        words = {column: str(values[picture]) for column, values in self.columns.items()}
        return {"species": self.class_names[label], "genus": self.genera[label], **words}


def draw_picture(number: int, picture: int, *, size: int = 96, seed: int = 0) -> Picture:
    """The picture of that number of the species of that number, always the same for a seed.

    >>> draw_picture(3, 7).individual == draw_picture(3, 7).individual
    True
    """
    rng = np.random.default_rng([seed, number, picture])
    return draw_moth(make_species(number), rng, size=size)


_Drawn = tuple[NDArray[np.uint8], list[dict[str, str]]]


def _draw_species(number: int, *, per_species: int, size: int, seed: int) -> _Drawn:
    pictures = [draw_picture(number, i, size=size, seed=seed) for i in range(per_species)]
    words = [describe(make_species(number), picture.individual) for picture in pictures]
    return np.stack([picture.image for picture in pictures]), words


def draw_moths(
    *,
    species: int = 120,
    per_species: int = 40,
    size: int = 96,
    seed: int = 0,
    workers: int | None = None,
) -> Moths:
    """Draw `per_species` pictures of each of the first `species` species.

    The species are always the same ones; the seed decides on the individuals, their pose,
    light and background. Picture i of a species is the same in a collection of any size.
    `workers` processes draw, by default as many as there are cores if there is enough to do;
    the pictures do not depend on it. In a script, draw many under `if __name__ == "__main__":`,
    as always with Python's processes.

    >>> moths = draw_moths(species=3, per_species=2, seed=1)
    >>> moths.images.shape, moths.labels.tolist()
    ((6, 96, 96, 3), [0, 0, 1, 1, 2, 2])
    >>> moths.class_names[2], moths.describe(0)["pattern"]
    ('Noctarula hibernica', 'eyespotted')
    """
    kinds = species_catalog(species)
    checks.integer("per_species", per_species, at_least=1)
    checks.integer("size", size, at_least=16)
    checks.integer("seed", seed, at_least=0)
    if workers is None:
        workers = max(1, min(cpu_count(), species * per_species // _FEW))
    checks.integer("workers", workers, at_least=1)
    draw = partial(_draw_species, per_species=per_species, size=size, seed=seed)
    if workers == 1:
        drawn = [draw(number) for number in range(species)]
    else:
        drawn = list(process_map(draw, range(species), workers, what="draw moths"))
    words = [row for _, rows in drawn for row in rows]
    return Moths(
        images=np.concatenate([images for images, _ in drawn]),
        labels=np.repeat(np.arange(species), per_species),
        class_names=tuple(kind.name for kind in kinds),
        genera=tuple(kind.genus.name for kind in kinds),
        columns={column: np.array([row[column] for row in words]) for column in VOCABULARY},
    )


_PAPER = 250


def contact_sheet(
    file: str | Path,
    *,
    genera: Sequence[int] = range(8),
    per_species: int = 3,
    size: int = 96,
    seed: int = 0,
    shades: int = 256,
) -> Path:
    """Draw the first pictures of every species of these genera and save them as one PNG.

    With fewer `shades` of red, green and blue the file is smaller; 48 look the same as 256.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = contact_sheet(f"{folder}/moths.png", genera=[3], per_species=1)
    ...     with Image.open(file) as sheet:
    ...         sheet.size
    (408, 102)
    """
    file = Path(file)
    gap, wide = max(1, size // 32), max(1, size // 16)  # the wide one parts the species
    columns = MEMBERS * per_species
    lefts = [gap + i * (size + gap) + (i // per_species) * (wide - gap) for i in range(columns)]
    sheet = np.full((len(genera) * (size + gap) + gap, lefts[-1] + size + gap, 3), _PAPER, np.uint8)
    for row, genus in enumerate(genera):
        top = gap + row * (size + gap)
        for column, left in enumerate(lefts):
            member, picture = divmod(column, per_species)
            drawn = draw_picture(MEMBERS * genus + member, picture, size=size, seed=seed)
            sheet[top : top + size, left : left + size] = drawn.image
    width = -(-256 // checks.integer("shades", shades, at_least=2))
    sheet = sheet // width * width + width // 2
    Image.fromarray(sheet).save(file, optimize=True)
    return file
