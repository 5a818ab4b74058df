"""What a resumed run refuses, says in a line, and takes up where it was."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from kinspace.training.run_folder import read_checkpoint, write_checkpoint
from odd_pictures import write_clean
from training_commands import QUICK, assert_same_run, run_here, stopped_here

ARGUMENTS = [
    "--method", "contrastive", "--steps", "40", "--save-every", "20", "--log-every", "8", *QUICK,
]  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a run on them that Ctrl-C has stopped between two rows."""
    place = tmp_path_factory.mktemp("stopped")
    write_clean(place / "photos", classes=10, each=12)
    before = Path.cwd()
    os.chdir(place)
    try:
        done = stopped_here(3, Path("run"), "photos", *ARGUMENTS)
    finally:
        os.chdir(before)
    assert done.exit_code == 130, done.stderr
    return place


@pytest.fixture
def place(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "place")


def test_a_stop_between_two_rows_leaves_no_trace_in_the_metrics(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    done = run_here("--resume", "run")
    assert done.exit_code == 0, done.stderr
    whole = tmp_path / "whole"
    assert run_here("photos", *ARGUMENTS, "--out", str(whole)).exit_code == 0
    assert_same_run(whole, place / "run")


def test_a_relative_data_path_is_found_from_another_folder(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(stopped / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    done = run_here("--resume", "run")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--seed", "5"],
        ["--seed", "0"],
        ["--method", "almn"],
        ["--method", "nosuch"],
        ["--cache", "none"],
        ["--no-baselines"],
        ["--skip-bad"],
        ["--log-every", "3"],
    ],
    ids=" ".join,
)
def test_an_option_that_would_not_be_heeded_is_refused(place: Path, options: list[str]) -> None:
    done = run_here("--resume", str(place / "run"), *options)
    assert done.exit_code == 2
    name = options[0].replace("--no-", "--")
    assert f"--resume: continues the run with its own settings, got {name} too" in done.stderr


def flip(file: Path, at: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(at * (len(data) - 1))] ^= 4
    file.write_bytes(bytes(data))


def edit(file: Path, change: Callable[[dict], object]) -> None:
    about = json.loads(file.read_text())
    change(about)
    file.write_text(json.dumps(about))


def replace_line(file: Path, number: int, text: str) -> None:
    lines = file.read_text().splitlines()
    lines[number] = text
    file.write_text("\n".join(lines) + "\n")


def at_step(file: Path, step: int) -> None:
    tensors, state = read_checkpoint(file)
    write_checkpoint(file, tensors, {**state, "step": step})


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of a weight": (
        lambda run: flip(run / "last.safetensors", 0.9),
        "last.safetensors: expected an undamaged checkpoint, got another checksum",
    ),
    "the last bit": (
        lambda run: flip(run / "last.safetensors", 1.0),
        "last.safetensors: expected an undamaged checkpoint, got another checksum",
    ),
    "a bit of the header": (
        lambda run: flip(run / "last.safetensors", 0.01),
        "last.safetensors: expected a",
    ),
    "another width": (
        lambda run: edit(run / "run.json", lambda about: about["recipe"]["model"].update(dim=12)),
        "last.safetensors: expected a checkpoint of the model in run.json, got another: ",
    ),
    "a step of 10^9": (
        lambda run: at_step(run / "last.safetensors", 10**9),
        "last.safetensors: expected a checkpoint of the model in run.json, got another: step 1,0",
    ),
    "run.json {}": (lambda run: (run / "run.json").write_text("{}"), "expected a run of format 1"),
    "run.json []": (lambda run: (run / "run.json").write_text("[]"), "expected a run of format 1"),
    "metrics {}": (
        lambda run: replace_line(run / "metrics.jsonl", 1, "{}"),
        "metrics.jsonl: line 2: expected a row of metrics with its phase and step, got b'{}'",
    ),
    "metrics []": (
        lambda run: replace_line(run / "metrics.jsonl", 0, "[]"),
        "metrics.jsonl: line 1: expected a row of metrics",
    ),
    "a last row of another kind": (
        lambda run: (run / "metrics.jsonl").write_text("[]\n"),
        "metrics.jsonl: line 1: expected a row of metrics",
    ),
    "metrics of bytes": (
        lambda run: (run / "metrics.jsonl").write_bytes(b"\xff\xfe\n{}\n"),
        "metrics.jsonl: line 1: expected a row of metrics",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_named_in_a_line(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage, said = DAMAGES[name]
    monkeypatch.chdir(place)
    damage(place / "run")
    done = run_here("--resume", "run")
    assert done.exit_code == 2, (done.exception, done.stderr)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if said[:20] in line]) == 1


def test_pictures_that_were_replaced_are_noticed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    picture = next((place / "photos" / "kind 3").iterdir())
    Image.new("RGB", (48, 48), "red").save(picture)
    done = run_here("--resume", "run")
    assert done.exit_code == 2
    assert "another contents: its pictures have other names or sizes now" in done.stderr
    picture.write_bytes(b"")
    done = run_here("--resume", "run")
    assert done.exit_code == 2
    assert "--skip-bad" not in done.stderr
    assert "restore them: run was started with these pictures" in done.stderr


def test_two_processes_do_not_train_in_one_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    code = (
        "import pathlib, time; from kinspace._core.locks import FolderLock\n"
        "with FolderLock(pathlib.Path('run/run.lock')).held('kinspace train'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            done = run_here("--resume", "run")
        finally:
            other.kill()
    assert done.exit_code == 1
    assert f"it is in use by process {other.pid} on " in done.stderr
    assert "(kinspace train), since" in done.stderr
    assert run_here("--resume", "run").exit_code == 0
