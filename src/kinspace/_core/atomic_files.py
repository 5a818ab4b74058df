"""Files written atomically: to a temporary file beside their place, flushed, then renamed.

Renaming is atomic: after a crash or a power cut there is the old file or the new one, never half
of one.
"""

from __future__ import annotations

import json
import os
import socket
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "DAMAGED_NPZ",
    "clear_parts",
    "read_json",
    "to_disk",
    "write_atomically",
    "write_json",
]

# what NumPy raises on an .npz file that is damaged, or none: RuntimeError where a flipped bit says
# that it is encrypted, NotImplementedError where it names another compression
DAMAGED_NPZ = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a temporary file beside the path, flush it, and rename it to the path.

    If anything fails, a full disk for one, what was there before stays as it is. What a killed
    process of this machine has left beside the path is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", lambda path: path.write_text("all"))
    ...     sorted(p.name for p in Path(folder).iterdir())
    ['a.txt']
    """
    part = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        _clear_abandoned(path)
        write(part)
        to_disk(part)
        part.replace(path)
        to_disk(path.parent)  # the name too
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write {path}: {error.strerror or error}; the file before it is unharmed",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def clear_parts(folder: Path, names: str = "*") -> None:
    """Remove the temporary files of a killed process; names: of the files, as a pattern.

    Only for a caller that knows that no other process writes these files.

    >>> clear_parts(Path("no such folder"))
    """
    for part in folder.glob(f".{names}.part"):
        part.unlink(missing_ok=True)


def _clear_abandoned(path: Path) -> None:
    """Remove the parts of a file whose process is no longer there."""
    beginning = f".{path.name}.{socket.gethostname()}."
    for other in path.parent.iterdir():
        if other.name.startswith(beginning) and other.suffix == ".part":
            process = other.stem.removeprefix(beginning)
            if process.isdigit() and not _is_alive(int(process)):
                other.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Whether there is such a process; where that cannot be asked, there is."""
    if os.name != "posix":
        return True  # os.kill would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def to_disk(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk.

    >>> to_disk(Path.cwd())
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON atomically."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a ValueError if the file is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value
