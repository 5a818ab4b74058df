"""kinspace train: options, run folders and invalid input."""

from pathlib import Path

import pytest

from kinspace.run import open_run
from training_commands import QUICK, run_here

METHOD = ["--method", "contrastive", "--steps", "2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "DATA: expected a folder, a table, an archive or a name"),
        (["nowhere"], "nowhere"),
        (["PHOTOS", "--method", "nrs"], "unknown recipe 'nrs'; did you mean 'nra'"),
        (["PHOTOS", "--set", "loss.alfa=3"], "did you mean 'alpha'?"),
        (["PHOTOS", "--set", "los.alpha=3"], "unknown key 'los'; did you mean 'loss'?"),
        (["PHOTOS", "--set", "loss.alpha=big"], "loss.alpha: expected a finite number, got 'big'"),
        (["PHOTOS", "--backbone", "smal"], "--backbone: model.backbone: unknown backbone 'smal'"),
        (["PHOTOS", "--set", "loss.alpha"], "--set: expected KEY=VALUE"),
        (["PHOTOS", "--loss", "triplets"], "did you mean 'triplet'?"),
        (
            ["PHOTOS", "--regularizer", "density:much"],
            "--regularizer: expected NAME or NAME:WEIGHT",
        ),
        (["PHOTOS", "--backbone", "resnet5"], "did you mean"),
        (["PHOTOS", "--split", "half"], "split: expected one of"),
        (["PHOTOS", "--precision", "half"], "precision: expected one of"),
        (["PHOTOS", "--device", "tpu9"], "device: expected"),
        (["PHOTOS", "--batch", "33"], "--batch: expected a multiple of"),
        (["PHOTOS", "--weights", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--resume", "x", "--steps", "9"], "continues the run with its own settings, got --steps"),
        (["--resume", "nowhere"], "nowhere: expected a run folder, got no such folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_of_the_user_is_told_in_words(
    arguments: list[str], said: str, photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [photos if argument == "PHOTOS" else argument for argument in arguments]
    failed = run_here(*given)
    assert failed.exit_code == 2, failed.output
    assert said in failed.stderr
    assert "Traceback" not in failed.output
    assert failed.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_name_is_numbered(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        done = run_here(photos, *METHOD, *QUICK)
        assert done.exit_code == 0, done.stderr
        assert f"run folder: runs/photos-contrastive-{number}" in done.stdout
    assert open_run(Path("runs/photos-contrastive-2")).finished
    assert "raw pixels" in done.stdout
    assert "untrained backbone" in done.stdout
    assert "validation: 24 in 2 classes" in done.stderr
    again = run_here(photos, *METHOD, *QUICK, "--out", "runs/photos-contrastive-1")
    assert again.exit_code == 2
    assert "has a run already; resume it (--resume" in again.stderr


def test_options_of_the_command_reach_the_recipe(photos: str, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    options = ["--regularizer", "orthogonal:0.5", "--batch", "6", "--set", "sampler.samples=2"]
    options += ["--set", "model.backbone=mnist_convnet", "--set", "model.options={}"]
    options += ["--set", "transform.size=28", "--set", "transform.resize=32"]
    options += ["--loss", "triplet", "--seed", "4", "--micro-batch", "3", "--quiet", "--out", out]
    done = run_here(photos, *METHOD, *QUICK, *options)
    assert done.exit_code == 0, done.stderr
    assert done.output == ""
    about = open_run(out).about
    assert about["recipe"]["loss"]["name"] == "triplet"
    assert about["recipe"]["model"]["backbone"] == "mnist_convnet"
    assert about["recipe"]["regularizers"][0]["weight"] == 0.5
    assert about["recipe"]["sampler"]["classes"] == 3
    assert about["seed"] == 4
    assert about["settings"]["micro_batch"] == 3
    row = open_run(out).metrics[-1]
    assert {"loss", "orthogonal", "recall@1"} <= row.keys()


def test_a_table_with_columns_of_any_names_trains_and_opens_again(
    photos: str, tmp_path: Path
) -> None:
    pictures = sorted(Path(photos).glob("*/*"))
    rows = ["file,species", *(f"{picture},{picture.parent.name}" for picture in pictures)]
    table, out = tmp_path / "labels.csv", str(tmp_path / "run")
    table.write_text("\n".join(rows), encoding="utf-8")
    unnamed = run_here(str(table), *METHOD, *QUICK, "--out", out)
    assert unnamed.exit_code == 2
    assert "expected a column 'path'" in unnamed.stderr
    assert "--path-column" in unnamed.stderr
    named = ["--path-column", "file", "--label-column", "species", "--allow-outside", "--quiet"]
    done = run_here(str(table), *METHOD, *QUICK, *named, "--out", out)
    assert done.exit_code == 0, done.stderr
    run = open_run(out)
    assert run.about["columns"] == {"path": "file", "label": "species"}
    assert run.splits().own
    assert run.splits(str(table)).own
