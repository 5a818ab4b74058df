"""evaluate, on a real run and on tables: every section against loops written here."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

import kinspace
from kinspace.data import digits_dataset
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.comparison import compare
from kinspace.evaluation.evaluator import evaluate, evaluate_tables
from kinspace.evaluation.protocols import halves, open_set, verification
from kinspace.evaluation.summary import summarize
from kinspace.run import Run, open_run
from kinspace.training.checkpoint import read_checkpoint, write_checkpoint
from report.runs import OPTIONS, QUICK

MEASURES = ("recall@1", "recall@2", "recall@4", "recall@8", "map", "map@r", "r_precision")


def blobs(classes: int = 8, each: int = 10, *, noise: float = 1.0, seed: int = 0) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    labels = np.arange(classes * each) % classes
    centers = 2 * rng.standard_normal((classes, 6))
    return EmbeddingTable(centers[labels] + noise * rng.standard_normal((len(labels), 6)), labels)


def units(table: EmbeddingTable) -> np.ndarray:
    return table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)


def test_a_run_scores_what_its_training_has_written_down(run: Run) -> None:
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


def test_a_set_with_queries_and_a_gallery_is_judged_by_these(photos: Path, tmp_path: Path) -> None:
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_measures_on_a_gpu_are_those_on_the_cpu() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 20
    vectors = rng.standard_normal((20, 16))[labels] + rng.standard_normal((600, 16))
    attributes = rng.random((600, 3)) < 0.4
    table = EmbeddingTable(
        vectors.astype(np.float32),
        labels,
        attributes=attributes.astype(np.float32),
        attribute_names=("a", "b", "c"),
    )
    there, here = (summarize(table, device=device).to_dict() for device in ("cuda", "cpu"))
    for section in ("retrieval", "by_class", "by_attribute", "classification", "geometry"):
        assert numbers(there[section]) == pytest.approx(
            numbers(here[section]), rel=1e-3, abs=1e-5, nan_ok=True
        )
    assert there.keys() == here.keys()


def numbers(value: Any, name: str = "") -> dict[str, float]:
    """The numbers of nested tables and lists, by their paths."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            path: n for key, each in inner for path, n in numbers(each, f"{name}/{key}").items()
        }
    return {name: value} if isinstance(value, int | float) else {}


def test_embeddings_are_kept_and_made_anew_for_other_weights(run: Run, tmp_path: Path) -> None:
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


def test_other_data_is_judged_as_a_whole_and_that_is_said(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder)
    some = digits_dataset().subset(list(range(60)))
    found = evaluate(folder, some)
    assert found.parts == {"test": {"pictures": 60, "classes": 10}}
    assert "judged on other data" in found.notes[0]
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
    with pytest.raises(ValueError, match="not what it was trained on"):
        evaluate(folder)


def test_a_run_under_way_and_a_folder_without_a_run_are_errors(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"without run\.json"):
        evaluate(tmp_path)
    shutil.copy(run.folder / "run.json", tmp_path / "run.json")
    with pytest.raises(ValueError, match="expected the trained weights, got no such file"):
        evaluate(tmp_path)


def test_a_training_that_led_nowhere_is_noted(run: Run, tmp_path: Path) -> None:
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


def test_half_of_each_class_is_known_and_names_the_other_half() -> None:
    table = blobs(noise=2.0)
    assert table.labels is not None
    found = summarize(table).classification
    known, judged = halves(table.labels)
    assert sorted([*known, *judged]) == list(range(80))
    assert np.bincount(table.labels[known]).tolist() == [5] * 8
    wrong = {"knn": 0, "nearest_mean": 0}
    points = units(table)
    means = np.stack([points[known][table.labels[known] == c].mean(0) for c in range(8)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    for row in judged:
        near = known[np.argsort(-(points[known] @ points[row]), kind="stable")[:5]]
        votes = np.bincount(table.labels[near], minlength=8)
        wrong["knn"] += int(votes.argmax() != table.labels[row])
        wrong["nearest_mean"] += int((means @ points[row]).argmax() != table.labels[row])
    assert found is not None
    errors = {name: found["errors"][name] for name in wrong}
    assert errors == pytest.approx({name: count / len(judged) for name, count in wrong.items()})
    assert sum(row[2] for row in found["confusions"]) == wrong["knn"]


def test_of_many_samples_some_are_classified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinspace.evaluation.protocols.MOST_QUERIES", 12)
    found = summarize(blobs())
    assert found.classification is not None
    assert found.classification["queries"] == 12
    assert "classification: a random 12 of 40 samples were classified" in found.notes


def test_the_threshold_of_the_validation_classes_is_judged_on_the_test_classes() -> None:
    test, other = blobs(noise=1.5), blobs(5, noise=1.5, seed=1)
    found = summarize(test, validation=other, fmr=0.02).verification

    def rates(table: EmbeddingTable, threshold: float) -> tuple[float, float]:
        points = units(table).astype(np.float64)
        hits, pairs = {True: 0, False: 0}, {True: 0, False: 0}
        assert table.labels is not None
        for i in range(len(table)):
            for j in range(i):
                same = bool(table.labels[i] == table.labels[j])
                pairs[same] += 1
                hits[same] += int(points[i] @ points[j] >= threshold)
        return hits[True] / pairs[True], hits[False] / pairs[False]

    assert found is not None
    assert found["calibrated_on"] == "the validation classes"
    assert rates(other, found["threshold"])[1] <= 0.02
    assert rates(other, found["threshold"] - 0.05)[1] > 0.02
    assert (found["tmr"], found["fmr"]) == pytest.approx(rates(test, found["threshold"]), abs=2e-3)
    assert found["tmr_low"] <= found["tmr"] <= found["tmr_high"]


def test_without_validation_classes_half_of_the_classes_is_given_up_for_the_threshold() -> None:
    table = blobs()
    assert table.labels is not None
    found = verification(torch.from_numpy(table.vectors), table.labels, [], fmr=0.02)
    assert found is not None
    assert found["calibrated_on"] == "a random half of the classes"
    assert found["classes"] == 4


def test_unknown_classes_are_let_through_about_as_often_as_wanted() -> None:
    table = blobs(60, 8, noise=0.7)
    assert table.labels is not None
    found = open_set(torch.from_numpy(table.vectors), table.labels, [])
    assert found is not None
    assert found["false_alarms"] < 0.2
    assert found["identified"] + found["misidentified"] + found["rejected"] == pytest.approx(1)
    assert (found["known"], found["unknown"]) == (30 * 4, 15 * 8)


def test_the_same_seed_gives_the_same_evaluation_and_another_does_not() -> None:
    one, same, other = (summarize(blobs(noise=2.0), seed=seed).to_dict() for seed in (0, 0, 1))
    assert one == same
    assert one["classification"] != other["classification"]
    assert one["retrieval"] == other["retrieval"]


def test_a_large_table_is_clustered_less_often_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinspace.evaluation.summary.CPU_BUDGET", 1.0)
    found = summarize(blobs())
    assert (found.clustering["restarts"], found.clustering["nmi_spread"]) == (1, 0)
    assert "clustering: 1 of 5 K-means, to save time on a CPU" in found.notes


def test_attributes_are_reported_by_attribute_and_beside_chance() -> None:
    table = blobs(noise=0.1)
    assert table.labels is not None
    striped = (table.labels < 2).astype(np.float32)[:, None]
    with_words = EmbeddingTable(
        table.vectors, table.labels, attributes=striped, attribute_names=("striped",)
    )
    found = summarize(with_words)
    assert found.attributes is not None
    assert found.attributes["precision"][1] == 1
    assert found.attributes["chance"] == pytest.approx(0.25)
    assert found.by_attribute["striped"]["queries"] == 20


def test_a_baseline_of_other_pictures_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 80 vectors like the model's, got 40"):
        summarize(blobs(), baselines={"untrained": blobs(4)})


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
