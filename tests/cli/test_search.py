"""kinspace search."""

import json
from pathlib import Path

import pytest
from PIL import Image

from bundles import bare_run, digits, run_with_gallery
from command_line import run


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    digits().pictures.read(20).save(tmp_path / "query.png")
    return tmp_path / "query.png"


def test_finds_a_picture_of_the_gallery(tmp_path: Path, picture: Path) -> None:
    folder = bare_run(tmp_path)
    said = run("index", folder, "--device", "cpu")
    assert "a gallery of 1,797 pictures, searched by exact" in said
    assert "calibrated on 1,797 pictures of 10 held-out classes" in said
    assert "with --strangers 0.15: of 100 pictures of known classes" in said
    table = run("search", folder, picture, "-k", "3", "--device", "cpu")
    assert "digit 20" in table
    assert "1.000" in table
    assert "the gallery has this very picture" in table
    picture_of_noise = picture.with_name("noise.png")
    Image.effect_noise((18, 18), 200).save(picture_of_noise)
    said = run("search", folder, picture_of_noise, "--strangers", "0.001", "--device", "cpu")
    assert "unknown: most like" in said
    assert "strangers: expected a rate" in run(
        "search", folder, picture, "--strangers", "2", "--device", "cpu", code=2
    )
    found = json.loads(run("search", folder, picture, "-k", "3", "--json"))
    assert found["neighbors"][0]["id"] == "digit 20"
    assert found["neighbors"][0]["similarity"] == pytest.approx(1, abs=1e-5)
    assert len(found["neighbors"]) == 3


def test_invalid_input_is_an_error_in_a_line(tmp_path: Path, picture: Path) -> None:
    assert "expected a run folder" in run("search", tmp_path / "none", picture, code=2)
    assert "make one with: kinspace index" in run("search", bare_run(tmp_path), picture, code=2)
    run("search", run_with_gallery(tmp_path), tmp_path / "no.png", code=2)
