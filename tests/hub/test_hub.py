"""A run as a model repository, pushed to and fetched from a hub on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinspace
from bundles import bare_run, digits, run_with_gallery
from hub_server import hub_server
from kinspace.hub import model_card, save_repository
from kinspace.run import Run

SCRIPT = """
import sys
import numpy as np
import kinspace
run = kinspace.Run(sys.argv[1])
print(run.push_to_hub("me/digits", license="mit", token="hf_test"))
fetched = kinspace.load("me/digits")
picture = np.full((16, 16, 3), 90, np.uint8)
print(float(fetched.similarity(picture, run.model().encode(picture))[0, 0]))
try:
    kinspace.load("me/nothing")
except ValueError as error:
    print(error)
"""


def test_a_pushed_run_is_loaded_by_its_name(tmp_path: Path) -> None:
    run = run_with_gallery(tmp_path)
    with hub_server() as (address, hub):
        environment = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache")}
        environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, run],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
    assert done.returncode == 0, done.stderr
    pushed, similarity, nothing = done.stdout.splitlines()
    assert pushed == f"{address}/me/digits"
    assert float(similarity) == pytest.approx(1.0, abs=1e-5)
    assert nothing.startswith("me/nothing: could not be fetched: ")
    files = hub.files["me/digits"]
    assert {"config.json", "model.safetensors", "README.md", "thresholds.json"} <= set(files)
    assert "gallery.npz" not in files
    assert hub.private["me/digits"]  # nobody else sees a model that nobody asked to publish


def test_a_repository_says_nothing_of_the_machine_it_was_made_on(tmp_path: Path) -> None:
    folder = Run(bare_run(tmp_path)).save_repository(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert {"model", "transform", "recipe", "classes", "format"} <= set(config)
    for file in folder.iterdir():
        assert str(Path.cwd()).encode() not in file.read_bytes(), file


def test_a_repository_is_loaded_as_the_run_is(tmp_path: Path) -> None:
    run = run_with_gallery(tmp_path)
    folder = save_repository(run, tmp_path / "model", gallery=True)
    ours, theirs = kinspace.load(run, "cpu"), kinspace.load(folder, "cpu")
    picture = digits().pictures.read(3)
    np.testing.assert_array_equal(ours.encode(picture), theirs.encode(picture))
    assert theirs.search(picture, 1)[0].id == ours.search(picture, 1)[0].id
    assert theirs.thresholds == ours.thresholds


def test_the_card_has_numbers_thresholds_limits_and_the_license(tmp_path: Path) -> None:
    run = Run(run_with_gallery(tmp_path))
    card = model_card(run, name="me/digits", license="cc-by-4.0")
    found = run.results
    for text in (
        'license: "cc-by-4.0"',
        "library_name: kinspace",
        "kinspace.load('me/digits')",
        f"{100 * found['selected']['recall@1']:.1f} %",
        f"{100 * found['pixels']['recall@1']:.1f} %",
        "Data: digits, split `zero_shot`",
        "Calibrated on",
        "other pictures may differ",
    ):
        assert text in card, text
    assert "ask before you use it" in model_card(run, name="me/digits")


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    run = Run(bare_run(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="full: expected a new or empty folder"):
        run.save_repository(tmp_path / "full")
    with pytest.raises(ValueError, match=r"gallery: expected one in .*: kinspace index"):
        run.save_repository(tmp_path / "new", gallery=True)
    assert not (tmp_path / "new").exists()


def test_the_name_of_a_repository_has_two_parts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name: expected user/model, got 'digits'"):
        Run(bare_run(tmp_path)).push_to_hub("digits")
