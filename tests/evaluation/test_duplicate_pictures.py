"""Copies are found however they were made, and pictures that differ are none."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from kinspace.data.pictures import UnreadablePicture
from kinspace.evaluation.duplicate_pictures import find_duplicates
from odd_pictures import scene


class Held:
    """Pictures in memory, of any size."""

    def __init__(self, pictures: list[Image.Image | None]) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def name(self, index: int) -> str:
        return str(index)

    def read(self, index: int) -> Image.Image:
        found = self.pictures[index]
        if found is None:
            raise UnreadablePicture(str(index), "gone")
        copied = found.copy()
        copied.info = {"mode": "RGB", "frames": 1}
        return copied

    def stamp(self, index: int) -> object:
        return index


def jpeg(picture: Image.Image) -> Image.Image:
    data = io.BytesIO()
    picture.save(data, "jpeg", quality=40)
    return Image.open(data).convert("RGB")


COPIES: dict[str, tuple[str, Callable[[Image.Image], Image.Image]]] = {
    "same": ("same", lambda picture: picture.copy()),
    "half the size": ("copy", lambda picture: picture.resize((60, 60))),
    "encoded again": ("copy", jpeg),
    "lighter": ("copy", lambda picture: ImageEnhance.Brightness(picture).enhance(1.15)),
    "less contrast": ("copy", lambda picture: ImageEnhance.Contrast(picture).enhance(0.8)),
    "mirrored": ("turned", ImageOps.mirror),
    "turned": ("turned", lambda picture: picture.rotate(90)),
}


def embeddings(pictures: list[Image.Image]) -> np.ndarray:
    """Means of the eight ways to turn a picture: a copy that is turned has the same."""
    found = []
    for picture in pictures:
        small = np.asarray(picture.resize((8, 8), Image.Resampling.BOX), np.float64) - 128
        ways = [np.rot90(way, n) for way in (small, small[:, ::-1]) for n in range(4)]
        found.append(np.mean(ways, 0).ravel())
    return np.array(found)


@pytest.mark.parametrize("name", COPIES)
def test_finds_a_copy_and_says_of_which_kind(name: str) -> None:
    kind, make = COPIES[name]
    pictures = [scene(seed, 120) for seed in range(12)]
    pictures.append(make(pictures[7]))
    for vectors in (embeddings(pictures), None):
        found = find_duplicates(Held([*pictures]), vectors)
        if vectors is None and kind == "turned":  # only embeddings find these
            assert found == []
            continue
        [pair] = found
        assert (pair.first, pair.second, pair.kind) == (7, 12, kind)
        assert (pair.similarity is None) == (vectors is None)


def test_pictures_that_differ_in_a_part_are_no_copies() -> None:
    """The same place with another thing in it, however near the embeddings are."""
    place = scene(3, 128)
    with_thing = place.copy()
    ImageDraw.Draw(with_thing).ellipse((50, 50, 74, 74), "red")
    page = Image.new("RGB", (128, 128), "white")
    pages = []
    for seed in range(4):
        pages.append(page.copy())
        draw, rng = ImageDraw.Draw(pages[-1]), np.random.default_rng(seed)
        for line in range(12, 120, 10):
            draw.line((10, line, int(rng.integers(60, 118)), line), "black", 2)
    plain = [Image.new("RGB", (64, 64), color) for color in ("white", "red", (250, 250, 250))]
    pictures = [place, with_thing, *pages, *plain]
    everything_near = np.ones((len(pictures), 4))
    assert find_duplicates(Held([*pictures]), everything_near) == []
    assert find_duplicates(Held([*pictures])) == []


def test_a_picture_that_cannot_be_read_has_no_copies() -> None:
    pictures = [scene(1), None, scene(1), scene(2)]
    [pair] = find_duplicates(Held(pictures), np.ones((4, 2)))
    assert (pair.first, pair.second, pair.kind) == (0, 2, "same")
    assert find_duplicates(Held([scene(1), None])) == []
    with pytest.raises(ValueError, match="vectors: expected one for each of 4 pictures, got 3"):
        find_duplicates(Held(pictures), np.ones((3, 2)))
