"""What `kinspace train` chooses by itself, beside a grid of learning rates and lengths.

    python benchmarks/selection.py cub200:DATA/cub200 --methods nra proxy_anchor --jobs 7
    python benchmarks/selection.py DATA --backbone googlenet --weights FILE --rates 3e-5 1e-4 3e-4

For each method: one training without options, which searches on held-out training classes, and a
training for each rate and length of the grid, on all training classes and judged on the test part.
The gap between the best of the grid, chosen by the test part, and the search, which never saw it,
is what not knowing the test part costs. Several trainings run at a time, each in a process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch


def jobs(options: argparse.Namespace) -> dict[str, list[str]]:
    """The options of `kinspace train`, by the names of the run folders."""
    common = [options.data, "--cache", str(options.work / "cache"), "--quiet"]
    common += ["--seed", str(options.seed)]
    for name in ("backbone", "weights"):
        if getattr(options, name):
            common += [f"--{name}", str(getattr(options, name))]
    for change in options.set:
        common += ["--set", change]
    found = {}
    for method in options.methods:
        found[f"{method}-search"] = [*common, "--method", method]
    for method, rate, steps in itertools.product(options.methods, options.rates, options.steps):
        words = [*common, "--method", method, "--set", f"optimizer.lr={rate}", "--steps", steps]
        words += ["--set", "validation.fraction=0", "--no-baselines"]
        found[f"{method}-{rate}-{steps}"] = words
    return found


def run(name: str, words: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Train, and read what the run folder says."""
    folder = options.work / f"{options.name}{name}"
    started = time.monotonic()
    command = [sys.executable, "-m", "kinspace", "train", *words, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"name": name, "seconds": round(time.monotonic() - started, 1)}
    if done.returncode:
        row["error"] = done.stderr[-500:]
        print(f"{name}: {row['error']}", flush=True)
        return row
    results = json.loads((folder / "results.json").read_text())
    row["results"] = {key: results[key] for key in ("untrained", "selected") if key in results}
    row["steps"] = results["steps"]
    text = f"{name}: Recall@1 {row['results']['selected']['recall@1']:.4f}"
    selection = folder / "selection.json"
    if selection.exists():
        row["selection"] = json.loads(selection.read_text())
        before = row["results"]["untrained"]["recall@1"]
        text += f" (untrained {before:.4f}); {row['selection']['reason']}"
    print(f"{text}; {row['steps']} steps, {row['seconds']:.0f} s", flush=True)
    if options.trace and "selection" in row:
        for each in row["selection"]["candidates"]:
            points = " ".join(
                f"{p['step']}:{100 * p['recall@1']:.1f}/{100 * p['map@r']:.1f}"
                for p in each["points"]
            )
            print(f"    {each['name']} [{each['seconds']:.0f} s] {points}", flush=True)
    return row


def main() -> None:
    """Run all jobs and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("data")
    add("--methods", nargs="+", default=["nra"])
    add("--backbone")
    add("--weights", type=Path)
    add("--rates", nargs="*", default=["3e-5", "1e-4", "3e-4"], help="of the grid")
    add("--steps", nargs="*", default=["500", "1000", "2000"], help="of the grid")
    add("--set", nargs="*", default=[], help="other values of every recipe, KEY=VALUE")
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=1, help="trainings at a time")
    add("--work", type=Path, default=Path("runs/selection"), help="for run folders and cache")
    add("--name", default="", help="before the names of the run folders")
    add("--trace", action="store_true", help="print what the search scored")
    add("--json", type=Path)
    add("--commit", default="")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options.work.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(run, *job, options) for job in jobs(options).items()]
        rows = [each.result() for each in waiting]
    if options.json:
        cuda = torch.cuda.is_available()
        table = {
            "data": options.data,
            "command": sys.argv[1:],
            "commit": options.commit,
            "torch": str(torch.__version__),
            "hardware": torch.cuda.get_device_name() if cuda else platform.processor(),
            "rows": rows,
        }
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
