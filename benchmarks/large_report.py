"""Time, memory and size of a whole report at the size of a large test set, part by part.

    python benchmarks/large_report.py                        # two CPU threads, 60,502 x 512
    python benchmarks/large_report.py --samples 15000 --classes 2806 --json report.json

Vectors as in `retrieval.py`: 11,316 classes, as many as in the test half of Stanford Online
Products. Their pictures are 500 JPEGs of noise, 128 pixels a side, in turns: no real picture
makes a larger page. A table has no baselines and no training part; a run ranks those as well.
Memory is the most that the process held, with Python, PyTorch and the vectors themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from retrieval import embed
from setting import setting

from kinspace.report import write_report
from kinspace.table import EmbeddingTable

ASKED_SECONDS = 480.0  # "minutes, not hours, on two cores"
ASKED_GIGABYTES = 3.0
ASKED_MEGABYTES = 15.0  # the page
PICTURES = 500


@dataclass
class Part:
    name: str
    seconds: float
    cpu_seconds: float
    gigabytes: float  # the most so far


class Parts:
    """What a report tells it is doing, with the time each took."""

    def __init__(self) -> None:
        self.found: list[Part] = []
        self._name = ""
        self._began: tuple[float, float] | None = None

    def __call__(self, name: str | None) -> None:
        now = time.perf_counter(), time.process_time()
        if self._began is not None:
            took = [after - before for before, after in zip(self._began, now, strict=True)]
            self.found.append(Part(self._name, *took, _peak()))
            print(f"{self._name:32} {took[0]:7.1f} s {took[1]:7.1f} CPU s", flush=True)
        self._began, self._name = (None if name is None else now), name or ""


def _peak() -> float:
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9


def table_of(options: argparse.Namespace, folder: Path) -> EmbeddingTable:
    """The vectors with their classes and a picture each."""
    vectors, labels = embed(
        options.samples, options.classes, options.dim, options.noise, options.seed
    )
    rng = np.random.default_rng(options.seed)
    files = [folder / f"{number}.jpg" for number in range(PICTURES)]
    for file in files:
        Image.fromarray(rng.integers(0, 256, (128, 128, 3), np.uint8)).save(file, quality=90)
    paths = tuple(str(files[row % PICTURES]) for row in range(options.samples))
    return EmbeddingTable(vectors.numpy(), labels.numpy(), paths=paths)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=60_502)
    parser.add_argument("--classes", type=int, default=11_316)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--noise", type=float, default=1.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--commit", help="the commit to name, where git is absent")
    options = parser.parse_args()
    options.skip_pml = True
    return options


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    facts = setting(options)
    parts = Parts()
    with tempfile.TemporaryDirectory() as name:
        table = table_of(options, Path(name))
        began = time.perf_counter()
        page = write_report(table, out=Path(name) / "report", device=options.device, tell=parts)
        seconds = time.perf_counter() - began
        parts(None)
        megabytes = page.stat().st_size / 1e6
    gigabytes = _peak()
    print(
        f"\n{facts['hardware']}; torch {facts['torch']}, kinspace at {facts['commit']}. "
        f"{options.samples:,} x {options.dim}, {options.classes:,} classes. Load "
        f"{os.getloadavg()[0]:.1f} in the last minute.\n"
    )
    for found, asked, unit in (
        (seconds, ASKED_SECONDS, "s"),
        (gigabytes, ASKED_GIGABYTES, "GB"),
        (megabytes, ASKED_MEGABYTES, "MB, the page"),
    ):
        print(f"{'pass' if found < asked else 'FAIL'}: {found:.1f} of at most {asked:g} {unit}")
    if options.json:
        whole = {"seconds": seconds, "gigabytes": gigabytes, "page_megabytes": megabytes}
        found = {"setting": facts, **whole, "parts": [asdict(part) for part in parts.found]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
