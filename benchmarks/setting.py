"""What a run was taken on and with: needed to read its numbers and to take them again."""

from __future__ import annotations

import contextlib
import datetime
import platform
import subprocess
from argparse import Namespace
from pathlib import Path

import torch
from peers import version

import kinspace


def setting(options: Namespace) -> dict[str, object]:
    hardware = f"{_processor()}, {options.threads} threads"
    if options.device == "cuda":
        hardware = f"{torch.cuda.get_device_name()} (CUDA {torch.version.cuda}), {_processor()}"
    return {
        "hardware": hardware,
        "kinspace": kinspace.__version__,
        "commit": options.commit or _commit(),
        "torch": str(torch.__version__),
        "pytorch_metric_learning": None if options.skip_pml else version(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "options": {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(options).items()
        },
    }


def heading(facts: dict[str, object], options: Namespace) -> str:
    peer = facts["pytorch_metric_learning"]
    beside = f", pytorch-metric-learning {peer}" if peer else ""
    compiled = ", ours compiled" if options.compile else ""
    return (
        f"{facts['hardware']}; torch {facts['torch']}{beside}, kinspace at {facts['commit']}. "
        f"Dimension {options.dim}, {options.group} samples a class, float32{compiled}."
    )


def _processor() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of this checkout, with a + where tracked files differ from it."""
    ask = ["git", "-C", str(Path(__file__).parent), "describe"]
    ask += ["--always", "--abbrev=12", "--dirty=+"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(ask, capture_output=True, check=True, text=True).stdout.strip()
    return "unknown"
