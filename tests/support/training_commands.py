"""The command, in this process and in one of its own: quick settings, and comparing two runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from kinspace.cli import app
from kinspace.training.run_folder import read_checkpoint

# pictures of 16 pixels through a narrow net: a step takes a few milliseconds
QUICK = [
    "--set", "model.options={width=4, size=16}",
    "--set", "model.dim=8",
    "--set", "transform.size=16",
    "--set", "transform.resize=18",
    "--set", "validation.every=10",
    "--set", "validation.fraction=0.4",
    "--device", "cpu",
    "--workers", "1",
]  # fmt: skip
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
CLOCKS = ("images/s", "left", "seconds")  # what two equal runs may differ in


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kinspace", "train", *arguments]


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=150,
        check=False,
        **options,
    )


def run_here(*arguments: str) -> Result:
    """The command in this process: quick, for its imports are done."""
    return CliRunner().invoke(app, ["train", *arguments])


def stopped_here(rows: int, folder: Path, *arguments: str) -> Result:
    """The command in this process, and Ctrl-C when its metrics have so many rows."""
    over = threading.Event()

    def watch() -> None:
        metrics = folder / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < rows:
            if over.wait(0.002):
                return
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return run_here(*arguments, "--out", str(folder))
    finally:
        over.set()
        watcher.join()


def killed_after(rows: int, folder: Path, number: signal.Signals, *arguments: str) -> str:
    """Start a training, send it a signal when its metrics have so many rows; what it has said."""
    metrics = folder / "metrics.jsonl"
    with subprocess.Popen(
        command(*arguments, "--out", str(folder)),
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        deadline = time.monotonic() + 120
        while not metrics.exists() or metrics.read_text().count("\n") < rows:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (-number, 130), said
    return said


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics without what depends on the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKS} for line in lines]


def assert_same_run(one: Path, other: Path) -> None:
    """The same numbers on the way, the same state at the end, to the last bit."""
    assert rows(one) == rows(other)
    for name in ("last.safetensors", "model.safetensors"):
        (tensors, state), (others, other_state) = (read_checkpoint(f / name) for f in (one, other))
        assert state == other_state
        assert tensors.keys() == others.keys()
        differing = [key for key in tensors if not same_bits(tensors[key], others[key])]
        assert not differing, differing
    verdicts = [json.loads((folder / "results.json").read_text()) for folder in (one, other)]
    assert {k: v for k, v in verdicts[0].items() if k != "seconds"} == {
        k: v for k, v in verdicts[1].items() if k != "seconds"
    }


def same_bits(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()
