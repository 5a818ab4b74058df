"""WebDataset shards: tar archives in which the files of a sample follow each other by one key.

    moths-000.tar: 0001.jpg 0001.cls 0002.jpg 0002.cls ...

The class is a text: the content of KEY.cls or KEY.txt, or `label`, `class` or `cls` of KEY.json.
Pictures are read in place, so the shards must not be compressed for speed. "moths-{000..015}.tar"
names all shards from 000 to 015.
"""

from __future__ import annotations

import json
import re
import tarfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, product
from pathlib import Path, PurePosixPath

from PIL import Image

from kinspace._core.checks import first_few
from kinspace.data.archives import ArchivePictures, read_member
from kinspace.data.dataset import Dataset, from_names, unlabeled

__all__ = ["expand_braces", "from_shards", "is_shard"]

RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
LABELS = (".cls", ".txt", ".json")  # the first that is there counts
KEYS = ("label", "class", "cls")  # of a .json
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LOOKED_AT = 50  # members, to tell shards from other archives


def expand_braces(text: str) -> list[str]:
    """The paths that a pattern names; without braces the text alone.

    >>> expand_braces("moths-{08..10}.tar")
    ['moths-08.tar', 'moths-09.tar', 'moths-10.tar']
    """
    parts, last = list[list[str]](), 0
    for found in RANGE.finditer(text):
        parts.append([text[last : found.start()]])
        low, high, words = found.groups()
        if words is not None:
            parts.append(words.split(","))
        else:
            numbers = range(int(low), int(high) + 1)
            parts.append([str(number).zfill(len(low)) for number in numbers])
        last = found.end()
    return ["".join(each) for each in product(*parts, [text[last:]])]


def is_shard(path: Path) -> bool:
    """Whether a file is a tar in which a picture has a KEY.cls, KEY.json or KEY.txt beside it."""
    try:
        with tarfile.open(path) as opened:
            names = [info.name for info, _ in zip(opened, range(LOOKED_AT), strict=False)]
    except (OSError, EOFError, tarfile.TarError):
        return False
    pictures = {_key(name) for name in names if _is_picture(name)}
    return any(_key(name) in pictures and _suffix(name) in LABELS for name in names)


def from_shards(paths: Sequence[Path], *, labeled: bool | None = None) -> Dataset:
    """The pictures of all shards in their order. labeled: False: without classes.

    >>> from_shards([Path("moths-0.tar")])
    Traceback (most recent call last):
    ValueError: moths-0.tar: expected a tar archive, got one that cannot be read: ...
    """
    shards, classes = list[ArchivePictures](), list[str | None]()
    for path in paths:
        try:
            with tarfile.open(path) as opened:
                samples = list(_samples(opened))
        except (OSError, EOFError, tarfile.TarError) as error:
            raise ValueError(
                f"{path}: expected a tar archive, got one that cannot be read: {error}"
            ) from None
        shards.append(ArchivePictures(path, [name for name, _ in samples]))
        classes += [label for _, label in samples]
    pictures, name = ShardPictures(shards), RANGE.sub("", paths[0].stem).rstrip("-_")
    if labeled is False or not any(label is not None for label in classes):
        return unlabeled(pictures, name=name)
    without = [pictures.name(place) for place, label in enumerate(classes) if label is None]
    if without:
        raise ValueError(
            f"{paths[0]}: expected a class for each picture (KEY.cls), got none for "
            f"{len(without):,}: {first_few(without)}"
        )
    return from_names(pictures, [str(label) for label in classes], name=name)


class ShardPictures:
    """The pictures of several archives, one after the other."""

    def __init__(self, shards: Sequence[ArchivePictures]) -> None:
        self._shards = list(shards)
        self._ends = list(accumulate(len(shard) for shard in shards))

    def __len__(self) -> int:
        return self._ends[-1]

    def name(self, index: int) -> str:
        """The shard and the member."""
        shard, place = self._at(index)
        return shard.name(place)

    def read(self, index: int) -> Image.Image:
        """The picture."""
        shard, place = self._at(index)
        return shard.read(place)

    def stamp(self, index: int) -> object:
        """Size and time of the shard."""
        shard, place = self._at(index)
        return shard.stamp(place)

    def _at(self, index: int) -> tuple[ArchivePictures, int]:
        number = bisect_right(self._ends, index)
        return self._shards[number], index - (self._ends[number - 1] if number else 0)


def _samples(opened: tarfile.TarFile) -> Iterator[tuple[str, str | None]]:
    """Each picture and its class, in the order of the archive."""
    members: dict[str, dict[str, tarfile.TarInfo]] = {}
    for info in opened:
        if info.isfile():
            members.setdefault(_key(info.name), {})[_suffix(info.name)] = info
    for files in members.values():
        picture = next((info.name for info in files.values() if _is_picture(info.name)), None)
        if picture is not None:
            yield picture, _label(opened, files)


def _label(opened: tarfile.TarFile, files: Mapping[str, tarfile.TarInfo]) -> str | None:
    suffix = next((each for each in LABELS if each in files), None)
    if suffix is None:
        return None
    info = files[suffix]
    text = read_member(opened, info).decode("utf-8", errors="replace").strip()
    if suffix != ".json":
        return text or None
    try:
        about = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{opened.name!s}/{info.name}: expected JSON, got {error}") from None
    values = about if isinstance(about, dict) else {}
    found = next((values[key] for key in KEYS if key in values), None)
    return None if found is None else str(found)


def _key(name: str) -> str:
    """The path up to the first dot of the file's name."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_picture(name: str) -> bool:
    return _suffix(name) in PICTURES
