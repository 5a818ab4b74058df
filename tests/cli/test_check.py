"""`kinspace check` on real files: what it says, and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kinspace.cli import app
from kinspace.models import DEFAULT_BACKBONE
from odd_pictures import scene, write_bad, write_clean, write_odd

SCRIPT = Path(sys.executable).parent / "kinspace"


def _kinspace(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT] if SCRIPT.exists() else [sys.executable, "-m", "kinspace"]
    environment = {**os.environ, "COLUMNS": "140", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture
def spoiled(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with one of each bad file and one of each odd one."""
    folder = tmp_path / "moths"
    write_clean(folder)
    write_odd(folder / "odd")
    bad = write_bad(folder / "bad luck")
    scene(0).resize((90, 60)).save(folder / "kind 1/copy of another.jpg")
    scene(60).save(folder / "bad luck/only one.png")
    return folder, bad


def test_lists_each_bad_file_and_exits_with_1(spoiled: tuple[Path, dict[str, str]]) -> None:
    folder, bad = spoiled
    done = _kinspace("check", folder)
    assert done.returncode == 1
    serve = f"kinspace serve {folder} --backbone {DEFAULT_BACKBONE} --skip-bad"
    assert done.stderr == f"next: {serve}\n"  # three classes are too few to train on
    for name, reason in bad.items():
        (line,) = [line for line in done.stdout.splitlines() if name in line]
        assert reason in line
    for text in ("copy of another.jpg", "1 class with one good picture only", "CMYK 1"):
        assert text in done.stdout


def test_as_json_it_says_the_same(spoiled: tuple[Path, dict[str, str]]) -> None:
    folder, bad = spoiled
    options = ("--json", "--skip-duplicates", "--workers", "2")
    done = CliRunner().invoke(app, ["check", str(folder), *options])
    assert done.exit_code == 1
    read = json.loads(done.stdout)
    assert {Path(file["name"]).name for file in read["bad"]} == set(bad)
    assert read["duplicates"] is None


def test_a_clean_folder_exits_with_0(tmp_path: Path) -> None:
    write_clean(tmp_path, classes=4)
    done = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stderr.startswith("next: kinspace train")
    assert done.stdout.rstrip().endswith("nothing is wrong")


def test_what_cannot_be_opened_exits_with_2_and_a_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(tmp_path / "missing")])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("cannot open")
    assert "Traceback" not in done.stderr


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kinspace", "check", "digits"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "next: kinspace train digits\n")
    assert "1,797 pictures in 10 classes" in done.stdout
