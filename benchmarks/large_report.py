"""Time, memory and size of a whole report at the size of a large test set, part by part.

    python benchmarks/large_report.py                        # two CPU threads, 60,502 x 512
    python benchmarks/large_report.py --samples 15000 --classes 2806 --json report.json

Vectors as in `retrieval.py`: 11,316 classes, as many as in the test half of Stanford Online
Products. Their pictures are 500 JPEGs of noise, 128 pixels a side, in turns, which take more bytes
than the page allows for, as the map of 5,000 photographs does. A table has no baselines and no
training part; a run ranks those as well.
Memory is the most that the process held, with Python, PyTorch and the vectors themselves.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from retrieval import arguments, conclude, embed
from setting import setting

from kinspace.embeddings import EmbeddingTable
from kinspace.report import write_report

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
            print(f"{self._name}: {took[0]:.1f} s", flush=True)
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


def to_markdown(parts: list[Part]) -> str:
    rows = [["part", "s", "CPU s"], ["---", "---:", "---:"]]
    rows += [[part.name, f"{part.seconds:.1f}", f"{part.cpu_seconds:.1f}"] for part in parts]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(skip_pml=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    facts = setting(options)
    parts = Parts()
    with tempfile.TemporaryDirectory() as name:
        table = table_of(options, Path(name))
        began = time.perf_counter()
        page = write_report(table, out=Path(name) / "report", device=options.device, status=parts)
        seconds = time.perf_counter() - began
        parts(None)
        megabytes = page.stat().st_size / 1e6
    gigabytes = _peak()
    verdicts = [
        (found < asked, f"{found:.1f} of at most {asked:g} {unit}")
        for found, asked, unit in (
            (seconds, ASKED_SECONDS, "s"),
            (gigabytes, ASKED_GIGABYTES, "GB"),
            (megabytes, ASKED_MEGABYTES, "MB, the page"),
        )
    ]
    whole = {"seconds": seconds, "gigabytes": gigabytes, "page_megabytes": megabytes}
    numbers = {**whole, "parts": [asdict(part) for part in parts.found]}
    conclude(options, facts, to_markdown(parts.found), verdicts, numbers)


if __name__ == "__main__":
    main()
