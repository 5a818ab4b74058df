"""Hierarchy recovery: whole experiments with small real runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from digit_runs import OPTIONS, QUICK
from kinspace.data import load_dataset
from kinspace.data.named_splits import split_names
from kinspace.evaluation.classification import recovery_error
from kinspace.evaluation.hierarchy_recovery import recover_hierarchy
from kinspace.inference.run_embeddings import RunEmbeddings
from kinspace.run import Splits, open_run

pytestmark = pytest.mark.slow  # four more trainings


def test_trains_on_merged_pairs_and_evaluates_on_the_true_classes(
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
    assert (found["train_pictures"], found["test_pictures"]) == (60, 20)
    assert set(found["errors"]) == {"model"}
    assert (tmp_path / "cache/pictures.npy").is_file()


def test_hierarchy_needs_classes_to_merge(photos: Path) -> None:
    few = load_dataset(str(photos)).subset(list(range(40)))
    with pytest.raises(ValueError, match="at least 4 classes to merge in pairs, got 3"):
        recover_hierarchy(few)
