"""Data that a training cannot learn from is said by `check` and by `train` in the same words."""

from pathlib import Path

import pytest

from command_line import run
from kinspace.data import load_dataset
from kinspace.data.named_splits import split_names, split_problem
from odd_pictures import write_clean

CASES = {
    "one class": ((1, 5), "training needs pictures of at least 2 classes, got 1 class"),
    "one picture a class": ((6, 1), "needs at least 2 classes with 2 pictures or more, got 0 of 6"),
    "two classes": ((2, 8), "1 to train on and 1 for the test; 2 of each are needed; to test on"),
    "three small classes": ((3, 4), "add classes, or train without a test: --split all"),
}


@pytest.mark.parametrize("case", CASES)
def test_check_and_train_say_the_same_before_there_is_a_run_folder(
    case: str, tmp_path: Path
) -> None:
    (classes, each), said = CASES[case]
    photos, out = tmp_path / "photos", tmp_path / "run"
    write_clean(photos, classes=classes, each=each)
    (line,) = [line for line in run("check", photos, code=1).splitlines() if said in line]
    assert run("train", photos, "--out", out, code=2).strip() == line.strip()
    assert not out.exists()


def test_two_pictures_a_class_are_trained_on_in_smaller_batches(tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "run"
    write_clean(photos, classes=8, each=2)
    run("check", photos)
    options = ["--steps", "2", "--set", "warm_start.steps=0", "--backbone", "small"]
    said = run("train", photos, "--out", out, *options)
    assert "batches of 2 classes with 2 pictures of each: the recipe asks for 16 with 8" in said
    assert (out / "results.json").exists()


def test_the_way_out_that_is_offered_leads_out(tmp_path: Path) -> None:
    write_clean(tmp_path / "photos", classes=2, each=8)
    data = load_dataset(tmp_path / "photos")
    assert "--split stratified" in str(split_problem(data))
    assert split_problem(data, "stratified") is None
    assert split_problem(data, "all") is None


def test_official_parts_that_leave_nothing_to_compare_are_a_problem(tmp_path: Path) -> None:
    write_clean(tmp_path / "photos" / "train", classes=1, each=4)
    write_clean(tmp_path / "photos" / "test", classes=4, each=4)
    data = load_dataset(tmp_path / "photos")
    assert data.parts is not None
    assert "1 to train on and 4 for the test" in str(split_problem(data, "official"))


def test_a_usable_split_has_two_comparable_classes_in_each_part(tmp_path: Path) -> None:
    write_clean(tmp_path / "photos", classes=4, each=2)
    data = load_dataset(tmp_path / "photos")
    assert split_problem(data) is None
    train, _, test = split_names(data, "auto", validation=0.0, seed=0)
    assert test is not None
    assert min(train.num_classes, test.num_classes) == 2
