"""A study: repeatable, scored on validation classes alone, resumed, shared by processes."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

import kinspace
from kinspace.recipes import Range, read_recipe
from kinspace.run import open_run
from kinspace.training import TuneResult, parse_range, tune, tuner
from kinspace.training.study import seeded_sampler, suggest
from odd_pictures import write_clean
from small_trainings import OPTIONS, QUICK, pictures
from training_commands import ENVIRONMENT
from training_commands import QUICK as QUICK_ARGUMENTS

RANGES = {
    "optimizer.lr": Range(low=1e-4, high=1e-1, log=True),
    "model.dim": Range(choices=(4, 8)),
}
SHORT = QUICK | {"schedule.steps": 4, "validation.every": 2}


def searched(out: Path, trials: int, **options: Any) -> TuneResult:
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
    rows = search.trials
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
    options: dict[str, Any] = {"data": str(tmp_path / "photos"), "split": "zero_shot"}
    options["changes"] = {"sampler.samples": 2}
    search = searched(tmp_path / "search", 2, **options)
    assert [row["state"] for row in search.trials] == ["done", "done"]
    with pytest.raises(ValueError, match="16 of 32 pictures cannot be read"):
        kinspace.train(
            str(tmp_path / "photos"),
            method=search.best,
            out=tmp_path / "run",
            split="zero_shot",
            **OPTIONS,
        )


def test_a_resumed_study_repeats_nothing(tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole", 4)
    first = searched(tmp_path / "parts", 2)
    assert without_clocks(first.trials) == without_clocks(whole.trials[:2])
    done = (tmp_path / "parts/trial-001/results.json").stat().st_mtime_ns
    second = searched(tmp_path / "parts", 4)
    assert without_clocks(second.trials) == without_clocks(whole.trials)
    assert second.best == whole.best
    assert (tmp_path / "parts/trial-001/results.json").stat().st_mtime_ns == done
    with pytest.raises(ValueError, match=r"another seed: seed is 0 there, 1 here"):
        searched(tmp_path / "parts", 4, seed=1)
    other = {"optimizer.lr": Range(low=1e-5, high=1e-1, log=True)}
    with pytest.raises(ValueError, match=r"another recipe: recipe\.tune\.model\.dim"):
        searched(tmp_path / "parts", 4, ranges=other)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_an_interrupted_trial_is_resumed_with_its_values(
    sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = searched(tmp_path / "whole", 3, sampler=sampler)
    calls: list[Path] = []

    def interrupted(*arguments: Any, out: Path, **options: Any) -> Any:
        calls.append(out)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return kinspace.train(*arguments, out=out, **options)

    monkeypatch.setattr(tuner, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "parts", 3, sampler=sampler)
    result = searched(tmp_path / "parts", 3, sampler=sampler)
    assert [path.name for path in calls] == ["trial-000", "trial-001", "trial-001", "trial-002"]
    assert without_clocks(result.trials) == without_clocks(whole.trials)


def test_what_a_killed_process_leaves_is_no_obstacle(tmp_path: Path) -> None:
    searched(tmp_path, 1)
    (tmp_path / "trial-001").mkdir()
    (tmp_path / "trial-001/recipe.toml").touch()  # killed before run.json
    (tmp_path / "journal.jsonl.lock").symlink_to("journal.jsonl")
    (tmp_path / ".tune.json.1.part").touch()
    assert [row["state"] for row in searched(tmp_path, 2).trials] == ["done", "done"]


def test_a_folder_with_other_files_is_no_study(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="expected a new or empty folder, got one with other"):
        searched(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_processes_share_a_study(photos: str, tmp_path: Path) -> None:
    arguments = [photos, "--method", "contrastive", "--trials", "4", "--steps", "3"]
    arguments += ["--range", "optimizer.lr=1e-4:1e-2:log", *QUICK_ARGUMENTS]
    folders = [tmp_path / "alone", tmp_path / "shared", tmp_path / "shared"]
    command = [sys.executable, "-m", "kinspace", "tune", *arguments, "--out"]
    started = [
        subprocess.Popen([*command, str(folder)], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        for folder in folders
    ]
    assert [process.wait(timeout=200) for process in started] == [0, 0, 0]
    assert {path.name for path in (tmp_path / "shared").glob("trial-*")} == {
        f"trial-00{number}" for number in range(4)
    }
    recipes = [
        [open_run(folder / f"trial-00{number}").about["recipe"] for number in range(4)]
        for folder in folders[:2]
    ]
    assert recipes[0] == recipes[1]
    assert (tmp_path / "shared/best.toml").read_text() == (tmp_path / "alone/best.toml").read_text()


def test_a_failed_trial_does_not_end_the_study(tmp_path: Path) -> None:
    rates = {"optimizer.lr": Range(choices=(1e-3, 1e30))}
    search = searched(tmp_path, 6, ranges=rates, seed=2)
    by_rate = {row["values"]["optimizer.lr"]: row for row in search.trials}
    assert by_rate[1e-3]["state"] == "done"
    assert by_rate[1e30]["state"] == "failed"
    assert "not finite" in by_rate[1e30]["error"]
    assert search.best.optimizer.lr == 1e-3
    with pytest.raises(ValueError, match="all trials failed; the first: not finite"):
        searched(tmp_path / "all", 1, ranges={"optimizer.lr": Range(choices=(1e30,))})


def draws(sampler: str, ranges: dict[str, Range], count: int, seed: int) -> list[dict[str, Any]]:
    """The values of a study whose trials with a rate near 1e-3 are the best; some fail."""
    study = optuna.create_study(direction="maximize", sampler=seeded_sampler(sampler, seed))
    rows = []
    for number in range(count):
        trial = study.ask()
        rows.append({key: suggest(trial, key, values) for key, values in ranges.items()})
        if number % 7:
            study.tell(trial, 1 / (1 + (math.log10(rows[-1]["rate"]) + 3) ** 2))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return rows


def test_random_values_are_uniform_in_their_range() -> None:
    ranges = {
        "rate": Range(low=1e-5, high=1e-1, log=True),
        "margin": Range(low=0.0, high=2.0),
        "count": Range(low=1, high=3),
        "doubling": Range(low=1, high=64, log=True),
        "word": Range(choices=("a", "b")),
    }
    drawn = draws("random", ranges, 400, 0)
    assert drawn[:9] == draws("random", ranges, 9, 0)
    assert drawn[:9] != draws("random", ranges, 9, 1)
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


def test_tpe_draws_near_the_best_values() -> None:
    ranges = {"rate": Range(low=1e-5, high=1e-1, log=True), "layers": Range(choices=([1], [1, 2]))}
    rows = draws("tpe", ranges, 40, 0)
    assert rows == draws("tpe", ranges, 40, 0)
    late = [abs(math.log10(row["rate"]) + 3) for row in rows[20:]]
    assert sum(late) / len(late) < 0.85  # at random: 1
    assert all(row["layers"] in ([1], [1, 2]) for row in rows)


def test_ranges_are_read_from_the_command_line() -> None:
    assert parse_range("loss.alpha=1:8") == ("loss.alpha", Range(low=1, high=8))
    assert parse_range("a.b = 0.5:2.0") == ("a.b", Range(low=0.5, high=2.0))
    assert parse_range("a=sgd,adam")[1].choices == ("sgd", "adam")
    for wrong in ("a", "a=", "a=3", "a=1:2:lin", "a=2:1", "a=0:1:log", "a=1:", "a=x:y", "a=1,,2"):
        with pytest.raises(ValueError, match=r"--range: expected KEY=LOW:HIGH"):
            parse_range(wrong)


def test_an_invalid_study_is_an_error_before_the_first_trial(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contrastive: expected ranges to search"):
        searched(tmp_path / "x", 2, ranges={})
    with pytest.raises(ValueError, match=r"tune\.loss\.margn: .* did you mean 'margin'"):
        searched(tmp_path / "x", 2, ranges={"loss.margn": Range(low=0.1, high=1.0)})
    with pytest.raises(ValueError, match="validation: expected classes to validate on"):
        searched(tmp_path / "x", 2, changes={"validation.fraction": 0.0})
    with pytest.raises(ValueError, match=r"validation: expected classes .* got 3 classes"):
        searched(tmp_path / "x", 2, data=pictures(classes=6))
    with pytest.raises(ValueError, match="sampler: expected one of 'random', 'tpe', got 'grid'"):
        searched(tmp_path / "x", 2, sampler="grid")
    assert not (tmp_path / "x").exists()


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'kinspace\[tune\]'"):
        searched(tmp_path / "x", 2)
    assert not (tmp_path / "x").exists()
