"""The scripts in benchmarks/ import what there is; what they measure is not run here."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_can_be_imported(name: str) -> None:
    command = [sys.executable, "-c", f"import {name}"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    missing = "No module named 'pytorch_metric_learning'"  # the extra `benchmark`
    assert done.returncode == 0 or missing in done.stderr, done.stderr
