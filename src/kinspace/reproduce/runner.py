"""kinspace.reproduce.reproduce: every row and seed of an experiment, and its results file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from kinspace._core import checks
from kinspace.data.built_in import BUILT_IN_SETS
from kinspace.reproduce.experiment import Experiment
from kinspace.reproduce.experiment_files import read_experiment
from kinspace.reproduce.jobs import Job, data_name, make_jobs
from kinspace.reproduce.kept_checkpoints import Keeper
from kinspace.reproduce.records import Records, commit_of, stem, versions
from kinspace.reproduce.result_figures import draw_figures
from kinspace.reproduce.run_measures import RunMeasures
from kinspace.reproduce.run_record import record_of
from kinspace.reproduce.training_processes import (
    PLACES,
    Failed,
    Machine,
    StoppedRuns,
    require_same,
    until_stopped,
)

__all__ = ["Outcome", "Progress", "reproduce"]


class Progress(Protocol):
    """Is told how the runs are getting on."""

    def begin(self, runs: int, there: int) -> None:
        """So many runs, of which so many are there already."""

    def look(self, job: Job, folder: Path) -> None:
        """A run is under way; called often, from its own thread."""

    def done(self, job: Job, record: Mapping[str, Any]) -> None:
        """A run has ended well."""

    def failed(self, job: Job, why: str) -> None:
        """A run has failed."""

    def close(self) -> None:
        """The end."""


@dataclass
class Outcome:
    """What came out: the results file and its content, the figures, and what failed."""

    results: Path
    content: dict[str, Any]
    figures: list[Path] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Options:
    """Where to run, and what to change; see `reproduce`."""

    seeds: int | Sequence[int] = 3
    jobs: int = 1
    weights: str | None = None
    device: str | None = None
    cache: str = "auto"
    workers: int | None = None
    out: Path | None = None
    results: Path | None = None
    only: Sequence[str] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    validate: float | None = None
    commit: str | None = None
    overwrite: bool = False
    keep_runs: bool = True


def reproduce(
    name: str | Path | Experiment,
    data: str | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Outcome:
    """Run an experiment; what is finished already, in `out` or `results`, is not run again.

    data: a place as `kinspace train` takes it; None: the experiment's own, if that is built in.
    options: seeds (how many, or which), jobs (processes at a time), weights (of the backbone),
    device, cache, workers, out (run folders; runs/reproduce/NAME), results (the folder of the
    results file; `out`), only (names of rows or sweeps), changes (dotted keys of every recipe),
    validate (in place of the experiment's), commit (to be written down; git's), overwrite (replace
    what was run with other settings), keep_runs (False: remove a run's folder when it is recorded).
    """
    for option in options:
        checks.lookup("option", option, _Options.__dataclass_fields__)
    return _Work.prepare(name, data, _Options(**options), progress).run()


@dataclass
class _Work:
    experiment: Experiment
    options: _Options
    jobs: list[Job]
    machine: Machine
    records: Records
    judge: RunMeasures
    keeper: Keeper
    progress: Progress | None
    about: dict[str, Any]

    @classmethod
    def prepare(
        cls,
        name: str | Path | Experiment,
        data: str | None,
        options: _Options,
        progress: Progress | None,
    ) -> _Work:
        experiment = name if isinstance(name, Experiment) else read_experiment(name)
        place = _place(experiment, data)
        experiment = experiment.on(data_name(place))
        checks.integer("jobs", options.jobs, at_least=1)
        chosen = experiment.only(options.only)
        if options.validate is not None:
            chosen = replace(chosen, validate=options.validate)
        share: Any = {"changes": options.changes, "weights": options.weights}
        jobs = make_jobs(chosen, data_name(place), _seeds(options.seeds), **share)
        out = options.out or Path("runs/reproduce") / stem(experiment, data_name(place))
        records = Records(options.results or out, experiment, data_name(place))
        there = replace(chosen, validate=chosen.validate or experiment.validate)
        _settle(
            make_jobs(there, data_name(place), records.seeds, **share),
            records,
            overwrite=options.overwrite,
        )
        _settle_runs(jobs, out, overwrite=options.overwrite)
        machine = _machine(
            options, place, out, save=200 if chosen.curve is None else chosen.curve.every
        )
        judge = RunMeasures(place, options.device, machine.workers)
        keeper = Keeper(chosen.curve)
        about = {"commit": options.commit or commit_of(), "versions": versions()}
        return cls(chosen, options, jobs, machine, records, judge, keeper, progress, about)

    def run(self) -> Outcome:
        """Run what is missing, several at a time; write, draw, and tell what failed."""
        todo = [job for job in self.jobs if self.records.of(job) is None]
        outcome = Outcome(self.records.path, {})
        self.machine.look = self._look
        if self.progress is not None:
            self.progress.begin(len(self.jobs), len(self.jobs) - len(todo))
        for cache, recipe in {self.machine.cache_of(job): job.recipe for job in todo}.items():
            if cache not in PLACES:
                self.judge.prepare(recipe, cache)
        try:
            with until_stopped(self.machine):
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
        with ThreadPoolExecutor(self.options.jobs) as pool:
            waiting: dict[Future[dict[str, Any]], Job] = {
                pool.submit(self._one, job): job for job in todo
            }
            try:
                for future in as_completed(waiting):
                    job = waiting[future]
                    try:
                        found = future.result()
                    except (Failed, ValueError, OSError, RuntimeError) as error:
                        outcome.failures[job.name] = str(error)
                        if self.progress is not None:
                            self.progress.failed(job, str(error))
                        continue
                    record = self.records.add(job, found)
                    if self.progress is not None:
                        self.progress.done(job, record)
                    if not self.options.keep_runs:
                        shutil.rmtree(self.machine.out / job.name, ignore_errors=True)
            except KeyboardInterrupt:
                self.machine.stopping.set()
                for future in waiting:
                    future.cancel()
                raise StoppedRuns from None

    def _one(self, job: Job) -> dict[str, Any]:
        folder = self.machine.run(job)
        first = job.row.name == self.experiment.rows[0].name
        untrained = first and self.experiment.untrained is not None and not job.held_out
        found = record_of(
            job, folder, self.experiment, self.judge, self.keeper, untrained=untrained
        )
        return found | self.about

    def _look(self, job: Job, folder: Path) -> None:
        self.keeper.look(job, folder)
        if self.progress is not None:
            self.progress.look(job, folder)


def _machine(options: _Options, place: str, out: Path, *, save: int) -> Machine:
    workers = options.workers
    if workers is None and options.jobs > 1:
        workers = max(1, len(os.sched_getaffinity(0)) // options.jobs)
    return Machine(
        out,
        place,
        device=options.device,
        cache=options.cache,
        workers=workers,
        jobs=options.jobs,
        save=min(200, save),
    )


def _place(experiment: Experiment, data: str | None) -> str:
    if data is not None:
        return data
    if experiment.data in BUILT_IN_SETS:
        return experiment.data
    raise ValueError(
        f"DATA: {experiment.name} is about {experiment.data}, which is not built in; say where it "
        f"is: kinspace reproduce {experiment.name} {experiment.data}:FOLDER"
    )


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        return list(range(checks.integer("seeds", seeds, at_least=1)))
    return list(seeds)


def _settle(jobs: list[Job], records: Records, *, overwrite: bool) -> None:
    """Records of other settings in the place of these: refuse, or with `overwrite` forget."""
    others = records.others(jobs)
    if others and not overwrite:
        raise ValueError(
            f"{records.path}: has {len(others)} runs of other settings (first: "
            f"{others[0]['row']}, seed {others[0]['seed']}); name another folder (--results), or "
            "replace them (--overwrite)"
        )
    records.drop(others)


def _settle_runs(jobs: list[Job], out: Path, *, overwrite: bool) -> None:
    """Run folders of other settings: refuse, or with `overwrite` remove."""
    for job in jobs:
        try:
            require_same(job, out)
        except ValueError:
            if not overwrite:
                raise
            shutil.rmtree(out / job.name)
            (out / f"{job.name}.log").unlink(missing_ok=True)
