"""Real experiments in real processes: run, killed, gone on with, refused, failed."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from digit_experiment import OPTIONS, TOML, written
from kinspace._core.locks import try_lock
from kinspace.cli import app
from kinspace.data import load_dataset
from kinspace.data.named_splits import split_names
from kinspace.evaluation import recall_at_k
from kinspace.evaluation.cluster_metrics import clustering_metrics
from kinspace.reproduce import Outcome, make_jobs, read_experiment, reproduce
from kinspace.reproduce.training_processes import FailedRun, TrainingProcesses
from kinspace.run import open_run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def outcome(place: Path) -> Outcome:
    """Two rows, two seeds, two at a time; one of the runs was killed before."""
    file = written(place)
    job = make_jobs(read_experiment(file), "digits", [0])[0]
    processes = TrainingProcesses(place / "out", "digits", device="cpu", workers=1, save_every=3)
    _killed(processes, job, "--log-every", "1")
    return reproduce(file, seeds=2, jobs=2, out=place / "out", results=place / "results", **OPTIONS)


def _killed(processes: TrainingProcesses, job: Any, *options: str) -> None:
    """Start a job, and kill it at its first checkpoint."""
    folder = processes.out / job.name
    processes.out.mkdir()
    environment = processes.environment() | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*processes.arguments(job), *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (folder / "last.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert not (folder / "results.json").exists()


def test_a_killed_run_goes_on_and_all_come_to_their_end(outcome: Outcome, place: Path) -> None:
    assert outcome.failures == {}
    log = (place / "out/contrastive-seed0.log").read_text()
    assert "resuming at step" in log
    names = {path.name for path in (place / "out").iterdir() if path.is_dir()}
    assert names == {f"{row}-seed{seed}" for row in ("contrastive", "triplet") for seed in (0, 1)}


def test_mean_and_spread_are_those_of_the_run_folders(outcome: Outcome, place: Path) -> None:
    for row in ("contrastive", "triplet"):
        runs = [open_run(place / f"out/{row}-seed{seed}").results for seed in (0, 1)]
        summary = outcome.content["summary"][row]
        for measure in ("recall@1", "map@r"):
            values = [run["selected"][measure] for run in runs]
            assert summary["test"][measure]["mean"] == pytest.approx(np.mean(values), rel=1e-12)
            gap = abs(values[0] - values[1]) / np.sqrt(2)
            assert summary["test"][measure]["spread"] == pytest.approx(gap, rel=1e-9, abs=1e-15)
            assert summary["final"][measure]["mean"] == pytest.approx(
                np.mean([run["final"][measure] for run in runs])
            )
        validation = np.mean([run["validation_recall@1"] for run in runs])
        assert summary["validation"]["mean"] == pytest.approx(validation)
        assert summary["steps"] == [20]


def test_measures_the_training_does_not_write_are_of_its_chosen_model(
    outcome: Outcome, place: Path
) -> None:
    record = next(r for r in outcome.content["runs"] if (r["row"], r["seed"]) == ("triplet", 1))
    run, whole = open_run(place / "out/triplet-seed1"), load_dataset("digits")
    _, _, test = split_names(whole, "zero_shot", validation=0.4, seed=1)
    assert test is not None
    vectors = run.embeddings("test", data=whole, device="cpu").vectors
    found = clustering_metrics(vectors, test.labels.numpy(), seed=1)
    assert record["test"]["nmi"] == pytest.approx(found["nmi"], rel=1e-6)
    assert record["test"]["f1"] == pytest.approx(found["f1"], rel=1e-6)
    third = recall_at_k(vectors, test.labels.numpy(), (3,))[3]
    assert record["test"]["recall@3"] == pytest.approx(third, abs=1e-9)
    model = run.model("cpu")
    model.module.mirror, model.module.scales = True, (0.8, 1.0, 1.25)  # type: ignore[assignment]
    vectors = model.encode([test.pictures.read(place) for place in range(len(test))])
    first = recall_at_k(vectors, test.labels.numpy(), (1,))[1]
    assert record["test"]["views_recall@1"] == pytest.approx(first, abs=1e-9)
    other = next(r for r in outcome.content["runs"] if r["row"] == "contrastive")
    assert "views_recall@1" not in other["test"]


def test_the_recorded_command_repeats_the_numbers(outcome: Outcome, tmp_path: Path) -> None:
    record = next(r for r in outcome.content["runs"] if (r["row"], r["seed"]) == ("triplet", 0))
    words = shlex.split(record["command"])
    assert words[:3] == ["kinspace", "train", "digits"]
    options = ["--device", "cpu", "--workers", "1", "--out", str(tmp_path / "again")]
    done = CliRunner().invoke(app, [*words[1:], *options])
    assert done.exit_code == 0, done.stderr
    again = open_run(tmp_path / "again").results["selected"]
    assert record["test"]["recall@1"] == pytest.approx(again["recall@1"], abs=0.03)
    assert record["steps"] == 20


def test_records_say_what_they_were_made_with(outcome: Outcome) -> None:
    content = json.loads(outcome.results.read_text(encoding="utf-8"))
    assert content == outcome.content
    for record in content["runs"]:
        assert record["commit"] == "abc"
        assert {"torch", "python", "timm"} <= set(record["versions"])
        assert record["hardware"]["device"]
        assert record["seconds"] > 0


def test_what_is_recorded_is_not_run_again_even_without_its_folder(
    outcome: Outcome, place: Path, tmp_path: Path
) -> None:
    results = shutil.copytree(place / "results", tmp_path / "results")
    again = reproduce(
        place / "small.toml", seeds=2, out=tmp_path / "out", results=results, **OPTIONS
    )
    assert again.content["runs"] == outcome.content["runs"]
    assert not (tmp_path / "out").exists()


def test_other_settings_are_refused_in_the_same_place(outcome: Outcome, place: Path) -> None:
    options = {"seeds": 2, "out": place / "out", "changes": {"loss.margin": 0.4}, **OPTIONS}
    file = place / "small.toml"
    with pytest.raises(ValueError, match=r"has 4 runs of other settings .*--overwrite"):
        reproduce(file, results=place / "results", **options)
    with pytest.raises(
        ValueError, match=r"a run of other settings: .*loss.margin=0.4 now.*--overwrite"
    ):
        reproduce(file, results=place / "other", **options)


@pytest.mark.slow
def test_a_failing_run_is_told_with_its_log_beside_the_others(
    outcome: Outcome, place: Path, tmp_path: Path
) -> None:
    text = TOML.replace("settings.loss.margin = 0.3", "settings.optimizer.lr = 1e30")
    file = written(tmp_path, text)
    results = shutil.copytree(place / "results", tmp_path / "results")
    words = ["--device", "cpu", "--workers", "1", "--seeds", "1", "--overwrite"]
    words += ["--out", str(tmp_path / "out"), "--results", str(results)]
    done = CliRunner().invoke(app, ["reproduce", str(file), *words])
    assert done.exit_code == 1
    assert "failed: triplet-seed0: exit code 2" in done.stderr
    assert "not finite" in done.stderr
    content = json.loads((results / "small.json").read_text(encoding="utf-8"))
    left = [(record["row"], record["seed"]) for record in content["runs"]]
    assert ("contrastive", 0) in left  # as it was
    assert ("triplet", 0) not in left  # its record was of other settings
    assert "Nobody, Table 9" in done.stdout
    assert "ours, 2 seeds" in done.stdout


def test_a_run_that_outlived_its_parent_is_not_begun_twice(tmp_path: Path) -> None:
    job = make_jobs(read_experiment(written(tmp_path)), "digits", [0])[0]
    processes = TrainingProcesses(tmp_path / "out", "digits")
    processes.out.mkdir()
    with (processes.out / f"{job.name}.pid").open("a+") as lock:
        assert try_lock(lock)
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        process = subprocess.Popen(words, pass_fds=(lock.fileno(),))
    # its parent, killed here, had the open file too, and no time to write down the process
    try:
        with pytest.raises(FailedRun, match="is still running, in process that was just started"):
            processes.run(job)
        (processes.out / f"{job.name}.pid").write_text(str(process.pid))
        with pytest.raises(FailedRun, match=f"is still running, in process {process.pid}"):
            processes.run(job)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_killed_hierarchy_goes_on_too(tmp_path: Path) -> None:
    text = TOML.replace(
        '"recall@1", "recall@3", "nmi", "f1", "map@r", "views_recall@1"', '"recovery_error"'
    )
    text = text.replace("[settings]", 'kind = "hierarchy"\n[settings]')
    text = text.replace("steps = 20", "steps = 240").replace("validation = {", "#")
    text = text[: text.index("printed")] + text[text.index("[[rows]]", text.index("printed")) :]
    (job, _) = make_jobs(read_experiment(written(tmp_path, text)), "digits", [0])
    processes = TrainingProcesses(tmp_path / "out", "digits", device="cpu")
    _killed(processes, job)
    before = (tmp_path / "out" / job.name / "run.json").read_bytes()
    assert processes.arguments(job)[-1] == "--resume"
    folder = processes.run(job)
    assert (folder / "run.json").read_bytes() == before
    assert json.loads((folder / "hierarchy.json").read_text())["errors"]["model"]


@pytest.mark.slow
def test_a_polite_kill_stops_the_runs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    file = written(tmp_path, TOML.replace("schedule.steps = 20", "schedule.steps = 100000"))
    words = ["--only", "triplet", "--seeds", "1", "--device", "cpu", "--workers", "1"]
    words += ["--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "kinspace", "reproduce", str(file), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    metrics = tmp_path / "out/triplet-seed0/metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "interrupted; the same command continues" in said
    assert (tmp_path / "out/triplet-seed0/last.safetensors").exists()
    log = (tmp_path / "out/triplet-seed0.log").read_text()
    assert "stopped at step" in log
