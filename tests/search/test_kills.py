"""A process that changes a gallery, trains or runs a command, killed where it touches a file.

In the fast suite with the exact index and a sample of moments; `kill_points.py` says how.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "support" / "kill_points.py"
SAMPLE = {
    "gallery-exact-add": 5,
    "gallery-faiss-index": 14,
    "gallery-milvus-add": 9,
    "command-remove": 2,
}
BACKENDS, WORK = ("exact", "faiss", "milvus"), ("index", "add", "remove", "relabel", "save")
COMMANDS = ("index", "replace", "rebuild", "add", "remove", "relabel", "resume", "report")
ALL = [
    *(f"gallery-{backend}-{work}" for backend in BACKENDS for work in WORK),
    "train",
    *(f"command-{name}" for name in (*COMMANDS, "reproduce")),
]
EVERY = {"train": 4, "command-report": 12, "command-reproduce": 12, "command-index": 4}


def survives(name: str, every: int) -> None:
    command = [sys.executable, str(SCRIPT), name, "--every", str(every)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lost"] == []
    assert found["tried"] == -(-found["points"] // every) >= 3  # trials


@pytest.mark.parametrize("name", SAMPLE)
def test_a_change_that_was_killed_is_there_wholly_or_not_at_all(name: str) -> None:
    survives(name, SAMPLE[name])


def test_the_page_has_a_row_of_each() -> None:
    page = Path(__file__).parents[2] / "docs" / "reliability.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in ALL if f"| {name} |" not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_same_at_every_moment(name: str) -> None:
    survives(name, EVERY.get(name, 1))  # a trial of a training takes some seconds
