"""Loops of one's own: several processes, Lightning, Accelerate, the Trainer of transformers."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, *arguments: object, processes: int = 1) -> str:
    """What an example prints; on several processes by torchrun."""
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(processes)]
    command += [str(EXAMPLES / example), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def gained(text: str) -> float:
    """Recall@1 after training less that before, from the last line."""
    before, after = (float(word.rstrip("%")) for word in text.split() if word.endswith("%"))
    return after - before


@pytest.mark.slow
def test_two_processes_train_the_weights_of_one(tmp_path: Path) -> None:
    alone, ddp, fsdp = (tmp_path / name for name in ("alone", "ddp", "fsdp"))
    options = ("--epochs", 2, "--save")
    assert gained(run("distributed.py", *options, alone)) > 10
    run("distributed.py", *options, ddp, processes=2)
    run("distributed.py", "--fsdp", *options, fsdp, processes=2)
    expected = torch.load(alone, weights_only=True)
    for file in (ddp, fsdp):
        found = torch.load(file, weights_only=True)
        for name, value in expected.items():
            assert torch.allclose(found[name], value, atol=1e-4), (file.name, name)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["lightning", "accelerate", "transformers"])
def test_the_loops_of_other_libraries_learn(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    assert gained(run(f"with_{package}.py")) > 10
