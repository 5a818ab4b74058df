"""Comparisons of small real runs, and their page."""

import json
from pathlib import Path

import numpy as np
import pytest

from digit_runs import trained
from html_checker import checked
from kinspace.evaluation.comparison import compare
from kinspace.report import write_comparison
from kinspace.run import Run

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
    assert test["by_picture"]["count"] == 160  # of two seeds, which have other test classes
    assert test["by_seed"]["count"] == 2
    assert not found.notes


def test_what_differs_is_said_and_what_it_changed(runs: list[Run]) -> None:
    found = compare(runs)
    differing = {one["setting"]: one["values"] for one in found.differences}
    assert differing["loss.name"] == {
        "triplet": ["triplet"],
        "multi_similarity": ["multi_similarity"],
    }
    assert not {"data", "split", "model.dim", "schedule.steps", "seed"} & differing.keys()
    [test] = found.tests
    clear = test["by_picture"]["p_value"] <= 0.05
    assert clear == (not test["by_picture"]["low"] <= 0 <= test["by_picture"]["high"])
    assert ("not clear" in test["conclusion"]) == (not clear)


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
