"""evaluate on a real run: what it measures, keeps, notes and refuses."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

import kinspace
from digit_runs import OPTIONS, QUICK
from kinspace.data import digits_dataset
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.comparison import compare
from kinspace.evaluation.evaluator import evaluate, evaluate_tables
from kinspace.run import Run, open_run
from kinspace.training.run_folder import read_checkpoint, write_checkpoint

MEASURES = ("recall@1", "recall@2", "recall@4", "recall@8", "map", "map@r", "r_precision")


def units(table: EmbeddingTable) -> np.ndarray:
    return table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)


def test_a_run_has_the_scores_in_its_results(run: Run) -> None:
    found = evaluate(run)
    for name, written in (("model", "selected"), ("untrained",) * 2, ("pixels",) * 2):
        ours = {key: found.retrieval[name][key] for key in MEASURES}
        assert ours == pytest.approx({key: run.results[written][key] for key in MEASURES})
    assert found.parts["test"] == {"pictures": 80, "classes": 5}
    kept = json.loads((run.folder / "evaluation.json").read_text())
    assert kept == json.loads(json.dumps(found.to_dict(), allow_nan=False))


def test_the_gap_is_recall_of_the_training_part_less_that_of_the_test_part(run: Run) -> None:
    found = evaluate(run)

    def recall(table: EmbeddingTable) -> float:
        near = NearestNeighbors(n_neighbors=2).fit(units(table)).kneighbors(units(table))[1][:, 1]
        assert table.labels is not None
        return float((table.labels[near] == table.labels).mean())

    assert found.gap is not None
    assert found.gap["train"]["recall@1"] == pytest.approx(recall(run.embeddings("train")))
    expected = recall(run.embeddings("train")) - recall(run.embeddings("test"))
    assert found.gap["gap"]["recall@1"] == pytest.approx(expected)


def test_a_set_with_queries_and_a_gallery_is_evaluated_with_them(
    photos: Path, tmp_path: Path
) -> None:
    for number in range(10):
        for at, file in enumerate(sorted((photos / f"digit {number}").iterdir())):
            part = "train" if number < 5 else ("query", "gallery", "gallery")[at % 3]
            place = tmp_path / "parts" / part / file.parent.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    run = kinspace.train(
        str(tmp_path / "parts"),
        method="triplet",
        changes=QUICK | {"schedule.steps": 2},
        out=tmp_path / "run",
        split="official",
        **OPTIONS,
    )
    table = run.embeddings("test")
    assert table.labels is not None
    points, asks = units(table), np.array(["query" in name.split("/") for name in table.ids])
    near = np.argmax(points[asks] @ points[~asks].T, axis=1)
    recall = (table.labels[~asks][near] == table.labels[asks]).mean()
    assert (asks.sum(), (~asks).sum()) == (30, 50)
    found = evaluate(run)
    assert found.retrieval["model"]["recall@1"] == pytest.approx(recall)
    assert found.retrieval["model"]["queries"] == 30
    assert run.results is not None
    assert run.results["selected"]["recall@1"] == pytest.approx(recall)
    assert sum(row["queries"] for row in found.by_class.values()) == 30
    assert any("30 queries of the data set" in note for note in found.notes)
    other = tmp_path / "other"
    shutil.copytree(run.folder, other)
    compared = compare([run, other])
    assert compared.runs[0]["recall@1"] == pytest.approx(recall)


def test_embeddings_are_kept_and_made_again_for_other_weights(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns("report", "embeddings"))
    copy = open_run(folder)
    said: list[str] = []
    first = copy.embeddings("test", status=said.append)
    assert "embedding the test part" in said
    said.clear()
    second = copy.embeddings("test", status=said.append)
    assert not said
    np.testing.assert_array_equal(first.vectors, second.vectors)
    tensors, state = read_checkpoint(folder / "model.safetensors")
    tensors["head.linear.weight"] *= torch.linspace(0.5, 2, 8)[:, None]
    write_checkpoint(folder / "model.safetensors", tensors, state)
    third = copy.embeddings("test", status=said.append)
    assert "embedding the test part" in said
    assert not np.array_equal(third.vectors, first.vectors)


def test_other_data_is_evaluated_as_a_whole_with_a_note(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder)
    some = digits_dataset().subset(list(range(60)))
    found = evaluate(folder, some)
    assert found.parts == {"test": {"pictures": 60, "classes": 10}}
    assert "evaluated on other data" in found.notes[0]
    assert found.gap is None
    again = evaluate(folder)  # and the run's own data afterwards
    assert again.parts["test"]["pictures"] == 80


def test_data_that_is_gone_or_changed_is_an_error_that_says_what_to_do(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"data": str(tmp_path / "gone")}))
    with pytest.raises(ValueError, match=r"its data cannot be opened .* say where it is now: DATA"):
        evaluate(folder)
    assert evaluate(folder, str(photos)).parts["train"]["classes"] == 3  # moved, but the same
    about["pictures"]["test"] += 1
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="not what the run was made of"):
        evaluate(folder)


def test_a_run_under_way_and_a_folder_without_a_run_are_errors(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"without run\.json"):
        evaluate(tmp_path)
    shutil.copy(run.folder / "run.json", tmp_path / "run.json")
    with pytest.raises(ValueError, match="expected the trained weights, got no such file"):
        evaluate(tmp_path)


def test_a_training_without_improvement_is_noted(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder)
    results = json.loads((folder / "results.json").read_text())
    said = []
    for step in (0, 8):
        (folder / "results.json").write_text(json.dumps(results | {"selected_step": step}))
        said.append(
            any("no step of the training was better" in note for note in evaluate(folder).notes)
        )
    assert said == [True, False]


def test_a_run_with_a_model_of_the_users_own_needs_it_again(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns("embeddings"))
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"model": "Net"}))
    with pytest.raises(ValueError, match="module of your own, Net; give one like it"):
        evaluate(folder)


def test_pictures_of_a_table_are_found_by_its_paths(run: Run) -> None:
    table = run.embeddings("test")
    assert len(evaluate_tables(table).pictures["test"]) == len(table)
