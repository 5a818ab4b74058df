"""kinspace compare, and evaluate and report on the same runs."""

import json
from pathlib import Path

import pytest

from command_line import run
from digit_runs import trained, write_digits
from vector_files import blobs, saved


def test_refuses_a_file_as_the_output_folder_before_the_work(tmp_path: Path) -> None:
    file = saved(tmp_path, *blobs())
    assert "is a file" in run("compare", tmp_path, tmp_path, "-o", file, code=2)


@pytest.mark.slow
def test_runs_are_evaluated_reported_and_compared(tmp_path: Path) -> None:
    photos = write_digits(tmp_path / "photos", each=8)
    one, two = (trained(photos, tmp_path / f"run{seed}", seed=seed) for seed in (0, 1))
    said = run("evaluate", one.folder)
    assert "raw pixels" in said
    assert "Recall@1 on training classes" in said
    page = Path(run("report", one.folder, "-o", tmp_path / "page").splitlines()[0])
    assert page == tmp_path / "page" / "index.html"
    assert page.is_file()
    said = run("compare", one.folder, two.folder, "-o", tmp_path / "both")
    assert "±" in said
    assert (tmp_path / "both" / "index.html").is_file()
    found = json.loads(run("compare", one.folder, two.folder, "--json"))
    assert found["groups"][0]["seeds"] == [0, 1]
    assert "expected two or more" in run("compare", one.folder, code=2)
    assert "got run0 twice" in run("compare", one.folder, two.folder, one.folder, code=2)
