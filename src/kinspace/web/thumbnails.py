"""Small pictures for pages: JPEG bytes, and data URIs made of them."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

from PIL import Image, ImageOps

from kinspace.data.pictures import Pictures, UnreadablePicture

__all__ = ["data_uri", "gray_jpeg", "sheet_jpeg", "thumbnail_jpeg", "tile_side"]

SHEET_PIXELS = 6_000_000  # about 2 MB
MOST, LEAST = 64, 20  # pixels per side of the tiles of a sheet
GRAY = "#8a8f94"


def thumbnail_jpeg(pictures: Pictures, index: int, *, side: int = 144) -> bytes:
    r"""A picture of at most `side` pixels per side; a gray one if it cannot be read any more.

    >>> from kinspace.data import digits_dataset
    >>> thumbnail_jpeg(digits_dataset().pictures, 0)[:2]
    b'\xff\xd8'
    """
    picture = _read(pictures, index)
    if max(picture.size) < side // 2:  # tiny: whole pixels, larger
        times = side // max(picture.size)
        size = (picture.width * times, picture.height * times)
        return _jpeg(picture.resize(size, Image.Resampling.NEAREST))
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _jpeg(picture)


def gray_jpeg(side: int) -> bytes:
    """A gray square, in place of a picture that is missing.

    >>> Image.open(io.BytesIO(gray_jpeg(16))).size
    (16, 16)
    """
    return _jpeg(Image.new("RGB", (side, side), GRAY))


def data_uri(jpeg: bytes) -> str:
    """The bytes of a JPEG as an address that is part of a page.

    >>> data_uri(gray_jpeg(8))[:23]
    'data:image/jpeg;base64,'
    """
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


def tile_side(count: int) -> int:
    """Pixels per side of the tiles of a sheet of `count` pictures.

    >>> tile_side(100), tile_side(5000)
    (64, 34)
    """
    return max(LEAST, min(MOST, math.isqrt(SHEET_PIXELS // max(count, 1))))


def sheet_jpeg(pictures: Pictures, indices: Sequence[int], *, columns: int, side: int) -> bytes:
    """The central squares of these pictures as tiles of one picture, row after row.

    >>> from kinspace.data import digits_dataset
    >>> sheet = sheet_jpeg(digits_dataset().pictures, [0, 1, 2], columns=2, side=20)
    >>> Image.open(io.BytesIO(sheet)).size
    (40, 40)
    """
    rows = -(-len(indices) // columns)
    whole = Image.new("RGB", (columns * side, rows * side))
    for number, index in enumerate(indices):
        tile = ImageOps.fit(_read(pictures, index), (side, side), Image.Resampling.BILINEAR)
        whole.paste(tile, (number % columns * side, number // columns * side))
    return _jpeg(whole, quality=75)


def _read(pictures: Pictures, index: int) -> Image.Image:
    try:
        return pictures.read(index)
    except UnreadablePicture:  # it could be read when it was embedded
        return Image.new("RGB", (32, 32), GRAY)


def _jpeg(picture: Image.Image, *, quality: int = 82) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=quality, optimize=True)
    return data.getvalue()
