"""kinspace.reproduce.reproduce: every row and seed of an experiment, and its results file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kinspace._core import checks
from kinspace.data.in_memory import BUILT_IN_SETS
from kinspace.reproduce.experiment import Experiment
from kinspace.reproduce.experiment_files import read_experiment
from kinspace.reproduce.jobs import Job, data_name, make_jobs
from kinspace.reproduce.progress_display import ExperimentProgress
from kinspace.reproduce.records import (
    Records,
    package_versions,
    record_of,
    results_name,
    source_commit,
)
from kinspace.reproduce.result_figures import draw_figures
from kinspace.reproduce.run_measures import RunMeasures
from kinspace.reproduce.table_measures import LOSS, VALIDATION
from kinspace.reproduce.training_processes import (
    CACHE_MODES,
    FailedRun,
    StoppedRuns,
    TrainingProcesses,
    require_same_command,
    stop_on_sigterm,
)

__all__ = ["Outcome", "reproduce"]


@dataclass
class Outcome:
    """The results file with its content, the figures, and the runs that failed, with the reason."""

    results: Path
    content: dict[str, Any]
    figures: list[Path] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def reproduce(  # noqa: PLR0913 - keyword options, one for each option of the command
    name: str | Path | Experiment,
    data: str | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    only: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
    validate: float | None = None,
    weights: str | None = None,
    out: str | Path | None = None,
    results: str | Path | None = None,
    overwrite: bool = False,
    keep_runs: bool = True,
    jobs: int = 1,
    device: str | None = None,
    cache: str = "auto",
    workers: int | None = None,
    commit: str | None = None,
    progress: ExperimentProgress | None = None,
) -> Outcome:
    """Train every row and seed of an experiment, and write its results file and figures.

    A run that is finished, in `out` or in `results`, is not repeated.

    Args:
        name: a shipped experiment, a TOML file, or an `Experiment`.
        data: the data set as `kinspace train` takes it; by default the experiment's own, if it is
            a built-in set.
        seeds: how many, from 0, or which.
        only: names of rows or sweeps; all by default.
        changes: dotted keys of every recipe.
        validate: the fraction of classes held out by second runs, in place of the experiment's.
        weights: of the backbone, a safetensors file.
        out: the folder of the run folders; by default runs/reproduce/NAME.
        results: the folder of the results file and the figures; by default `out`.
        overwrite: replace runs with other settings, which are an error otherwise.
        keep_runs: keep the folder of a run after it is recorded.
        jobs: trainings at a time.
        device, cache, workers: as in `kinspace.train`.
        commit: recorded as the commit of the source; by default git's.
        progress: receives the progress of the runs.

    Raises:
        ValueError: if an option is invalid, or runs of other settings are in the way.
        StoppedRuns: at Ctrl-C or SIGTERM; the same call resumes the runs.
    """
    experiment = name if isinstance(name, Experiment) else read_experiment(name)
    data = _data_of(experiment, data)
    experiment = experiment.on(data_name(data))
    checks.integer("jobs", jobs, at_least=1)
    chosen = experiment.only(only)
    if validate is not None:
        chosen = replace(chosen, validate=validate)
    folder = Path(out or Path("runs/reproduce") / results_name(experiment, data_name(data)))
    records = Records(Path(results or folder), experiment, data_name(data))
    jobs_for = partial(make_jobs, data=data_name(data), changes=changes, weights=weights)
    todo = jobs_for(chosen, seeds=_seed_list(seeds))
    recordable = replace(chosen, validate=chosen.validate or experiment.validate)
    _settle_records(jobs_for(recordable, seeds=records.seeds), records, overwrite=overwrite)
    _settle_folders(todo, folder, overwrite=overwrite)
    curve = chosen.curve
    processes = TrainingProcesses(
        folder,
        data,
        device=device,
        cache=cache,
        workers=_workers(workers, jobs),
        jobs=jobs,
        keep_every=None if curve is None or curve.measure in (VALIDATION, LOSS) else curve.every,
    )
    source = {"commit": commit or source_commit(), "versions": package_versions()}
    running = _Reproduction(chosen, todo, processes, records, progress, source, keep_runs=keep_runs)
    return running.run()


class _Reproduction:
    """The jobs of an experiment, the processes that run them, and their records."""

    def __init__(
        self,
        experiment: Experiment,
        jobs: list[Job],
        processes: TrainingProcesses,
        records: Records,
        progress: ExperimentProgress | None,
        source: Mapping[str, Any],
        *,
        keep_runs: bool,
    ) -> None:
        self.experiment, self.jobs, self.processes = experiment, jobs, processes
        self.records, self.progress, self.source = records, progress, source
        self.keep_runs = keep_runs
        self.run_measures = RunMeasures(processes.data, processes.device, processes.workers)

    def run(self) -> Outcome:
        """Run what is missing, several jobs at a time; write the records and draw the figures."""
        todo = [job for job in self.jobs if self.records.of(job) is None]
        outcome = Outcome(self.records.path, {})
        self.processes.on_poll = self._on_poll
        if self.progress is not None:
            self.progress.start(len(self.jobs), len(self.jobs) - len(todo))
        for cache, recipe in {self.processes.cache_of(job): job.recipe for job in todo}.items():
            if cache not in CACHE_MODES:
                self.run_measures.prepare(recipe, cache)
        try:
            with stop_on_sigterm(self.processes):
                self._run_all(todo, outcome)
        finally:
            if self.progress is not None:
                self.progress.close()
            if self.records.runs:
                self.records.write()
        outcome.figures = draw_figures(self.records)
        outcome.content = self.records.to_dict()
        return outcome

    def _run_all(self, todo: Sequence[Job], outcome: Outcome) -> None:
        with ThreadPoolExecutor(self.processes.jobs) as pool:
            waiting: dict[Future[dict[str, Any]], Job] = {
                pool.submit(self._run_one, job): job for job in todo
            }
            try:
                for future in as_completed(waiting):
                    self._record(waiting[future], future, outcome)
            except KeyboardInterrupt:
                self.processes.stopping.set()
                for future in waiting:
                    future.cancel()
                raise StoppedRuns from None

    def _record(self, job: Job, future: Future[dict[str, Any]], outcome: Outcome) -> None:
        try:
            found = future.result()
        except (FailedRun, ValueError, OSError, RuntimeError) as error:
            outcome.failures[job.name] = str(error)
            if self.progress is not None:
                self.progress.fail(job, str(error))
            return
        record = self.records.add(job, found)
        if self.progress is not None:
            self.progress.finish(job, record)
        if not self.keep_runs:
            shutil.rmtree(self.processes.out / job.name, ignore_errors=True)

    def _run_one(self, job: Job) -> dict[str, Any]:
        folder = self.processes.run(job)
        first = job.row.name == self.experiment.rows[0].name
        untrained = first and self.experiment.untrained is not None and not job.held_out
        found = record_of(job, folder, self.experiment, self.run_measures, untrained=untrained)
        return {**found, **self.source}

    def _on_poll(self, job: Job, folder: Path) -> None:
        if self.progress is not None:
            self.progress.update(job, folder)


def _workers(workers: int | None, jobs: int) -> int | None:
    """Loader workers of a process: its share of the cores where several run at a time."""
    if workers is None and jobs > 1:
        return max(1, len(os.sched_getaffinity(0)) // jobs)
    return workers


def _data_of(experiment: Experiment, data: str | None) -> str:
    if data is not None:
        return data
    if experiment.data in BUILT_IN_SETS:
        return experiment.data
    raise ValueError(
        f"DATA: expected the place of {experiment.data}, which is not built in: "
        f"kinspace reproduce {experiment.name} {experiment.data}:FOLDER"
    )


def _seed_list(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        return list(range(checks.integer("seeds", seeds, at_least=1)))
    return list(seeds)


def _settle_records(jobs: list[Job], records: Records, *, overwrite: bool) -> None:
    """Records of these rows and seeds with other settings: refuse, or remove them."""
    others = records.others(jobs)
    if others and not overwrite:
        raise ValueError(
            f"{records.path}: has {len(others)} runs of other settings (first: "
            f"{others[0]['row']}, seed {others[0]['seed']}); choose another folder (--results), or "
            "replace them (--overwrite)"
        )
    records.drop(others)


def _settle_folders(jobs: list[Job], out: Path, *, overwrite: bool) -> None:
    """Run folders with other settings: refuse, or remove them."""
    for job in jobs:
        try:
            require_same_command(job, out)
        except ValueError:
            if not overwrite:
                raise
            shutil.rmtree(out / job.name)
            (out / f"{job.name}.log").unlink(missing_ok=True)
