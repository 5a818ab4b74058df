"""The results of an experiment as one JSON file, that grows run by run.

    experiment, title, paper, data, measures    what was run
    printed      by row: the numbers of papers, in percent, and where they stand
    runs         a record a run: row, seed, command, its measures as fractions, time, hardware
    summary      by row: mean and spread (of a sample) over the seeds
    figures      their files, and what they show in words

Runs that are in the file with the same command are not done again, also where their folders are
gone. Numbers of papers and our own never share an entry.
"""

from __future__ import annotations

import datetime
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from kinspace import __version__
from kinspace._core.json_files import read_json, write_json
from kinspace.reproduce.aggregate import summaries
from kinspace.reproduce.experiment import Experiment
from kinspace.reproduce.jobs import Job

__all__ = ["Records", "commit_of", "read_results", "stem", "versions"]

FORMAT = "kinspace reproduce 1"
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn")
Record = dict[str, Any]


def stem(experiment: Experiment, data: str) -> str:
    """The file name of its results: of another data set than the paper's, with that name.

    >>> from kinspace.reproduce import read_experiment
    >>> stem(read_experiment("almn"), "cub200"), stem(read_experiment("almn"), "cars196")
    ('almn', 'almn-cars196')
    """
    return experiment.name if data == experiment.data else f"{experiment.name}-{data}"


class Records:
    """The results file of an experiment on a data set."""

    def __init__(self, folder: Path, experiment: Experiment, data: str) -> None:
        self.path = folder / f"{stem(experiment, data)}.json"
        self.experiment, self.data = experiment, data
        there = read_results(self.path) if self.path.exists() else {}
        self.runs: list[Record] = there.get("runs", [])
        self.figures: list[dict[str, str]] = there.get("figures", [])

    @property
    def seeds(self) -> list[int]:
        """All that are there."""
        return sorted({record["seed"] for record in self.runs})

    def of(self, job: Job) -> Record | None:
        """The record of a job, if it was run with this very command."""
        place = (job.row.name, job.seed, bool(job.held_out))
        return next((r for r in self.runs if _place(r) == place and _same(r, job)), None)

    def others(self, jobs: Sequence[Job]) -> list[Record]:
        """Records of rows of these jobs that were run otherwise."""
        by_place = {(job.row.name, job.seed, bool(job.held_out)): job for job in jobs}
        return [
            record
            for record in self.runs
            if (job := by_place.get(_place(record))) is not None and not _same(record, job)
        ]

    def drop(self, records: Sequence[Record]) -> None:
        """Forget some."""
        self.runs = [record for record in self.runs if record not in records]

    def add(self, job: Job, found: Mapping[str, Any]) -> Record:
        """Put the record of a job in, and the file on the disk."""
        record: Record = {
            "row": job.row.name,
            "seed": job.seed,
            "held_out": job.held_out,
            "command": job.command,
            **found,
            "kinspace": __version__,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        self.drop([each for each in self.runs if _place(each) == _place(record)])
        self.runs.append(record)
        self.write()
        return record

    def write(self) -> None:
        """The whole file, in one piece, in the order of the rows."""
        order = {row.name: place for place, row in enumerate(self.experiment.rows)}
        self.runs.sort(key=lambda r: (order.get(r["row"], len(order)), r["seed"], r["held_out"]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        experiment = self.experiment
        rows = [
            {"name": row.name, "title": row.title, "sweep": row.sweep, "x": row.x}
            for row in experiment.rows
        ]
        return {
            "format": FORMAT,
            "experiment": experiment.name,
            "title": experiment.title,
            "paper": experiment.paper,
            "data": self.data,
            "measures": list(experiment.measures),
            "rows": rows,
            "printed": {
                row.name: [asdict(each) for each in row.printed if each.data == self.data]
                for row in experiment.rows
            }
            | {
                "untrained": [
                    asdict(each) for each in experiment.untrained or () if each.data == self.data
                ]
            },
            "summary": summaries(experiment, self.runs),
            "figures": self.figures,
            "runs": self.runs,
        }


def read_results(path: Path) -> dict[str, Any]:
    """A results file; a ValueError if it is something else.

    >>> read_results(Path("nothing.json"))
    Traceback (most recent call last):
    ValueError: nothing.json: cannot be read: ...
    """
    found = read_json(path)
    if found.get("format") != FORMAT:
        raise ValueError(f"{path}: expected results of `kinspace reproduce`, got another file")
    return found


def versions() -> dict[str, str]:
    """Of Python and the packages that make the numbers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit_of() -> str:
    """The commit of this checkout, with a + where tracked files differ from it."""
    ask = ["git", "-C", str(Path(__file__).parent), "describe"]
    ask += ["--always", "--abbrev=12", "--dirty=+"]
    try:
        said = subprocess.run(ask, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said or "unknown"


def _place(record: Mapping[str, Any]) -> tuple[str, int, bool]:
    return record["row"], record["seed"], bool(record["held_out"])


def _same(record: Mapping[str, Any], job: Job) -> bool:
    return bool(record["command"] == job.command)
