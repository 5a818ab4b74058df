"""Whatever a file holds, it is read or refused in a line; `malformed_files.py` says how."""

from pathlib import Path

import pytest

from malformed_files import KINDS, tried

MANY = ("pictures", "tables", "archives", "recipes")  # the others open a run each time


@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_file_is_read_or_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    found = tried(kind, range(40 if kind in MANY else 10), tmp_path)
    assert found.failed == []
    assert found.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_so_are_many_others(kind: str, tmp_path: Path) -> None:
    assert tried(kind, range(1000, 1400), tmp_path).failed == []
