"""Two real processes train like one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kinspace.training.run_folder import read_checkpoint
from training_commands import ENVIRONMENT, rows, run_here

# mnist_convnet has no batch norm, whose statistics would be those of half the batch
NO_BATCH_NORM = [
    "--set", "model.backbone=mnist_convnet", "--set", "model.options={}", "--set", "model.dim=8",
    "--set", "transform.size=28", "--set", "transform.resize=32",
    "--set", "validation.every=10", "--set", "validation.fraction=0.4", "--device", "cpu",
    "--workers", "1",
]  # fmt: skip


def torchrun(processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    started += ["--master-port", str(port), "-m", "kinspace", "train", *arguments]
    environment = {**ENVIRONMENT, "PYTHONWARNINGS": "default", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        started, capture_output=True, text=True, env=environment, timeout=200, check=False
    )


@pytest.mark.parametrize(
    "method",
    [
        ["--method", "proxy_anchor", "--regularizer", "density:1"],
        pytest.param(
            ["--method", "magnet", "--set", "sampler.clusters=3", "--set", "index.clusters=2",
             "--set", "index.refresh=4", "--set", "warm_start.steps=3", "--steps", "10",
             "--set", "optimizer.name=sgd", "--set", "sampler.samples=8"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["proxy_anchor with density", "magnet"],
)  # fmt: skip
def test_two_processes_have_the_losses_of_one(
    method: list[str], photos: str, tmp_path: Path
) -> None:
    arguments = [photos, "--steps", "20", *method, "--log-every", "1", *NO_BATCH_NORM]
    alone = run_here(*arguments, "--out", str(tmp_path / "one"))
    assert alone.exit_code == 0, alone.stderr
    together = torchrun(2, *arguments, "--out", str(tmp_path / "two"))
    assert together.returncode == 0, together.stderr
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(one) == len(two) > 10
    for mine, theirs in zip(one, two, strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            assert theirs[key] == pytest.approx(value, rel=1e-5, abs=1e-5), (key, mine["step"])
    (tensors, _), (others, _) = (
        read_checkpoint(tmp_path / name / "model.safetensors") for name in ("one", "two")
    )
    for key, value in tensors.items():
        assert (value - others[key]).abs().max() < 1e-4, key
