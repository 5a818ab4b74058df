"""Arrays by name in one .npz file, never pickled, written in one piece."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core.atomic_files import write_atomically

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(file: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(f"{folder}/a.npz", {"ids": np.arange(2)})
    ...     read_arrays(f"{folder}/a.npz", ["ids"])
    {'ids': array([0, 1])}
    """

    def write(part: Path) -> None:
        with part.open("wb") as out:  # savez would add .npz to the name
            np.savez(out, **arrays)  # type: ignore[arg-type]

    write_atomically(Path(file), write)


def read_arrays(file: str | Path, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a file; a ValueError if it is none or lacks one that is needed."""
    try:
        # opened here: numpy leaves a broken archive open
        with Path(file).open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise ValueError(f"{file}: expected a saved index, got no such file") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"{file}: expected a saved index, got another file: {error}") from None
    if missing := [name for name in needed if name not in arrays]:
        raise ValueError(f"{file}: expected a saved index, got one without {', '.join(missing)}")
    return arrays
