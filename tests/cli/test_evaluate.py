"""evaluate, report, compare and hierarchy from the command line; bad vectors get a clear answer."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinspace.cli import app
from report.runs import trained, write_digits


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def saved(folder: Path, vectors: object, labels: object = None) -> Path:
    file = folder / "vectors.npz"
    arrays = {"vectors": np.asarray(vectors, np.float32)}
    np.savez(file, **(arrays if labels is None else arrays | {"labels": np.asarray(labels)}))
    return file


def blobs(classes: int = 8, each: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(classes * each) % classes
    return 3 * rng.standard_normal((classes, 5))[labels] + rng.standard_normal(
        (len(labels), 5)
    ), labels


def test_vectors_from_anywhere_are_judged(tmp_path: Path) -> None:
    file = saved(tmp_path, *blobs())
    said = run("evaluate", file)
    assert "vectors: 48 pictures in 8 classes" in said
    for words in ("Recall@1", "MAP@R", "NMI", "verification", "open set", "suspect labels"):
        assert words in said
    found = json.loads(run("evaluate", file, "--json"))
    points, labels = blobs()
    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    nearest = (points @ points.T - 9 * np.eye(48)).argmax(1)
    assert found["retrieval"]["model"]["recall@1"] == (labels[nearest] == labels).mean()
    assert list(found["retrieval"]) == ["model"]


def test_the_metric_can_be_euclidean(tmp_path: Path) -> None:
    points, labels = blobs()
    points *= np.random.default_rng(1).uniform(0.2, 5, (48, 1))
    file = saved(tmp_path, points, labels)
    by = {
        metric: json.loads(run("evaluate", file, "--json", "--metric", metric))
        for metric in ("cosine", "euclidean")
    }
    distances = np.linalg.norm(points[:, None] - points, axis=2) + 1e9 * np.eye(48)
    expected = (labels[distances.argmin(1)] == labels).mean()
    assert by["euclidean"]["retrieval"]["model"]["recall@1"] == pytest.approx(expected)
    assert by["euclidean"]["retrieval"] != by["cosine"]["retrieval"]
    assert "metric: expected one of" in run("evaluate", file, "--metric", "manhattan", code=2)


@pytest.mark.parametrize(
    ("vectors", "labels", "said"),
    [
        ([[1, 2], [np.nan, 1], [3, 4]], [0, 0, 1], "NaN or infinity in 1 of 3 rows"),
        ([[1, 2], [np.inf, 1], [3, 4]], [0, 0, 1], "the first is row 1"),
        ([[1, 2], [2, 1], [3, 4]], [0, 0], "labels: expected 3, one for each vector, got 2"),
        (np.empty((0, 4)), np.empty(0, int), "expected at least one row and one column"),
        (np.empty((3, 0)), [0, 0, 1], "expected at least one row and one column"),
        ([[1, 2]], [0], "expected at least two"),
        ([[1, 2], [3, 4]], None, "labels: expected a class for each vector, got none"),
    ],
    ids=["NaN", "infinity", "count", "empty", "no columns", "one row", "no labels"],
)
def test_what_cannot_be_judged_is_an_error_in_a_sentence(
    tmp_path: Path, vectors: object, labels: object, said: str
) -> None:
    answer = run("evaluate", saved(tmp_path, vectors, labels), code=2)
    assert said in answer
    assert "Traceback" not in answer
    assert len(answer.strip().splitlines()) == 1


def test_one_class_has_defined_values(tmp_path: Path) -> None:
    file = saved(tmp_path, np.eye(5), np.zeros(5, int))
    found = json.loads(run("evaluate", file, "--json"))
    assert found["retrieval"]["model"]["recall@1"] == 1
    assert found["clustering"]["nmi"] == 1
    assert found["verification"] is None
    assert found["open_set"] is None
    assert "there is only one class, so nothing can be confused" in found["notes"]
    assert "nothing can be confused" in run("evaluate", file)


def test_without_positives_nothing_is_found_and_what_is_undefined_is_none(tmp_path: Path) -> None:
    file = saved(tmp_path, np.eye(5), np.arange(5))
    found = json.loads(run("evaluate", file, "--json"))
    scores = found["retrieval"]["model"]
    assert (scores["recall@1"], scores["map"], scores["no_match"]) == (0, None, 5)
    assert found["classification"] is None
    assert found["verification"] is None
    assert "classes with a single picture, which has no match: 5" in found["notes"]
    assert "this model" in run("evaluate", file)


def test_zero_vectors_are_counted_and_have_a_place_in_the_order(tmp_path: Path) -> None:
    points, labels = blobs()
    points[:3] = 0
    found = json.loads(run("evaluate", saved(tmp_path, points, labels), "--json"))
    assert found["notes"] == ["zero vectors, which have no direction: 3"]
    assert 0 < found["retrieval"]["model"]["recall@1"] < 1
    found = json.loads(run("evaluate", saved(tmp_path, np.zeros((6, 3)), [0, 1] * 3), "--json"))
    assert "all vectors are the same: the embedding has collapsed" in found["notes"]
    # all are alike, so the lower index comes first: row 1 sees rows 0 and 2, both of class 0
    assert found["retrieval"]["model"]["recall@2"] == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "no such folder"),
        ("missing.npz", "got nothing there"),
        ("vectors.xyz", "expected embeddings in a file ending in"),
    ],
)
def test_what_is_not_there_is_an_error_in_a_sentence(tmp_path: Path, name: str, said: str) -> None:
    for command in ("evaluate", "report"):
        assert said in run(command, tmp_path / name, code=2)


@pytest.mark.parametrize("command", ["evaluate", "report"])
@pytest.mark.parametrize(
    ("device", "said"),
    [("gpu", "device: expected cpu, cuda or cuda:1"), ("cuda:99", "expected one that is there")],
)
def test_a_device_that_is_not_there_is_an_error_in_a_sentence(
    tmp_path: Path, command: str, device: str, said: str
) -> None:
    assert said in run(command, saved(tmp_path, *blobs()), "--device", device, code=2)


def test_vectors_of_one_direction_have_collapsed(tmp_path: Path) -> None:
    file = saved(tmp_path, np.outer(np.arange(1, 9), [1, 2, 3]), np.arange(8) % 2)
    found = json.loads(run("evaluate", file, "--json"))
    assert "all vectors are the same: the embedding has collapsed" in found["notes"]
    assert "effective_rank" not in found["geometry"]


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    file = saved(tmp_path, *blobs())
    assert "is a file" in run("report", file, "-o", file, code=2)
    assert "is a file" in run("compare", tmp_path, tmp_path, "-o", file, code=2)


def test_data_beside_a_table_is_refused(tmp_path: Path) -> None:
    assert "got it with a table" in run("evaluate", saved(tmp_path, *blobs()), "digits", code=2)


@pytest.mark.slow
def test_a_run_is_judged_reported_and_compared(tmp_path: Path) -> None:
    photos = write_digits(tmp_path / "photos", each=8)
    one, two = (trained(photos, tmp_path / f"run{seed}", seed=seed) for seed in (0, 1))
    said = run("evaluate", one.folder)
    assert "raw pixels" in said
    assert "Recall@1 on training classes" in said
    page = Path(run("report", one.folder, "-o", tmp_path / "page").strip())
    assert page == tmp_path / "page" / "index.html"
    assert page.is_file()
    said = run("compare", one.folder, two.folder, "-o", tmp_path / "both")
    assert "±" in said
    assert (tmp_path / "both" / "index.html").is_file()
    found = json.loads(run("compare", one.folder, two.folder, "--json"))
    assert found["groups"][0]["seeds"] == [0, 1]
    assert "expected two or more" in run("compare", one.folder, code=2)
    assert "got run0 twice" in run("compare", one.folder, two.folder, one.folder, code=2)


def test_hierarchy_is_one_command(tmp_path: Path) -> None:
    photos = write_digits(tmp_path / "photos", each=8)
    small = ["model.options={width=4, size=16}", "transform.size=16", "transform.resize=18"]
    sets = [word for text in small for word in ("--set", text)]
    out = tmp_path / "run"
    options = ["--method", "triplet", "--steps", 3, "--device", "cpu", "--json", "-o", out]
    found = json.loads(run("hierarchy", photos, *sets, *options))
    assert set(found["errors"]) == {"model", "untrained", "pixels"}
    assert (out / "hierarchy.json").is_file()
    assert "there is a run in it already" in run("hierarchy", photos, "-o", out, code=2)
    quick = [*sets, *options[:-2]]
    again = json.loads(run("hierarchy", photos, *quick, "-o", out, "--resume"))
    assert again["errors"] == found["errors"]
    said = run("hierarchy", photos, *sets, *options[:6], "-o", out, "--resume")
    assert "photos: trained on 5 merged classes, made of 10 true classes; 20 test pictures" in said
    assert "judging: pixels" in said
    assert "a run of kinspace hierarchy, on merged classes" in run("evaluate", out, code=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--split", "zero_shot"], "split: expected one of 'stratified', 'official'"),
        (["--split", "official"], "has no official parts"),
        (["--method", "magnit"], "did you mean 'magnet'?"),
        (["--set", "validation.fraction=0.2"], "no class is held out here"),
        (["--set", "loss.nope=1"], "unknown option of magnet 'nope'"),
        (["--resume"], "resume: expected the run folder"),
    ],
)
def test_hierarchy_refuses_what_cannot_be_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in run("hierarchy", "digits", *options, code=2)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_starts_without_what_only_reports_need() -> None:
    code = (
        "import sys, kinspace.cli; "
        "print([m for m in ('matplotlib', 'jinja2', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
