"""A contact sheet: one row a genus, its four species side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from kinspace._core import checks
from kinspace.data.moths.collection import draw_picture
from kinspace.data.moths.traits import MEMBERS

__all__ = ["contact_sheet"]

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
