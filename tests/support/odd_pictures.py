"""Real files of every kind that cameras, programs and accidents leave in a folder."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def scene(seed: int, size: int = 48) -> Image.Image:
    """A picture with shapes at every scale, another one for another seed."""
    rng = np.random.default_rng(seed)
    picture = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return picture.resize((size, size), Image.Resampling.BICUBIC)


def corners() -> NDArray[np.uint8]:
    """16 x 24 pixels: red top left, green top right, blue bottom left, white bottom right."""
    pixels = np.full((16, 24, 3), 255, np.uint8)
    pixels[:8, :12] = (255, 0, 0)
    pixels[:8, 12:] = (0, 255, 0)
    pixels[8:, :12] = (0, 0, 255)
    return pixels


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def _rotated(path: Path) -> None:
    # Stored lying on its side: shown upright after a quarter turn.
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.fromarray(corners()).transpose(Image.Transpose.ROTATE_90)
    stored.save(path, "jpeg", exif=exif, quality=95)


def _sixteen_bit(path: Path) -> None:
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    Image.fromarray(ramp).save(path)


def _palette(path: Path) -> None:
    scene(903).quantize(8).save(path, transparency=0)


def _alpha(path: Path) -> None:
    picture = scene(904).convert("RGBA")
    picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    picture.save(path)


def _animated(path: Path) -> None:
    frames = [scene(seed) for seed in (905, 906, 907)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=50)


# What can be read, and how it is made.
ODD: dict[str, Callable[[Path], None]] = {
    "cmyk.jpg": lambda path: scene(901).convert("CMYK").save(path),
    "16 bit.png": _sixteen_bit,
    "palette.png": _palette,
    "alpha.png": _alpha,
    "rotated.jpg": _rotated,
    "animated.gif": _animated,
    "animated.webp": _animated,
    "photo.webp": lambda path: scene(908).save(path),
    "photo.avif": lambda path: scene(909).save(path),
    "Nachtfalter äöü 夜蛾.png": lambda path: scene(910).save(path),
}


def bomb() -> bytes:
    """A PNG of a few bytes that says it has 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _truncated() -> bytes:
    whole = encoded(scene(911, 200), "jpeg")
    return whole[: len(whole) // 2]


# What cannot be read: the bytes, and a word of the reason.
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated.jpg": (_truncated, "truncated"),
    "zero bytes.jpg": (lambda: b"", "empty file"),
    "text.jpg": (lambda: b"this is no picture\n" * 20, "not a picture"),
    "bomb.png": (bomb, "bomb"),
    "notes.txt": (lambda: b"the luna moth\n", "not a picture"),
}


def write_odd(folder: Path) -> list[str]:
    """One of each odd kind; the names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in ODD.items():
        write(folder / name)
    return list(ODD)


def write_bad(folder: Path) -> dict[str, str]:
    """One of each bad kind; names and a word of the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (data, _) in BAD.items():
        (folder / name).write_bytes(data())
    (folder / "dangling.jpg").symlink_to(folder / "was here.jpg")
    reasons = {name: reason for name, (_, reason) in BAD.items()}
    reasons["dangling.jpg"] = "No such file"
    if os.geteuid():  # root may read everything
        (folder / "locked.jpg").write_bytes(encoded(scene(912), "jpeg"))
        (folder / "locked.jpg").chmod(0)
        reasons["locked.jpg"] = "Permission denied"
    return reasons


def write_clean(folder: Path, classes: int = 3, each: int = 3) -> None:
    """Class folders with pictures that are all good and all different."""
    for label in range(classes):
        (folder / f"kind {label}").mkdir(parents=True, exist_ok=True)
        for number in range(each):
            scene(100 * label + number).save(folder / f"kind {label}" / f"{number}.png")
