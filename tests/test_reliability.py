"""docs/reliability.md: its tables have no losses, and its promises name tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of the table between two marks, without its head."""
    text = PAGE.partition(f"<!-- {name} -->")[2].partition("<!-- end")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line for line in text.splitlines() if line.strip()] == lines, "a line beside the table"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_process_that_was_killed_left_something_sound() -> None:
    found = rows("trials")
    assert len(found) > 20
    for name, moments, tried, survived in found:
        assert 0 < int(tried) <= int(moments), name
        assert survived == tried, name


def test_every_damaged_file_was_read_or_refused_in_a_line() -> None:
    found = rows("files")
    assert len(found) > 10
    for name, tried, read, refused, failed in found:
        assert int(read) + int(refused) == int(tried) > 0, name
        assert failed == "0", name


TESTS = sorted(set(re.findall(r"`(tests/[^`]+\.py)((?:::\w+)?)`((?:, `::\w+`)*)", PAGE)))


@pytest.mark.parametrize(("file", "first", "others"), TESTS)
def test_a_promise_names_tests_that_exist(file: str, first: str, others: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    for name in re.findall(r"::(\w+)", first + others):
        assert f"def {name}(" in text, f"{file} has no {name}"
