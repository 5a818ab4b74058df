"""The results of an experiment: a record of each run, in one JSON file that grows run by run.

    experiment, title, paper, data, measures    what was run
    printed      by row: the numbers of papers, in percent, and where they stand
    runs         a record a run: row, seed, command, its measures as fractions, time, hardware
    summary      by row: mean and spread (of a sample) over the seeds
    figures      their files, and what they show in words

Runs in the file with the same command are not repeated, even where their folders are gone. Numbers
of papers and of runs never share an entry.
"""

from __future__ import annotations

import datetime
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from kinspace import __version__
from kinspace._core.atomic_files import read_json, write_json
from kinspace.reproduce.experiment import Curve, Experiment
from kinspace.reproduce.jobs import Job
from kinspace.reproduce.results_table import summaries
from kinspace.reproduce.run_measures import RunMeasures
from kinspace.reproduce.table_measures import LOSS, VALIDATION
from kinspace.run import Run, open_run

__all__ = [
    "Records",
    "curve_of",
    "package_versions",
    "read_results",
    "record_of",
    "results_name",
    "source_commit",
]

FORMAT = "kinspace reproduce 1"
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn")
POINTS = 2000  # of a scatter
RETRIEVAL = ("recall@1", "recall@2", "recall@4", "recall@8", "map", "map@r", "r_precision")
Record = dict[str, Any]


def results_name(experiment: Experiment, data: str) -> str:
    """The name of the results file; on another data set than the paper's it ends with that name.

    >>> from kinspace.reproduce import read_experiment
    >>> almn = read_experiment("almn")
    >>> results_name(almn, "cub200"), results_name(almn, "cars196")
    ('almn', 'almn-cars196')
    """
    return experiment.name if data == experiment.data else f"{experiment.name}-{data}"


class Records:
    """The results file of an experiment on a data set."""

    def __init__(self, folder: Path, experiment: Experiment, data: str) -> None:
        self.path = folder / f"{results_name(experiment, data)}.json"
        self.experiment, self.data = experiment, data
        kept = read_results(self.path) if self.path.exists() else {}
        self.runs: list[Record] = kept.get("runs", [])
        self.figures: list[dict[str, str]] = kept.get("figures", [])

    @property
    def seeds(self) -> list[int]:
        """The seeds of all records."""
        return sorted({record["seed"] for record in self.runs})

    def of(self, job: Job) -> Record | None:
        """The record of a job, if it was run with the same command."""
        key = (job.row.name, job.seed, bool(job.held_out))
        return next((r for r in self.runs if _key_of(r) == key and _same_command(r, job)), None)

    def others(self, jobs: Sequence[Job]) -> list[Record]:
        """Records of these rows and seeds that were run with another command."""
        by_key = {(job.row.name, job.seed, bool(job.held_out)): job for job in jobs}
        return [
            record
            for record in self.runs
            if (job := by_key.get(_key_of(record))) is not None and not _same_command(record, job)
        ]

    def drop(self, records: Sequence[Record]) -> None:
        """Remove some records."""
        self.runs = [record for record in self.runs if record not in records]

    def add(self, job: Job, found: Mapping[str, Any]) -> Record:
        """Add the record of a job, and write the file."""
        record: Record = {
            "row": job.row.name,
            "seed": job.seed,
            "held_out": job.held_out,
            "command": job.command,
            **found,
            "kinspace": __version__,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        self.drop([each for each in self.runs if _key_of(each) == _key_of(record)])
        self.runs.append(record)
        self.write()
        return record

    def write(self) -> None:
        """Write the file atomically, in the order of the rows."""
        order = {row.name: position for position, row in enumerate(self.experiment.rows)}
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


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that make the numbers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def source_commit() -> str:
    """The commit of this checkout, with a + where tracked files differ from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe"]
    command += ["--always", "--abbrev=12", "--dirty=+"]
    try:
        described = subprocess.run(
            command, capture_output=True, check=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described or "unknown"


def _key_of(record: Mapping[str, Any]) -> tuple[str, int, bool]:
    return record["row"], record["seed"], bool(record["held_out"])


def _same_command(record: Mapping[str, Any], job: Job) -> bool:
    return bool(record["command"] == job.command)


def record_of(
    job: Job,
    folder: Path,
    experiment: Experiment,
    run_measures: RunMeasures,
    *,
    untrained: bool = False,
) -> dict[str, Any]:
    """The record of a finished run: measures, time, hardware; a curve and points if wanted."""
    run = open_run(folder)
    results, about = run.results, run.about
    record: dict[str, Any] = {
        "steps": results["steps"],
        "warm_start": job.recipe.warm_start.steps,
        "selected_step": results["selected_step"],
        "seconds": results["seconds"],
        "hardware": about["hardware"],
        "notes": about["notes"],
    }
    if job.kind == "hierarchy":
        return record | {"test": _recovery(read_json(folder / "hierarchy.json"))}
    if "validation_recall@1" in results:
        record["validation"] = {"recall@1": results["validation_recall@1"]}
    views = job.row.views and not job.held_out
    measured = [name for name in experiment.measures if views or not name.startswith("views_")]
    wanted = list(dict.fromkeys([*measured, *RETRIEVAL]))
    classifier = job.row.classifier
    record["test"] = run_measures.measures(folder, wanted, classifier=classifier)
    record["final"] = {name: v for name, v in results["final"].items() if name in RETRIEVAL}
    if untrained:
        record["untrained"] = run_measures.measures(
            folder, wanted, classifier=classifier, by="untrained"
        )
    if experiment.curve is not None and not job.held_out:
        record["curve"] = curve_of(job, run, experiment.curve, run_measures)
    if experiment.scatter and job.seed == 0 and not job.held_out:
        record["points"] = run_measures.points(
            folder, POINTS, part=experiment.scatter, attribute=experiment.attribute
        )
    return record


def curve_of(job: Job, run: Run, curve: Curve, run_measures: RunMeasures) -> list[list[float]]:
    """[step, value] of a run; steps of a warm start count. Removes the run's kept checkpoints."""
    if curve.measure == LOSS:
        return _losses(run, curve.every)
    if curve.measure == VALIDATION:
        recalls = {row["step"]: row["recall@1"] for row in run.metrics if "recall@1" in row}
        return [[step, recalls[step]] for step in sorted(recalls)]
    folder = run.folder / "checkpoints"
    files = folder.glob("step-*.safetensors")
    points = sorted((int(file.stem.removeprefix("step-")), file) for file in files)
    points = [(0, run.folder / "start.safetensors"), *points]
    values = run_measures.curve(run.folder, points, curve.measure, classifier=job.row.classifier)
    shutil.rmtree(folder, ignore_errors=True)
    return [[step, value] for step, value in values]


def _losses(run: Run, every: int) -> list[list[float]]:
    """[step, training loss], each the mean of the rows of metrics.jsonl since the point before."""
    by_point: dict[int, list[float]] = {}
    for row in run.metrics:
        if "loss" in row:
            point = min(-(-row["step"] // every) * every, run.results["steps"])
            by_point.setdefault(point, []).append(row["loss"])
    return [[step, sum(values) / len(values)] for step, values in sorted(by_point.items())]


def _recovery(found: Mapping[str, Any]) -> dict[str, float]:
    """The measures of hierarchy.json."""
    errors = found["errors"]["model"]
    return {
        "recovery_error": errors["true"]["knn"],
        "recovery_mean_error": errors["true"]["nearest_mean"],
        "merged_error": errors["merged"]["knn"],
    }
