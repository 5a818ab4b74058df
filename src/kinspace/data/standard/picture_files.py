"""The pictures of a copy: in their folder, or in the zip archives beside the lists."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from kinspace.data.archives import ArchivePictures
from kinspace.data.pictures import FilePictures, Pictures
from kinspace.data.standard.source import Source

__all__ = ["JoinedArchives", "find_pictures"]


class JoinedArchives:
    """Pictures from several archives as one collection: places are (archive, picture in it)."""

    def __init__(
        self, archives: Sequence[ArchivePictures], places: Sequence[tuple[int, int]]
    ) -> None:
        self._archives = list(archives)
        self._places = list(places)

    def __len__(self) -> int:
        return len(self._places)

    def name(self, index: int) -> str:
        """The archive and the picture's place in it."""
        archive, place = self._places[index]
        return self._archives[archive].name(place)

    def read(self, index: int) -> Image.Image:
        """The picture, upright RGB."""
        archive, place = self._places[index]
        return self._archives[archive].read(place)

    def stamp(self, index: int) -> object:
        """The archive's: size and time."""
        archive, place = self._places[index]
        return self._archives[archive].stamp(place)


def find_pictures(
    source: Source, root: Path, names: Sequence[str], *, folder: str = ""
) -> Pictures:
    """The named pictures in `folder` under `root`; all must be there.

    Without that folder, in zip archives beside it, as `name` or as `folder/name`.
    """
    if (root / folder).is_dir():
        return _in_folder(source, root, names, folder)
    return _in_archives(source, root, names, folder)


def _in_folder(source: Source, root: Path, names: Sequence[str], folder: str) -> FilePictures:
    base = root / folder
    inside: dict[str, set[str]] = {}  # to list a folder is faster than to stat each file
    absent = []
    for name in names:
        parent, _, file = name.rpartition("/")
        if parent not in inside:
            place = base / parent
            inside[parent] = {path.name for path in place.iterdir()} if place.is_dir() else set()
        if file not in inside[parent]:
            absent.append(f"{folder}/{name}" if folder else name)
    if absent:
        raise source.missing_files(root, absent)
    return FilePictures([base / name for name in names], root=root)


def _in_archives(source: Source, root: Path, names: Sequence[str], folder: str) -> JoinedArchives:
    archives = sorted(root.glob("*.zip"))
    found: dict[str, tuple[int, str]] = {}  # name -> archive, member
    for number, archive in enumerate(archives):
        for member in _members(source, archive):
            found.setdefault(member.removeprefix(f"{folder}/"), (number, member))
    absent = [f"{folder}/{name}" for name in names if name not in found]
    if absent:
        raise source.missing_files(root, absent)
    members: defaultdict[int, list[str]] = defaultdict(list)
    places = []
    for name in names:
        number, member = found[name]
        places.append((number, len(members[number])))
        members[number].append(member)
    joined = [ArchivePictures(archive, members[n]) for n, archive in enumerate(archives)]
    return JoinedArchives(joined, places)


def _members(source: Source, archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{source.title}: cannot read {archive}: {error}. Get it from {source.home}"
        ) from None
