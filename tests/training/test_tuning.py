"""A search: reproducible, judged by validation classes alone, and able to go on."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinspace
from kinspace.recipes import Range, read_recipe
from kinspace.run import open_run
from kinspace.training import Search, parse_range, tune
from kinspace.training.search_space import suggested
from odd_pictures import write_clean
from training.small import OPTIONS, QUICK, pictures

RANGES = {
    "optimizer.lr": Range(low=1e-4, high=1e-1, log=True),
    "model.dim": Range(choices=(4, 8)),
}
SHORT = QUICK | {"schedule.steps": 4, "validation.every": 2}


def searched(out: Path, trials: int, **options: Any) -> Search:
    ranges = options.pop("ranges", RANGES)
    changes = SHORT | options.pop("changes", {})
    data = options.pop("data", None)
    return tune(
        pictures() if data is None else data,
        method="contrastive",
        trials=trials,
        ranges=ranges,
        changes=changes,
        out=out,
        **{**OPTIONS, **options},
    )


def without_clocks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_the_best_trial_is_the_best_recipe(tmp_path: Path) -> None:
    search = searched(tmp_path / "search", 4)
    rows = [
        json.loads(line) for line in (tmp_path / "search/trials.jsonl").read_text().splitlines()
    ]
    assert search.trials == rows
    assert [row["trial"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        run = open_run(search.folder / row["folder"])
        assert row["recall@1"] == run.results["validation_recall@1"]
        assert run.about["recipe"]["optimizer"]["lr"] == row["values"]["optimizer.lr"]
        assert "selected" not in run.results  # nothing was judged by the test part
        assert "test" not in run.about["classes"]
    best = max(rows, key=lambda row: row["recall@1"])
    assert search.best.optimizer.lr == best["values"]["optimizer.lr"]
    assert search.best.model.dim == best["values"]["model.dim"]
    assert read_recipe(str(search.folder / "best.toml")) == search.best
    # the recipe trains, with the same validation classes, and has the recall it was chosen for
    method = str(search.folder / "best.toml")
    run = kinspace.train(pictures(), method=method, out=tmp_path / "run", **OPTIONS)
    assert run.results["validation_recall@1"] == best["recall@1"]
    assert "selected" in run.results


def test_the_test_part_is_never_read(tmp_path: Path) -> None:
    write_clean(tmp_path / "photos", classes=8, each=4)
    for label in range(4, 8):  # the half that tests is no pictures at all
        for picture in (tmp_path / "photos" / f"kind {label}").iterdir():
            picture.write_bytes(b"secret")
    options: dict[str, Any] = {"data": str(tmp_path / "photos"), "changes": {"sampler.samples": 2}}
    search = searched(tmp_path / "search", 2, **options)
    assert [row["state"] for row in search.trials] == ["done", "done"]
    with pytest.raises(ValueError, match="16 of 32 pictures cannot be read"):
        kinspace.train(
            str(tmp_path / "photos"), method=search.best, out=tmp_path / "run", **OPTIONS
        )


def test_a_search_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole", 4)
    first = searched(tmp_path / "parts", 2)
    assert without_clocks(first.trials) == without_clocks(whole.trials[:2])
    done = (tmp_path / "parts/trial-001/results.json").stat().st_mtime_ns
    second = searched(tmp_path / "parts", 4)
    assert without_clocks(second.trials) == without_clocks(whole.trials)
    assert second.best == whole.best
    # as if killed in the middle of the last trial
    lines = (tmp_path / "parts/trials.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "parts/trials.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    (tmp_path / "parts/trial-003/results.json").unlink()
    third = searched(tmp_path / "parts", 4)
    assert without_clocks(third.trials) == without_clocks(whole.trials)
    assert (tmp_path / "parts/trial-001/results.json").stat().st_mtime_ns == done
    with pytest.raises(ValueError, match=r"another seed: seed is 0 there, 1 here"):
        searched(tmp_path / "parts", 4, seed=1)
    other = {"optimizer.lr": Range(low=1e-5, high=1e-1, log=True)}
    with pytest.raises(ValueError, match=r"another recipe: recipe\.tune\.model\.dim"):
        searched(tmp_path / "parts", 4, ranges=other)


def test_a_trial_that_fails_is_written_down_and_the_rest_goes_on(tmp_path: Path) -> None:
    rates = {"optimizer.lr": Range(choices=(1e-3, 1e30))}
    search = searched(tmp_path, 6, ranges=rates, seed=2)
    by_rate = {row["values"]["optimizer.lr"]: row for row in search.trials}
    assert by_rate[1e-3]["state"] == "done"
    assert by_rate[1e30]["state"] == "failed"
    assert "not finite" in by_rate[1e30]["error"]
    assert search.best.optimizer.lr == 1e-3
    with pytest.raises(ValueError, match="no trial came to its end; the first: not finite"):
        searched(tmp_path / "all", 1, ranges={"optimizer.lr": Range(choices=(1e30,))})


def test_chance_is_even_in_its_range_and_by_the_seed() -> None:
    ranges = {
        "rate": Range(low=1e-5, high=1e-1, log=True),
        "margin": Range(low=0.0, high=2.0),
        "count": Range(low=1, high=3),
        "doubling": Range(low=1, high=64, log=True),
        "word": Range(choices=("a", "b")),
    }
    done: list[dict[str, Any]] = [{}] * 400
    drawn = [suggested("random", ranges, done[:n], seed=0) for n in range(400)]
    assert drawn[7] == suggested("random", ranges, done[:7], seed=0)
    assert drawn[7] != suggested("random", ranges, done[:7], seed=1)
    decades = np.histogram([math.log10(row["rate"]) for row in drawn], 4, (-5, -1))[0]
    assert decades.sum() == 400
    assert decades.min() > 70
    halves = np.histogram([row["margin"] for row in drawn], 4, (0, 2))[0]
    assert halves.min() > 70
    counts = [sum(row["count"] == number for row in drawn) for number in (1, 2, 3)]
    assert sum(counts) == 400
    assert min(counts) > 100
    doublings = [row["doubling"] for row in drawn]
    assert all(isinstance(number, int) and 1 <= number <= 64 for number in doublings)
    assert 0.35 < sum(number <= 8 for number in doublings) / 400 < 0.65
    assert {row["word"] for row in drawn} == {"a", "b"}


def test_ranges_are_read_from_the_command_line() -> None:
    assert parse_range("loss.alpha=1:8") == ("loss.alpha", Range(low=1, high=8))
    assert parse_range("a.b = 0.5:2.0") == ("a.b", Range(low=0.5, high=2.0))
    assert parse_range("a=sgd,adam")[1].choices == ("sgd", "adam")
    for wrong in ("a", "a=", "a=3", "a=1:2:lin", "a=2:1", "a=0:1:log", "a=1:", "a=x:y", "a=1,,2"):
        with pytest.raises(ValueError, match=r"--range: expected KEY=LOW:HIGH"):
            parse_range(wrong)


def test_what_cannot_be_searched_is_said_before_the_first_trial(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contrastive: expected ranges to search"):
        searched(tmp_path / "x", 2, ranges={})
    with pytest.raises(ValueError, match=r"tune\.loss\.margn: .* did you mean 'margin'"):
        searched(tmp_path / "x", 2, ranges={"loss.margn": Range(low=0.1, high=1.0)})
    with pytest.raises(ValueError, match="validation: expected classes to choose by"):
        searched(tmp_path / "x", 2, changes={"validation.fraction": 0.0})
    with pytest.raises(ValueError, match=r"validation: expected classes .* got 3 classes"):
        searched(tmp_path / "x", 2, data=pictures(classes=6))
    with pytest.raises(ValueError, match="sampler: expected one of 'random', 'optuna', got 'grid'"):
        searched(tmp_path / "x", 2, sampler="grid")
    assert not (tmp_path / "x").exists()


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'kinspace\[tune\]'"):
        searched(tmp_path / "x", 2, sampler="optuna")
    assert not (tmp_path / "x").exists()


def test_optuna_searches_where_it_was_good() -> None:
    pytest.importorskip("optuna")
    ranges = {"rate": Range(low=1e-5, high=1e-1, log=True), "layers": Range(choices=([1], [1, 2]))}
    rows: list[dict[str, Any]] = []
    for number in range(40):
        values = suggested("optuna", ranges, rows, seed=0)
        assert values == suggested("optuna", ranges, rows, seed=0)
        recall = 1 / (1 + (math.log10(values["rate"]) + 3) ** 2)
        row = {"state": "done", "recall@1": recall} if number % 7 else {"state": "failed"}
        rows.append({"values": values, **row})
    late = [abs(math.log10(row["values"]["rate"]) + 3) for row in rows[20:]]
    assert sum(late) / len(late) < 0.7  # by chance: 1
    assert all(row["values"]["layers"] in ([1], [1, 2]) for row in rows)
