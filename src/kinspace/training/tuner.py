"""kinspace.tune: a study of many short trainings, scored on the validation classes.

The test part is split off before the first trial: no trial reads, embeds or scores it. Optuna draws
the values and stores the trials. The study folder holds

    tune.json       what is searched: data, recipe, ranges, seed
    journal.jsonl   the trials, in Optuna's JournalStorage
    trial-000/ ..   a run folder a trial
    best.toml       the best recipe so far, for `kinspace train --method best.toml`

The same call with the same folder resumes the study: finished trials are not repeated, an
interrupted one is resumed, and `trials` may be larger. Several processes can share a folder, each
with its own trials.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import torch.distributed as dist

from kinspace._core import checks
from kinspace._core.atomic_files import read_json, write_atomically, write_json
from kinspace.data import Dataset, UnreadablePictures
from kinspace.data.load import load_dataset
from kinspace.distributed import broadcast_from_main, init_process_group, is_main_process
from kinspace.recipes import Range, Recipe, parse_set, read_recipe, with_changes
from kinspace.training.data_parts import split_names
from kinspace.training.log import PlainProgress
from kinspace.training.run_folder import new_folder, require_same
from kinspace.training.settings import RunSettings
from kinspace.training.trainer import train

__all__ = ["TuneResult", "parse_range", "tune"]

SAMPLERS = ("random", "tpe")


@dataclass(frozen=True)
class TuneResult:
    """A finished study: its folder, the best recipe, and a row a trial.

    A row has the keys trial (its number), folder, values, state ("done" or "failed"), and either
    recall@1, step and seconds, or error.
    """

    folder: Path
    best: Recipe
    trials: list[dict[str, Any]]


def tune(  # noqa: PLR0913 - every option of the command line is a parameter
    data: Any,
    *,
    method: str | Recipe = "magnet",
    trials: int = 20,
    sampler: str = "random",
    ranges: Mapping[str, Range] | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    split: str | None = None,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
    micro_batch: int | None = None,
    cache: str = "auto",
    workers: int | None = None,
    save_every: int = 200,
    log_every: int = 10,
    skip_bad: bool = False,
    compile: bool = False,  # noqa: A002 - the name of the option
    tensorboard: bool = False,
    quiet: bool = False,
) -> TuneResult:
    """Search ranges of a recipe's options for the best Recall@1 on the validation classes.

    Needs Optuna: pip install 'kinspace[tune]'.

    data: as for `kinspace.train`.
    method: a recipe; the ranges that it declares in `tune` are searched, and `ranges`.
    trials: the number of trainings in all, with those of a study that is resumed.
    sampler: "random", or "tpe", Optuna's tree-structured Parzen estimator, which learns from the
        trials before. Both are repeatable by the seed; "tpe" in one process only.
    ranges: ranges by the keys of the recipe, in place of what it declares for the same keys.
    changes: other values for keys of the recipe, {"schedule.steps": 300}.
    out: the folder of the study, new or to be resumed; by default runs/DATA-METHOD-tune-NUMBER.
    seed: the random seed of the study and of every trial.

    The other options are those of `kinspace.train`.

    >>> tune("digits", method="nra", sampler="grid")
    Traceback (most recent call last):
    ValueError: sampler: expected one of 'random', 'tpe', got 'grid'
    """
    checks.integer("trials", trials, at_least=1)
    checks.choice("sampler", sampler, SAMPLERS)
    _optuna()  # fail before there is a folder
    settings = RunSettings(
        split=split,
        seed=seed,
        device=device,
        precision=precision,
        micro_batch=micro_batch,
        cache=cache,
        workers=workers,
        save_every=save_every,
        log_every=log_every,
        skip_bad=skip_bad,
        compile=compile,
        tensorboard=tensorboard,
        quiet=quiet,
    )
    recipe = method if isinstance(method, Recipe) else read_recipe(method)
    recipe = with_changes(recipe, changes, where="changes") if changes else recipe
    recipe = _with_ranges(recipe, ranges or {})
    started = init_process_group(settings.on_device())
    try:
        dataset = _training_part(load_dataset(data), recipe, settings)
        name = str(data) if isinstance(data, (str, Path)) else dataset.name
        folder = _study_folder(out, name, dataset, recipe, settings)
        return _run_trials(folder, dataset, recipe, settings, trials=trials, sampler=sampler)
    finally:
        if started:
            dist.destroy_process_group()


def parse_range(text: str) -> tuple[str, Range]:
    """The key and the range in KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c.

    >>> parse_range("optimizer.lr=1e-4:1e-1:log")
    ('optimizer.lr', Range(low=0.0001, high=0.1, log=True, choices=None))
    >>> parse_range("index.clusters=1,2,auto")[1].choices
    (1, 2, 'auto')
    """

    def value(word: str) -> Any:
        if not word.strip():
            raise ValueError("a value is missing")
        return parse_set(f"value={word}")[1]

    key, equals, values = (part.strip() for part in text.partition("="))
    try:
        if not (key and equals and values):
            raise ValueError("a part is missing")
        if "," in values:
            return key, Range(choices=tuple(value(each) for each in values.split(",")))
        low, high, *log = values.split(":")
        if log not in ([], ["log"]):
            raise ValueError(f"after the second colon only 'log' may come, not {':'.join(log)!r}")
        return key, Range(low=value(low), high=value(high), log=bool(log))
    except ValueError as error:
        forms = "KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c"
        raise ValueError(f"--range: expected {forms}, got {text!r} ({error})") from None


def _with_ranges(recipe: Recipe, ranges: Mapping[str, Range]) -> Recipe:
    both = {**recipe.tune, **ranges}
    if not both:
        raise ValueError(
            f"{recipe.name}: expected ranges to search, and the recipe declares none (tune); give "
            "some: --range optimizer.lr=1e-4:1e-2:log"
        )
    return replace(recipe, tune=both)


def _training_part(dataset: Dataset, recipe: Recipe, settings: RunSettings) -> Dataset:
    """The training part alone; it must have enough classes to hold some out for validation."""
    split = settings.split or recipe.split
    train_part, _, _ = split_names(dataset, split, validation=0.0, seed=settings.seed)
    fraction = recipe.validation.fraction
    if split_names(train_part, "all", validation=fraction, seed=settings.seed)[1] is None:
        raise ValueError(
            "validation: expected classes to validate on: four classes or more to train on, and "
            f"validation.fraction above 0; got {train_part.num_classes} classes and {fraction}"
        )
    return train_part


def _study_folder(
    out: str | Path | None, data: str, train_part: Dataset, recipe: Recipe, settings: RunSettings
) -> Path:
    """The folder of the study: a new one, or `out` with a study of the same settings."""
    about = {
        "data": data,
        "split": settings.split or recipe.split,
        "classes": list(train_part.class_names),
        "recipe": recipe.to_dict(),
        "seed": settings.seed,
        "settings": settings.to_dict(),
    }
    there = out is not None and is_main_process() and (Path(out) / "tune.json").exists()
    if out is not None and broadcast_from_main(there):
        require_same(read_json(Path(out) / "tune.json"), about, Path(out))
        return Path(out)
    name = f"{train_part.name}-{recipe.name}-tune"
    folder = Path(broadcast_from_main(str(new_folder(out, name)) if is_main_process() else ""))
    if is_main_process():
        write_json(folder / "tune.json", about)
    return folder


def _run_trials(
    folder: Path,
    dataset: Dataset,
    recipe: Recipe,
    settings: RunSettings,
    *,
    trials: int,
    sampler: str,
) -> TuneResult:
    """Run trials until there are enough. The main process draws them, all processes train."""
    study = _Study(folder, recipe, sampler, settings.seed) if is_main_process() else None
    try:
        while True:
            drawn = broadcast_from_main(study.next_trial(trials) if study else None)
            if drawn is None:
                break
            number, values = drawn
            row = _run_trial(folder / _name(number), values, dataset, recipe, settings)
            if study is not None:
                study.finish(row)
                if not settings.quiet:
                    PlainProgress().message(_format_row(number, trials, values, row))
        rows: list[dict[str, Any]] = broadcast_from_main(study.rows() if study else [])
    finally:
        if study is not None:
            study.release()
    best = _best(rows)
    if best is None:
        raise ValueError(f"{folder}: all trials failed; the first: {rows[0]['error']}")
    return TuneResult(folder, _trial_recipe(recipe, best["values"]), rows)


def _run_trial(
    folder: Path,
    values: Mapping[str, Any],
    dataset: Dataset,
    recipe: Recipe,
    settings: RunSettings,
) -> dict[str, Any]:
    """Train with these values. An error that they may cause is a failed trial."""
    resume = broadcast_from_main(is_main_process() and (folder / "run.json").exists())
    options = settings.to_dict() | {"split": "all", "quiet": True}
    try:
        method = _trial_recipe(recipe, values)
        run = train(dataset, method=method, out=folder, resume=resume, **options)
    except UnreadablePictures:
        raise
    except (ValueError, torch.OutOfMemoryError) as error:
        return {"state": "failed", "error": str(error)}
    results = run.results
    return {
        "state": "done",
        "recall@1": results["validation_recall@1"],
        "step": results["selected_step"],
        "seconds": results["seconds"],
    }


class _Study:
    """Optuna's study in a folder. File locks tell which trials have a process that runs them."""

    def __init__(self, folder: Path, recipe: Recipe, sampler: str, seed: int) -> None:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "journal.jsonl"))
        self.folder, self.recipe = folder, recipe
        self._trial: Any = None
        self._lock: TextIO | None = None  # of the trial that this process runs
        with self._locked():
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(backend),
                study_name="tune",
                direction="maximize",
                sampler=_seeded_sampler(sampler, seed),
                load_if_exists=True,
            )

    def next_trial(self, trials: int) -> tuple[int, dict[str, Any]] | None:
        """The number and the values of a trial to run; None: there are enough, and all ended.

        Trials that an ended process left come first. Waits for those of other processes, which
        may end early and leave their trial.
        """
        while True:
            with self._locked():
                running = self._in_state("RUNNING")
                self._trial = next((t for t in map(self._take_over, running) if t), None)
                if self._trial is None and len(self._study.trials) < trials:
                    self._trial = self._study.ask()
                    self._lock = self._try_lock(self._trial.number)
                if self._trial is not None:
                    ranges = self.recipe.tune.items()
                    values = {key: _suggest(self._trial, key, range_) for key, range_ in ranges}
                    return self._trial.number, values
            if not running:
                return None
            time.sleep(0.2)

    def finish(self, row: Mapping[str, Any]) -> None:
        """Store the result of the trial, and write best.toml."""
        states = _optuna().trial.TrialState
        with self._locked():
            for key, value in row.items():
                self._trial.set_user_attr(key, value)
            if row["state"] == "failed":
                self._study.tell(self._trial, state=states.FAIL)
            else:
                self._study.tell(self._trial, row["recall@1"])
            self.release()
            (self.folder / f"{_name(self._trial.number)}.lock").unlink()
            if (best := _best(self.rows())) is not None:
                text = _trial_recipe(self.recipe, best["values"]).to_toml()
                write_atomically(self.folder / "best.toml", lambda part: part.write_text(text))

    def release(self) -> None:
        """Leave the trial, if it has not ended, to another process or to a later call."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def rows(self) -> list[dict[str, Any]]:
        """The trials that have ended."""
        ranges = self.recipe.tune
        return [
            {
                "trial": trial.number,
                "folder": _name(trial.number),
                "values": {key: _from_optuna(ranges[key], trial.params[key]) for key in ranges},
                **trial.user_attrs,
            }
            for trial in self._in_state("COMPLETE", "FAIL")
        ]

    def _in_state(self, *names: str) -> list[Any]:
        states = _optuna().trial.TrialState
        trials: list[Any] = self._study.get_trials(states=[getattr(states, name) for name in names])
        return trials

    def _take_over(self, trial: Any) -> Any:
        """A trial that no process runs; None if one does."""
        self._lock = self._try_lock(trial.number)
        if self._lock is None:
            return None
        return _optuna().trial.Trial(self._study, trial._trial_id)

    def _try_lock(self, number: int) -> TextIO | None:
        file = (self.folder / f"{_name(number)}.lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the study."""
        with (self.folder / "study.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "tune: expected Optuna, which is not installed; pip install 'kinspace[tune]'"
        ) from None
    return optuna


def _seeded_sampler(name: str, seed: int) -> Any:
    """A sampler of Optuna's, seeded anew for each trial: a resumed study draws the same values."""
    optuna = _optuna()
    made = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}[name]

    class Seeded(optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
        def before_trial(self, study: Any, trial: Any) -> None:
            number = np.random.SeedSequence([seed, trial.number]).generate_state(1)[0]
            self.inner = made(seed=int(number))

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            return self.inner.sample_independent(study, trial, name, distribution)

    return Seeded()


def _suggest(trial: Any, key: str, values: Range) -> Any:
    """The value of a trial: drawn the first time, then read from the storage."""
    if values.choices is not None:  # by their positions: Optuna takes no lists
        position = trial.suggest_categorical(key, tuple(range(len(values.choices))))
        return _from_optuna(values, position)
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    suggest = trial.suggest_int if whole else trial.suggest_float
    return suggest(key, values.low, values.high, log=values.log)


def _from_optuna(values: Range, drawn: Any) -> Any:
    return drawn if values.choices is None else values.choices[drawn]


def _name(number: int) -> str:
    return f"trial-{number:03}"


def _trial_recipe(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with the values of a trial, and no ranges."""
    return with_changes(replace(recipe, tune={}), values, where="trial")


def _best(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The trial with the best recall; the first of equals."""
    done = [row for row in rows if row["state"] == "done"]
    return max(done, key=lambda row: row["recall@1"], default=None)


def _format_row(number: int, trials: int, values: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    text = ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in values.items()
    )
    if row["state"] == "failed":
        return f"trial {number + 1}/{trials}: {text}: failed: {row['error']}"
    recall = f"Recall@1 {row['recall@1']:.1%} (validation, step {row['step']})"
    return f"trial {number + 1}/{trials}: {text}: {recall}, {row['seconds']:.0f} s"
