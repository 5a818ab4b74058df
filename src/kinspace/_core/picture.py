"""One picture: from the bytes of a file to upright RGB, and from there to a square.

This needs Pillow and NumPy only, so that a process that decodes pictures starts at once.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import IO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = ["FORMATS", "Square", "UnreadablePicture", "decode", "known_formats", "rgb"]

# Pillow knows more, some of which call other programs (EPS: Ghostscript)
FORMATS = (
    "JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "MPO", "PPM", "JPEG2000", "TGA", "PCX",
    "SGI", "ICO", "DIB", "HEIF",
)  # fmt: skip
DEEP_ROWS = 2**20  # pixels of a deep picture in use at a time
MOST_PIXELS = 100_000_000  # a larger picture is taken for a decompression bomb
GRAY = (124, 116, 104)  # beside a picture that does not fill the square: ImageNet's mean


class UnreadablePicture(ValueError):
    """A picture that cannot be read: its name and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreadablePicture], tuple[str, str]]:
        return UnreadablePicture, (
            self.name,
            self.reason,
        )  # for the way from a loader's worker process


@lru_cache
def known_formats(names: tuple[str, ...] = FORMATS) -> tuple[str, ...]:
    """Those of the formats that this Pillow reads.

    >>> "PNG" in known_formats(), "EPS" in known_formats()
    (True, False)
    """
    Image.init()
    return tuple(name for name in names if name in Image.OPEN)


def decode(
    stream: IO[bytes],
    name: str,
    *,
    formats: tuple[str, ...] = FORMATS,
    count_frames: bool = True,
) -> Image.Image:
    """Read one picture as upright 8-bit RGB.

    count_frames: False: the number of frames is not looked for, which reads through some files.

    >>> import io
    >>> data = io.BytesIO()
    >>> Image.new("L", (2, 1), 128).save(data, "png")
    >>> decode(data, "gray.png").getpixel((0, 0))
    (128, 128, 128)
    >>> decode(io.BytesIO(b"hello"), "note.jpg")
    Traceback (most recent call last):
    kinspace._core.picture.UnreadablePicture: note.jpg: not a picture in any known format
    """
    try:
        with warnings.catch_warnings():
            # Pillow's own bomb limit is a warning; warnings on broken EXIF do not matter here
            warnings.simplefilter("ignore")
            picture = Image.open(stream, formats=known_formats(formats))
            if picture.width * picture.height > MOST_PIXELS:
                raise UnreadablePicture(name, f"{picture.width} x {picture.height} pixels, a bomb?")
            kind: dict[str | tuple[int, int], object] = {
                "mode": picture.mode,
                "frames": getattr(picture, "n_frames", 1) if count_frames else 1,
            }
            picture.load()
            upright = rgb(ImageOps.exif_transpose(picture))
            upright.info = kind  # of the file; without profiles and previews, which take memory
            return upright
    except UnreadablePicture:
        raise
    except Image.DecompressionBombError:
        raise UnreadablePicture(name, f"more than {MOST_PIXELS:,} pixels, a bomb?") from None
    except UnidentifiedImageError:
        empty = stream.seek(0, os.SEEK_END) == 0
        reason = "empty file" if empty else "not a picture in any known format"
        raise UnreadablePicture(name, reason) from None
    # Pillow's decoders raise almost anything on broken data.
    except Exception as error:  # noqa: BLE001
        raise UnreadablePicture(name, f"cannot be decoded: {error}") from None


def rgb(picture: Image.Image) -> Image.Image:
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        return _from_deep(picture)
    if picture.has_transparency_data:
        over = picture.convert("RGBA")
        white = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(white, over).convert("RGB")
    return picture.convert("RGB")


def _from_deep(picture: Image.Image) -> Image.Image:
    """16-bit gray by its high byte; 32-bit and float by their own range."""
    values = np.asarray(picture)
    if picture.mode.startswith("I;16"):
        low, factor = 0.0, 1 / 257
    else:
        low, high = (float(end(values)) for end in (np.nanmin, np.nanmax))
        if picture.mode == "I" and 255 < high < 65536:
            low, factor = 0.0, 1 / 257
        elif picture.mode == "I" and low >= 0 and high <= 255:
            low, factor = 0.0, 1.0
        else:
            factor = 255 / (high - low) if high > low else 0.0
    gray = np.empty(values.shape, np.uint8)
    step = max(1, DEEP_ROWS // values.shape[1])
    for at in range(0, len(values), step):  # float64 is eight times as large
        scaled = (values[at : at + step].astype(np.float64) - low) * factor
        gray[at : at + step] = np.nan_to_num(scaled).round()
    return Image.fromarray(gray).convert("RGB")


@dataclass(frozen=True)
class Square:
    """Makes a picture a square: the part of the transforms that is not random.

    >>> Square(256, "long")(Image.new("RGB", (400, 300))).size
    (256, 256)
    """

    resize: int
    fit: str = "squash"

    def __call__(self, picture: Image.Image) -> Image.Image:
        """The RGB picture as a square of `resize` pixels."""
        side = (self.resize, self.resize)
        if self.fit == "long":
            return self._padded(picture)
        if self.fit == "short":
            # cropped first: the whole of a 1 x 5000 strip at 256 pixels would fill the memory
            picture = _middle(picture)
        return picture.resize(side, Image.Resampling.BILINEAR)

    def _padded(self, picture: Image.Image) -> Image.Image:
        factor = self.resize / max(picture.size)
        width, height = (max(1, round(edge * factor)) for edge in picture.size)
        square = Image.new("RGB", (self.resize, self.resize), GRAY)
        small = picture.resize((width, height), Image.Resampling.BILINEAR)
        square.paste(small, ((self.resize - width) // 2, (self.resize - height) // 2))
        return square


def _middle(picture: Image.Image) -> Image.Image:
    """The square in the middle, as large as fits."""
    side = min(picture.size)
    left, top = (round((edge - side) / 2) for edge in picture.size)
    return picture.crop((left, top, left + side, top + side))
