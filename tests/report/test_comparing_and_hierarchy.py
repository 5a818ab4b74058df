"""compare and hierarchy: whole experiments with small real runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kinspace.data import load_dataset
from kinspace.evaluation.comparison import compare
from kinspace.evaluation.hierarchy_experiment import recover_hierarchy
from kinspace.evaluation.merged_classes import recovery_error
from kinspace.inference.run_embeddings import RunEmbeddings
from kinspace.report import write_comparison
from kinspace.run import Run, Splits, open_run
from kinspace.training.data_parts import split_names
from report.runs import OPTIONS, QUICK, trained
from report.test_page import checked

pytestmark = pytest.mark.slow  # four more trainings


@pytest.fixture(scope="module")
def runs(run: Run, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    more = [("triplet", 1), ("multi_similarity", 4), ("multi_similarity", 1)]
    return [run, *(trained(photos, folder / f"{m}{s}", method=m, seed=s) for m, s in more)]


def test_runs_that_differ_in_the_seed_alone_are_one_group(runs: list[Run]) -> None:
    found = compare(runs)
    recalls = [run.results["selected"]["recall@1"] for run in runs]
    assert [row["recall@1"] for row in found.runs] == pytest.approx(recalls)
    assert [(g["group"], g["seeds"]) for g in found.groups] == [
        ("triplet", [4, 1]),
        ("multi_similarity", [4, 1]),
    ]
    first, second = (group["recall@1"] for group in found.groups)
    assert first["mean"] == pytest.approx(np.mean(recalls[:2]))
    assert first["spread"] == pytest.approx(np.std(recalls[:2], ddof=1))
    [test] = found.tests
    assert test["by_picture"]["difference"] == pytest.approx(first["mean"] - second["mean"])
    assert test["by_picture"]["count"] == 80
    assert test["by_seed"]["count"] == 2


def test_the_comparison_is_a_page_with_its_numbers_beside_it(
    runs: list[Run], tmp_path: Path
) -> None:
    page = write_comparison(compare(runs), tmp_path)
    found = checked(page)
    for link in found.links:
        assert link.startswith("#") or (tmp_path / link).is_file()
    numbers = json.loads((tmp_path / "comparison.json").read_text())
    assert {row["run"] for row in numbers["runs"]} == {run.folder.name for run in runs}
    assert (tmp_path / "figures" / "loss.csv").read_text().count("first,") > 4


def test_one_run_is_nothing_to_compare(run: Run) -> None:
    with pytest.raises(ValueError, match="expected two or more runs to compare, got 1"):
        compare([run])


def test_hierarchy_recovery_trains_on_pairs_and_judges_on_the_true_classes(
    photos: Path, tmp_path: Path
) -> None:
    changes = QUICK | {"schedule.steps": 4}
    del changes["validation.fraction"]
    found = recover_hierarchy(
        str(photos), method="triplet", changes=changes, out=tmp_path / "run", seed=2, **OPTIONS
    )
    assert found["classes"] == 10
    assert len(found["merged_classes"]) == 5
    assert sorted(" + ".join(found["merged_classes"]).split(" + ")) == [
        f"digit {n}" for n in range(10)
    ]
    run = open_run(tmp_path / "run")
    assert run.about["classes"]["train"] == found["merged_classes"]
    assert json.loads((run.folder / "hierarchy.json").read_text()) == found

    # the same from the pictures' own folders: what is judged are the true classes
    whole = load_dataset(str(photos))
    pair_of = {
        one: number
        for number, pair in enumerate(found["merged_classes"])
        for one in pair.split(" + ")
    }
    labels = np.array([pair_of[whole.class_names[c]] for c in whole.labels.tolist()])
    coarse = replace(
        whole, labels=torch.from_numpy(labels), class_names=tuple(found["merged_classes"])
    )
    known, _, judged = split_names(coarse, "stratified", validation=0, seed=2)
    assert judged is not None
    embedder = RunEmbeddings(run, Splits(coarse, known, None, judged), device="cpu")
    truth = [
        [Path(part.pictures.name(i)).parent.name for i in range(len(part))]
        for part in (judged, known)
    ]
    expected = recovery_error(
        embedder.vectors(judged), np.array(truth[0]), embedder.vectors(known), np.array(truth[1])
    )
    assert found["errors"]["model"]["true"] == pytest.approx(expected)
    assert set(found["errors"]) == {"model", "untrained", "pixels"}


def test_of_an_odd_number_of_classes_one_stays_alone(photos: Path, tmp_path: Path) -> None:
    some = load_dataset(str(photos)).subset(list(range(5 * 16)))
    changes = QUICK | {"schedule.steps": 2}
    del changes["validation.fraction"]
    options = OPTIONS | {"baselines": False, "cache": str(tmp_path / "cache")}
    found = recover_hierarchy(
        some, method="triplet", changes=changes, out=tmp_path / "run", **options
    )
    assert sorted(name.count(" + ") for name in found["merged_classes"]) == [0, 1, 1]
    assert (found["known"], found["judged"]) == (60, 20)
    assert set(found["errors"]) == {"model"}
    assert (tmp_path / "cache/pictures.npy").is_file()


def test_hierarchy_needs_classes_to_merge(photos: Path) -> None:
    few = load_dataset(str(photos)).subset(list(range(40)))
    with pytest.raises(ValueError, match="at least 4 classes to merge in pairs, got 3"):
        recover_hierarchy(few)
