"""Several real processes, as a training on several devices starts them."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

LIMIT_S = 150.0


def run_processes(script: str, world: int, folder: Path) -> list[dict[str, Any]]:
    """Start `python script RANK WORLD FOLDER` for each rank, wait for all; what each has left.

    The first one that fails ends the others, which would wait for it, and is shown in full.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    outputs = [folder / f"{rank}.log" for rank in range(world)]
    processes = []
    for rank, output in enumerate(outputs):
        with output.open("w") as log:
            command = [sys.executable, script, str(rank), str(world)]
            processes.append(
                subprocess.Popen([*command, str(folder)], env=environment, stdout=log, stderr=log)
            )
    try:
        deadline = time.monotonic() + LIMIT_S
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = "\n".join(
        f"--- rank {rank}, exit code {code} (None: still running)\n{output.read_text()}"
        for rank, (code, output) in enumerate(zip(codes, outputs, strict=True))
    )
    assert codes == [0] * world, said
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]
