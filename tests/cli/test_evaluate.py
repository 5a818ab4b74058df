"""kinspace evaluate, and what kinspace report has in common with it."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import run
from vector_files import blobs, saved


def test_evaluates_a_file_of_vectors(tmp_path: Path) -> None:
    file = saved(tmp_path, *blobs())
    said = run("evaluate", file)
    assert "vectors: 48 pictures in 8 classes" in said
    for words in ("Recall@1", "MAP@R", "NMI", "verification", "known or unknown", "suspect labels"):
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
def test_vectors_that_cannot_be_evaluated_are_invalid_input(
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
def test_a_missing_source_is_invalid_input(tmp_path: Path, name: str, said: str) -> None:
    for command in ("evaluate", "report"):
        assert said in run(command, tmp_path / name, code=2)


@pytest.mark.parametrize("command", ["evaluate", "report"])
@pytest.mark.parametrize(
    ("device", "said"),
    [("gpu", "device: expected cpu, cuda or cuda:1"), ("cuda:99", "expected one that is there")],
)
def test_a_missing_device_is_invalid_input(
    tmp_path: Path, command: str, device: str, said: str
) -> None:
    assert said in run(command, saved(tmp_path, *blobs()), "--device", device, code=2)


def test_vectors_of_one_direction_have_collapsed(tmp_path: Path) -> None:
    file = saved(tmp_path, np.outer(np.arange(1, 9), [1, 2, 3]), np.arange(8) % 2)
    found = json.loads(run("evaluate", file, "--json"))
    assert "all vectors are the same: the embedding has collapsed" in found["notes"]
    assert "effective_rank" not in found["geometry"]


def test_refuses_data_beside_a_table(tmp_path: Path) -> None:
    assert "got it with a table" in run("evaluate", saved(tmp_path, *blobs()), "digits", code=2)
