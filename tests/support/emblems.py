"""Drawn pictures of emblems: a class is a pattern of colors, a picture one of its views."""

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 48


def emblem(number: int, view: int) -> Image.Image:
    """A view of an emblem: turned, shifted, in another light, partly covered, with noise."""
    pattern = np.random.default_rng([7, number]).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    rng = np.random.default_rng([8, number, view])
    whole = Image.fromarray(pattern).resize((64, 64), Image.Resampling.BICUBIC)
    turned = whole.rotate(rng.uniform(-6, 6), Image.Resampling.BILINEAR)
    left, top = rng.integers(5, 12, 2).tolist()
    pixels = np.asarray(turned.crop((left, top, left + SIDE, top + SIDE)), np.float64)
    pixels = pixels * rng.uniform(0.85, 1.1, 3) + rng.normal(0, 6, pixels.shape)
    x, y = rng.integers(0, SIDE - 9, 2)
    pixels[y : y + 9, x : x + 9] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_emblems(folder: Path, numbers: range, views: range) -> list[Path]:
    """PNG files in a folder for each class, class after class."""
    files = []
    for number in numbers:
        place = folder / f"emblem {number:02}"
        place.mkdir(parents=True, exist_ok=True)
        for view in views:
            files.append(place / f"{view:03}.png")
            emblem(number, view).save(files[-1])
    return files
