"""A journal: changes that are on the disk one after another before they are made anywhere else.

A record is a header (a mark, the length of the payload, its CRC-32, and the CRC-32 of the header)
and the payload: arrays in the format .npz, never pickled objects. A process that is killed while it
writes leaves a record that ends too early; it was not acknowledged, is not read, and the next one
is written in its place. A record that is whole and has another checksum is damaged, which is an
error.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core.atomic_files import DAMAGED_NPZ, to_disk

__all__ = ["Journal"]

MARK = b"KSJ1"
HEADER = struct.Struct("<4sQI")
CHECK = struct.Struct("<I")
PIECE = 2**24  # bytes written at a time
BEGIN = HEADER.size + CHECK.size  # bytes before a payload

Arrays = Mapping[str, NDArray[Any]]


class Journal:
    """The journal in a file, which need not be there yet. One process at a time may write it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder) / "a.journal")
    ...     end = journal.append({"x": np.arange(2)})
    ...     [(at == end, arrays) for at, arrays in journal.read()]
    [(True, {'x': array([0, 1])})]
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self, start: int = 0) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        """The records from a place on, each with the place behind it."""
        try:
            stream = self.file.open("rb")
        except FileNotFoundError:
            return
        with stream:
            stream.seek(start)
            while (payload := self._payload(stream, start)) is not None:
                start += BEGIN + len(payload)
                yield start, self._arrays(payload, start)

    def _payload(self, stream: Any, start: int) -> bytes | None:
        header = stream.read(BEGIN)
        if len(header) < BEGIN:
            return None
        mark, length, checksum = HEADER.unpack(header[: HEADER.size])
        if mark != MARK or CHECK.unpack(header[HEADER.size :])[0] != zlib.crc32(
            header[: HEADER.size]
        ):
            raise self._damaged(start)
        payload: bytes = stream.read(length)
        if len(payload) < length:
            return None
        if zlib.crc32(payload) != checksum:
            raise self._damaged(start)
        return payload

    def _arrays(self, payload: bytes, end: int) -> dict[str, NDArray[Any]]:
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as found:
                return {name: found[name] for name in found.files}
        except DAMAGED_NPZ:
            raise self._damaged(end - BEGIN - len(payload)) from None

    def _damaged(self, at: int) -> ValueError:
        return ValueError(
            f"{self.file}: expected a record at byte {at:,}, got damaged data; restore the file "
            "from a copy, or shorten it to that length to go on without what came later"
        )

    def append(self, arrays: Arrays) -> int:
        """Write a record behind the last whole one and bring it to the disk; the place behind it.

        If that fails, a full disk for one, the journal is as before.
        """
        written = io.BytesIO()
        np.savez(written, **arrays)  # type: ignore[arg-type]
        payload = written.getvalue()
        header = HEADER.pack(MARK, len(payload), zlib.crc32(payload))
        new, end = not self.file.exists(), self.end()
        record = header + CHECK.pack(zlib.crc32(header)) + payload
        try:
            with self.file.open("ab", buffering=0) as stream:
                stream.truncate(end)
                for at in range(0, len(record), PIECE):
                    _write_all(stream, record[at : at + PIECE])
                os.fsync(stream.fileno())
        except BaseException as error:
            self.cut(end)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, str(self.file)) from error
            raise
        if new:
            to_disk(self.file.parent)
        return end + BEGIN + len(payload)

    def end(self) -> int:
        """The place behind the last whole record."""
        try:
            size = self.file.stat().st_size
        except FileNotFoundError:
            return 0
        place = 0
        with self.file.open("rb") as stream:
            while place + BEGIN <= size:
                header = stream.read(BEGIN)
                mark, length, _ = HEADER.unpack(header[: HEADER.size])
                if mark != MARK:
                    raise self._damaged(place)
                if place + BEGIN + length > size:
                    break
                place += BEGIN + length
                stream.seek(place)
        return place

    def cut(self, end: int) -> None:
        """Remove the records behind a place."""
        if self.file.exists():
            os.truncate(self.file, end)
            to_disk(self.file)


def _write_all(stream: io.FileIO, data: bytes) -> None:
    """All of the data, where the system takes a part of it at a time."""
    while data:
        data = data[stream.write(data) or 0 :]
