"""The study of `tune`: Optuna's trials in a folder, shared by processes through file locks."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from kinspace._core.atomic_files import write_atomically
from kinspace.recipes import Range, Recipe, with_changes

__all__ = [
    "LOCK",
    "SAMPLERS",
    "Study",
    "best_trial",
    "locked",
    "require_optuna",
    "seeded_sampler",
    "suggest",
    "trial_name",
    "trial_recipe",
]

SAMPLERS = ("random", "tpe")
LOCK = "study.lock"


class Study:
    """Optuna's study in a folder. A trial that a process runs has a locked file."""

    def __init__(self, folder: Path, recipe: Recipe, sampler: str, seed: int) -> None:
        optuna = require_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal = str(folder / "journal.jsonl")
        backend = optuna.storages.journal.JournalFileBackend(journal, lock_obj=_StudyLock())
        self.folder, self.recipe = folder, recipe
        self._trial: Any = None
        self._lock: TextIO | None = None  # of the trial that this process runs
        with locked(self.folder):
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(backend),
                study_name="tune",
                direction="maximize",
                sampler=seeded_sampler(sampler, seed),
                load_if_exists=True,
            )

    def next_trial(self, trials: int) -> tuple[int, dict[str, Any]] | None:
        """The number and the values of a trial to run; None: there are enough, and all ended.

        Trials that an ended process left come first. Waits for those of other processes, which
        may end early and leave their trial.
        """
        while True:
            with locked(self.folder):
                running = self._in_state("RUNNING")
                self._trial = next((t for t in map(self._take_over, running) if t), None)
                if self._trial is None and len(self._study.trials) < trials:
                    self._trial = self._study.ask()
                    self._lock = self._try_lock(self._trial.number)
                if self._trial is not None:
                    ranges = self.recipe.tune.items()
                    values = {key: suggest(self._trial, key, range_) for key, range_ in ranges}
                    return self._trial.number, values
            if not running:
                return None
            time.sleep(0.2)

    def finish(self, row: Mapping[str, Any]) -> None:
        """Store the result of the trial, and write best.toml."""
        states = require_optuna().trial.TrialState
        with locked(self.folder):
            for key, value in row.items():
                self._trial.set_user_attr(key, value)
            if row["state"] == "failed":
                self._study.tell(self._trial, state=states.FAIL)
            else:
                self._study.tell(self._trial, row["recall@1"])
            self.release()
            (self.folder / f"{trial_name(self._trial.number)}.lock").unlink()
            if (best := best_trial(self.rows())) is not None:
                text = trial_recipe(self.recipe, best["values"]).to_toml()
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
                "folder": trial_name(trial.number),
                "values": {key: _from_optuna(ranges[key], trial.params[key]) for key in ranges},
                **trial.user_attrs,
            }
            for trial in self._in_state("COMPLETE", "FAIL")
        ]

    def _in_state(self, *names: str) -> list[Any]:
        states = require_optuna().trial.TrialState
        trials: list[Any] = self._study.get_trials(states=[getattr(states, name) for name in names])
        return trials

    def _take_over(self, trial: Any) -> Any:
        """A trial that no process runs; None if one does."""
        self._lock = self._try_lock(trial.number)
        if self._lock is None:
            return None
        return require_optuna().trial.Trial(self._study, trial._trial_id)

    def _try_lock(self, number: int) -> TextIO | None:
        file = (self.folder / f"{trial_name(number)}.lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file


class _StudyLock:
    """A lock for Optuna's journal that does nothing: a Study writes under `locked` alone.

    Optuna's own is a file, which a killed process leaves behind for the others to wait for.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the study in a folder: only one process at a time reads and changes its state."""
    with (folder / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def require_optuna() -> Any:
    """The package optuna; a ValueError that names the extra where it is not installed."""
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "tune: expected Optuna, which is not installed; pip install 'kinspace[tune]'"
        ) from None
    return optuna


def seeded_sampler(name: str, seed: int) -> Any:
    """An Optuna sampler that is seeded for each trial: a resumed study draws the same values."""
    optuna = require_optuna()
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


def suggest(trial: Any, key: str, values: Range) -> Any:
    """The value of a trial: drawn the first time, then read from the storage."""
    if values.choices is not None:  # by their positions: Optuna takes no lists
        position = trial.suggest_categorical(key, tuple(range(len(values.choices))))
        return _from_optuna(values, position)
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    draw = trial.suggest_int if whole else trial.suggest_float
    return draw(key, values.low, values.high, log=values.log)


def _from_optuna(values: Range, drawn: Any) -> Any:
    return drawn if values.choices is None else values.choices[drawn]


def trial_name(number: int) -> str:
    """The name of a trial's run folder.

    >>> trial_name(3)
    'trial-003'
    """
    return f"trial-{number:03}"


def trial_recipe(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with the values of a trial, and no ranges."""
    return with_changes(replace(recipe, tune={}), values, where="trial")


def best_trial(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The trial with the best recall; the first of equals."""
    done = [row for row in rows if row["state"] == "done"]
    return max(done, key=lambda row: row["recall@1"], default=None)
