"""What the pages of `kinspace.report` and `kinspace.server` share: the map and small pictures."""

from importlib.resources import files

from kinspace.web.thumbnails import (
    Thumbnail,
    Thumbnails,
    data_uri,
    gray_jpeg,
    sheet_jpeg,
    thumbnail_jpeg,
    tile_side,
)

__all__ = [
    "Thumbnail",
    "Thumbnails",
    "data_uri",
    "gray_jpeg",
    "map_script",
    "sheet_jpeg",
    "thumbnail_jpeg",
    "tile_side",
]


def map_script() -> str:
    """The source of map.js, which defines `embeddingMap` for a page.

    >>> "function embeddingMap(" in map_script()
    True
    """
    return (files("kinspace.web") / "map.js").read_text(encoding="utf-8")
