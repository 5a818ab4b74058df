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

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from kinspace._core import checks
from kinspace._core.atomic_files import clear_parts, read_json, write_json
from kinspace.data import Dataset, UnreadablePictures
from kinspace.data.load import load_dataset
from kinspace.data.named_splits import split_for, split_names
from kinspace.distributed import broadcast_from_main, init_process_group, is_main_process
from kinspace.recipes import Range, Recipe, parse_set, read_recipe, with_changes
from kinspace.training.log import PlainProgress
from kinspace.training.run_folder import new_folder, require_same
from kinspace.training.runs import train
from kinspace.training.settings import RunSettings
from kinspace.training.study import (
    LOCK,
    SAMPLERS,
    Study,
    best_trial,
    locked,
    require_optuna,
    trial_name,
    trial_recipe,
)

__all__ = ["TuneResult", "parse_range", "tune"]


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
    allow_outside: bool = False,
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
    require_optuna()  # fail before there is a folder
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
        allow_outside=allow_outside,
        compile=compile,
        tensorboard=tensorboard,
        quiet=quiet,
    )
    recipe = method if isinstance(method, Recipe) else read_recipe(method)
    recipe = with_changes(recipe, {"search.budget": 0.0, **(changes or {})}, where="changes")
    recipe = _with_ranges(recipe, ranges or {})
    started = init_process_group(settings.on_device())
    try:
        whole = load_dataset(data, allow_outside=allow_outside)
        dataset = _training_part(whole, recipe, settings)
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
        "split": split_for(train_part, settings.split or recipe.split),
        "classes": list(train_part.class_names),
        "recipe": recipe.to_dict(),
        "seed": settings.seed,
        "settings": settings.to_dict(),
    }
    name = f"{train_part.name}-{recipe.name}-tune"
    folder = _open_study(out, name, about) if is_main_process() else None
    return Path(broadcast_from_main(str(folder)))


def _open_study(out: str | Path | None, name: str, about: Mapping[str, Any]) -> Path:
    """Make the folder and tune.json, or check that tune.json is the same.

    Processes that start at the same time wait here for the one that makes it.
    """
    folder = new_folder(None, name) if out is None else Path(out)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        return new_folder(out, name)  # the error says why
    with locked(folder):
        clear_parts(folder)
        if (folder / "tune.json").exists():
            require_same(read_json(folder / "tune.json"), about, folder)
        elif any(path.name != LOCK for path in folder.iterdir()):
            (folder / LOCK).unlink()
            return new_folder(out, name)  # an error: the folder has other files
        else:
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
    study = Study(folder, recipe, sampler, settings.seed) if is_main_process() else None
    try:
        while True:
            drawn = broadcast_from_main(study.next_trial(trials) if study else None)
            if drawn is None:
                break
            number, values = drawn
            row = _run_trial(folder / trial_name(number), values, dataset, recipe, settings)
            if study is not None:
                study.finish(row)
                if not settings.quiet:
                    PlainProgress().message(_format_row(number, trials, values, row))
        rows: list[dict[str, Any]] = broadcast_from_main(study.rows() if study else [])
    finally:
        if study is not None:
            study.release()
    best = best_trial(rows)
    if best is None:
        raise ValueError(f"{folder}: all trials failed; the first: {rows[0]['error']}")
    return TuneResult(folder, trial_recipe(recipe, best["values"]), rows)


def _run_trial(
    folder: Path,
    values: Mapping[str, Any],
    dataset: Dataset,
    recipe: Recipe,
    settings: RunSettings,
) -> dict[str, Any]:
    """Train with these values. An error that they may cause is a failed trial."""
    resume = is_main_process() and (folder / "run.json").exists()
    if is_main_process() and not resume:
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed at its start
    resume = broadcast_from_main(resume)
    options = settings.to_dict() | {"split": "all", "quiet": True}
    try:
        method = trial_recipe(recipe, values)
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


def _format_row(number: int, trials: int, values: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    text = ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in values.items()
    )
    if row["state"] == "failed":
        return f"trial {number + 1}/{trials}: {text}: failed: {row['error']}"
    recall = f"Recall@1 {row['recall@1']:.1%} (validation, step {row['step']})"
    return f"trial {number + 1}/{trials}: {text}: {recall}, {row['seconds']:.0f} s"
