"""JSON objects in files, written in one piece."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinspace._core.atomic_files import write_atomically

__all__ = ["read_json", "write_json"]


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON in one piece."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; a ValueError if the file is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    assert isinstance(value, dict)
    return value
