"""summarize on tables: every section against loops written here."""

from typing import Any

import numpy as np
import pytest
import torch

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.protocols import halves, open_set, verification
from kinspace.evaluation.summary import summarize

MEASURES = ("recall@1", "recall@2", "recall@4", "recall@8", "map", "map@r", "r_precision")


def blobs(classes: int = 8, each: int = 10, *, noise: float = 1.0, seed: int = 0) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    labels = np.arange(classes * each) % classes
    centers = 2 * rng.standard_normal((classes, 6))
    return EmbeddingTable(centers[labels] + noise * rng.standard_normal((len(labels), 6)), labels)


def units(table: EmbeddingTable) -> np.ndarray:
    return table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)


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


def test_half_of_each_class_classifies_the_other_half() -> None:
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


def test_the_threshold_of_the_validation_classes_is_tested_on_the_test_classes() -> None:
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


def test_without_validation_classes_the_threshold_is_chosen_on_half_of_the_classes() -> None:
    table = blobs()
    assert table.labels is not None
    found = verification(torch.from_numpy(table.vectors), table.labels, [], fmr=0.02)
    assert found is not None
    assert found["calibrated_on"] == "a random half of the classes"
    assert found["classes"] == 4


def test_unknown_classes_are_accepted_about_as_often_as_allowed() -> None:
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


def test_a_large_table_is_clustered_less_often_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinspace.evaluation.summary.CPU_BUDGET", 1.0)
    found = summarize(blobs())
    assert (found.clustering["restarts"], found.clustering["nmi_spread"]) == (1, 0)
    assert "clustering: 1 of 5 K-means, to save time on a CPU" in found.notes


def test_attributes_are_reported_with_the_precision_of_random_pictures() -> None:
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
