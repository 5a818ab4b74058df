"""A table that names pictures outside its folder is read only with --allow-outside."""

from pathlib import Path

import pytest

from command_line import run
from odd_pictures import write_clean
from training_commands import QUICK, run_here


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_clean(tmp_path / "photos", classes=6, each=4)
    rows = [
        f"../photos/{path.relative_to(tmp_path / 'photos')},{path.parent.name}"
        for path in sorted((tmp_path / "photos").rglob("*.png"))
    ]
    (tmp_path / "tables").mkdir()
    file = tmp_path / "tables" / "labels.csv"
    file.write_text("\n".join(["path,label", *rows]) + "\n")
    return file


def test_every_command_refuses_the_table_and_names_the_option(table: Path) -> None:
    for command in ("check", "train", "duplicates"):
        said = run(command, table, code=2)
        assert "expected pictures in the table's folder, got 24 of 24 outside" in said
        assert "--allow-outside" in said
    run("check", table, "--allow-outside", "--workers", "1")


def test_a_run_remembers_that_it_was_allowed(table: Path, tmp_path: Path) -> None:
    options = ["--method", "contrastive", "--steps", "4", "--allow-outside", *QUICK]
    done = run_here(str(table), *options, "--out", str(tmp_path / "run"))
    assert done.exit_code == 0, done.stderr
    run("index", tmp_path / "run")
    run("evaluate", tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").unlink()
    run("evaluate", tmp_path / "run", table, "--allow-outside")
    assert (tmp_path / "run" / "evaluation.json").exists()
