"""From a finished run folder to its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinspace._core.json_files import read_json
from kinspace.reproduce.experiment import Experiment
from kinspace.reproduce.jobs import Job
from kinspace.reproduce.kept_checkpoints import Keeper
from kinspace.reproduce.run_measures import RunMeasures
from kinspace.run import open_run

__all__ = ["record_of"]

POINTS = 2000  # of a scatter
RETRIEVAL = ("recall@1", "recall@2", "recall@4", "recall@8", "map", "map@r", "r_precision")


def record_of(
    job: Job,
    folder: Path,
    experiment: Experiment,
    judge: RunMeasures,
    keeper: Keeper,
    *,
    untrained: bool = False,
) -> dict[str, Any]:
    """What is written down of a run: all measures, time, hardware; a curve and points if wanted."""
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
        return record | {"test": recovery(read_json(folder / "hierarchy.json"))}
    if "validation_recall@1" in results:
        record["validation"] = {"recall@1": results["validation_recall@1"]}
    views = job.row.views and not job.held_out
    asked = [name for name in experiment.measures if views or not name.startswith("views_")]
    wanted = list(dict.fromkeys([*asked, *RETRIEVAL]))
    by = job.row.judged_by
    record["test"] = judge.measures(folder, wanted, judged_by=by)
    record["final"] = {name: v for name, v in results["final"].items() if name in RETRIEVAL}
    if untrained:
        record["untrained"] = judge.measures(folder, wanted, judged_by=by, by="untrained")
    if experiment.curve is not None and not job.held_out:
        record["curve"] = keeper.curve(job, run, judge)
    if experiment.scatter and job.seed == 0 and not job.held_out:
        record["points"] = judge.points(folder, POINTS)
    return record


def recovery(found: Mapping[str, Any]) -> dict[str, float]:
    """The measures of hierarchy.json."""
    errors = found["errors"]["model"]
    return {
        "recovery_error": errors["true"]["knn"],
        "recovery_mean_error": errors["true"]["nearest_mean"],
        "merged_error": errors["merged"]["knn"],
    }
