"""Pictures small enough to be part of a page: data URIs, and many in one sheet."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

from PIL import Image, ImageOps

from kinspace.data.pictures import Pictures
from kinspace.data.unreadable import UnreadablePicture

__all__ = ["picture_uri", "sheet", "tile_side"]

PIXELS = 6_000_000  # of a sheet: about 2 MB
MOST, LEAST = 64, 20  # pixels a side of its tiles


def picture_uri(pictures: Pictures, index: int, *, side: int = 144) -> str:
    """A picture of at most so many pixels a side, as a data URI.

    >>> from kinspace.data import digits_dataset
    >>> picture_uri(digits_dataset().pictures, 0)[:23]
    'data:image/jpeg;base64,'
    """
    picture = _read(pictures, index)
    if max(picture.size) < side // 2:  # tiny: whole pixels, larger
        times = side // max(picture.size)
        size = (picture.width * times, picture.height * times)
        return _uri(picture.resize(size, Image.Resampling.NEAREST))
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _uri(picture)


def tile_side(count: int) -> int:
    """Pixels a side of each of so many tiles in a sheet.

    >>> tile_side(100), tile_side(5000)
    (64, 34)
    """
    return max(LEAST, min(MOST, math.isqrt(PIXELS // max(count, 1))))


def sheet(pictures: Pictures, places: Sequence[int], *, columns: int, side: int) -> str:
    """The middle squares of these pictures, row after row in one picture, as a data URI."""
    rows = -(-len(places) // columns)
    whole = Image.new("RGB", (columns * side, rows * side))
    for number, place in enumerate(places):
        tile = ImageOps.fit(_read(pictures, place), (side, side), Image.Resampling.BILINEAR)
        whole.paste(tile, (number % columns * side, number // columns * side))
    return _uri(whole, quality=75)


def _read(pictures: Pictures, index: int) -> Image.Image:
    try:
        return pictures.read(index)
    except UnreadablePicture:  # it could be read once: show that there was one
        return Image.new("RGB", (32, 32), "gray")


def _uri(picture: Image.Image, *, quality: int = 82) -> str:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()
