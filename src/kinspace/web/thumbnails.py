"""Small pictures for pages: JPEG bytes, and data URIs made of them.

A page has a budget in bytes. Where its pictures take more, as those of thousands of pictures on a
map or of noise do, all of them are compressed more, and then made smaller.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageOps

from kinspace.data.pictures import Pictures, UnreadablePicture

__all__ = [
    "Thumbnail",
    "Thumbnails",
    "data_uri",
    "gray_jpeg",
    "sheet_jpeg",
    "thumbnail_jpeg",
    "tile_side",
]

SHEET_PIXELS = 6_000_000
BUDGET = 900_000  # bytes of the thumbnails of a page
SHEET_BUDGET = 650_000  # bytes of its sheet
# share of the pixels per side and quality, the first that is within the budget
STEPS = ((1.0, 82), (1.0, 75), (1.0, 65), (0.85, 65), (0.85, 55), (0.7, 55), (0.6, 50), (0.5, 45))
MOST, LEAST = 64, 20  # pixels per side of the tiles of a sheet
GRAY = "#8a8f94"


def thumbnail_jpeg(pictures: Pictures, index: int, *, side: int = 144) -> bytes:
    r"""A picture of at most `side` pixels per side; a gray one if it cannot be read any more.

    >>> from kinspace.data import digits_dataset
    >>> thumbnail_jpeg(digits_dataset().pictures, 0)[:2]
    b'\xff\xd8'
    """
    return _jpeg(_thumbnail(pictures, index, side))


def _thumbnail(pictures: Pictures, index: int, side: int) -> Image.Image:
    picture = _read(pictures, index)
    if max(picture.size) < side // 2:  # tiny: whole pixels, larger
        times = side // max(picture.size)
        size = (picture.width * times, picture.height * times)
        return picture.resize(size, Image.Resampling.NEAREST)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return picture


class Thumbnails:
    """The thumbnails of one page, together within a budget in bytes.

    All are added before the first is written, since the bytes of all decide how each is compressed.

    >>> from kinspace.data import digits_dataset
    >>> page, pictures = Thumbnails(), digits_dataset().pictures
    >>> first, again = page.add(pictures, 0), page.add(pictures, 0)
    >>> str(first)[:23], str(first) == str(again)
    ('data:image/jpeg;base64,', True)
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._pictures: dict[tuple[int, int, int], tuple[Pictures, Image.Image]] = {}
        self._uris: dict[tuple[int, int, int], str] = {}

    def add(self, pictures: Pictures, index: int, *, side: int = 144) -> Thumbnail:
        """A picture of at most `side` pixels per side; its text is a data URI."""
        key = (id(pictures), index, side)
        if key not in self._pictures:
            self._pictures[key] = pictures, _thumbnail(pictures, index, side)
        return Thumbnail(self, key)

    def uri(self, key: tuple[int, int, int]) -> str:
        """The picture as a data URI."""
        if not self._uris:
            self._uris = {one: data_uri(jpeg) for one, jpeg in self._encoded().items()}
        return self._uris[key]

    def _encoded(self) -> dict[tuple[int, int, int], bytes]:
        for share, quality in STEPS:
            found = {
                key: _jpeg(_smaller(picture, share), quality=quality)
                for key, (_, picture) in self._pictures.items()
            }
            if sum(map(len, found.values())) <= self._budget:
                break
        return found


@dataclass(frozen=True)
class Thumbnail:
    """A picture of `Thumbnails`; its text is a data URI."""

    page: Thumbnails
    key: tuple[int, int, int]

    def __str__(self) -> str:
        return self.page.uri(self.key)


def _smaller(picture: Image.Image, share: float) -> Image.Image:
    size = (max(1, round(share * picture.width)), max(1, round(share * picture.height)))
    return picture if size == picture.size else picture.resize(size, Image.Resampling.LANCZOS)


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


def sheet_jpeg(
    pictures: Pictures,
    indices: Sequence[int],
    *,
    columns: int,
    side: int,
    budget: int = SHEET_BUDGET,
) -> tuple[bytes, int]:
    """The central squares of these pictures as tiles of one picture, row after row.

    Returns the bytes and the pixels per side of a tile, which are fewer than `side` where the
    bytes would be more than the budget.

    >>> from kinspace.data import digits_dataset
    >>> sheet, side = sheet_jpeg(digits_dataset().pictures, [0, 1, 2], columns=2, side=20)
    >>> Image.open(io.BytesIO(sheet)).size, side
    ((40, 40), 20)
    """
    rows = -(-len(indices) // columns)
    whole = Image.new("RGB", (columns * side, rows * side))
    for number, index in enumerate(indices):
        tile = ImageOps.fit(_read(pictures, index), (side, side), Image.Resampling.BILINEAR)
        whole.paste(tile, (number % columns * side, number // columns * side))
    for share, quality in STEPS[1:]:
        shown = max(LEAST, round(share * side))
        small = whole.resize((columns * shown, rows * shown), Image.Resampling.BOX)
        sheet = _jpeg(small, quality=quality)
        if len(sheet) <= budget:
            break
    return sheet, shown


def _read(pictures: Pictures, index: int) -> Image.Image:
    try:
        return pictures.read(index)
    except UnreadablePicture:  # it could be read when it was embedded
        return Image.new("RGB", (32, 32), GRAY)


def _jpeg(picture: Image.Image, *, quality: int = 82) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=quality, optimize=True)
    return data.getvalue()
