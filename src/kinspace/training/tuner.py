"""kinspace.training.tune: many short trainings, judged by the validation classes.

The test part is cut off before the first trial: no trial opens, embeds or scores it. A search
folder holds

    tune.json      what is searched: data, recipe, ranges, seed
    trials.jsonl   a row a trial: its values, and its Recall@1 or why it failed
    trial-000/ ..  a run folder each
    best.toml      the best recipe so far, for `kinspace train --method best.toml`

The same call on the same folder goes on: finished trials are not repeated, one that was cut short
is resumed, and more trials may be asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically
from kinspace._core.json_files import read_json, write_json
from kinspace.data import Dataset, UnreadablePictures
from kinspace.data.load import load_dataset
from kinspace.distributed import broadcast_from_main, init_process_group, is_main_process
from kinspace.recipes import Range, Recipe, read_recipe, with_changes
from kinspace.training.data_parts import split_names
from kinspace.training.log import Lines, read_metrics
from kinspace.training.run_folder import new_folder, same_run
from kinspace.training.search_space import require_search, suggested
from kinspace.training.settings import RunSettings, run_settings
from kinspace.training.trainer import train

__all__ = ["Search", "tune"]


@dataclass(frozen=True)
class Search:
    """A finished search: its folder, the best recipe, and a row a trial."""

    folder: Path
    best: Recipe
    trials: list[dict[str, Any]]


def tune(
    data: Any,
    *,
    method: str | Recipe = "magnet",
    trials: int = 20,
    sampler: str = "random",
    ranges: Mapping[str, Range] | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Search:
    """Search a recipe's ranges for the best Recall@1 on the validation classes.

    method: a recipe; what it declares in `tune` is searched, and `ranges`, which go before.
    sampler: "random", or "optuna" (extra `tune`). changes: other values for keys of the recipe,
    {"schedule.steps": 300}. out: the folder of the search; one that holds this very search goes on.
    settings: the options of `RunSettings`; the seed is that of the search and of every trial.
    """
    checks.integer("trials", trials, at_least=1)
    require_search(sampler)
    recipe = method if isinstance(method, Recipe) else read_recipe(method)
    recipe = with_changes(recipe, changes, where="changes") if changes else recipe
    recipe = _with_ranges(recipe, ranges or {})
    chosen = run_settings(settings)
    began = init_process_group(chosen.on_device())
    try:
        dataset = _trained_on(load_dataset(data), recipe, chosen)
        name = str(data) if isinstance(data, (str, Path)) else dataset.name
        folder = _folder(out, name, dataset, recipe, chosen)
        return _searched(folder, dataset, recipe, chosen, trials=trials, sampler=sampler)
    finally:
        if began:
            dist.destroy_process_group()


def _with_ranges(recipe: Recipe, ranges: Mapping[str, Range]) -> Recipe:
    both = {**recipe.tune, **ranges}
    if not both:
        raise ValueError(
            f"{recipe.name}: expected ranges to search, and the recipe declares none (tune); give "
            "some: --range optimizer.lr=1e-4:1e-2:log"
        )
    return replace(recipe, tune=both)


def _trained_on(dataset: Dataset, recipe: Recipe, settings: RunSettings) -> Dataset:
    """The training part alone, with classes enough to hold some out."""
    split = settings.split or recipe.split
    train_part, _, _ = split_names(dataset, split, validation=0.0, seed=settings.seed)
    fraction = recipe.validation.fraction
    if split_names(train_part, "all", validation=fraction, seed=settings.seed)[1] is None:
        raise ValueError(
            "validation: expected classes to choose by: four classes or more to train on, and "
            f"validation.fraction above 0; got {train_part.num_classes} classes and {fraction}"
        )
    return train_part


def _folder(
    out: str | Path | None, data: str, train_part: Dataset, recipe: Recipe, settings: RunSettings
) -> Path:
    """The folder of this search, new or gone on with."""
    about = {
        "data": data,
        "split": settings.split or recipe.split,
        "classes": list(train_part.class_names),
        "recipe": recipe.to_dict(),
        "seed": settings.seed,
        "settings": settings.to_dict(),
    }
    there = out is not None and is_main_process() and (Path(out) / "tune.json").exists()
    if out is not None and broadcast_from_main("there" if there else ""):
        same_run(read_json(Path(out) / "tune.json"), about, Path(out))
        return Path(out)
    name = f"{train_part.name}-{recipe.name}-tune"
    folder = Path(broadcast_from_main(str(new_folder(out, name)) if is_main_process() else ""))
    if is_main_process():
        write_json(folder / "tune.json", about)
    return folder


def _searched(
    folder: Path,
    dataset: Dataset,
    recipe: Recipe,
    settings: RunSettings,
    *,
    trials: int,
    sampler: str,
) -> Search:
    path = folder / "trials.jsonl"
    rows = read_metrics(path)
    tell = Lines().say if is_main_process() and not settings.quiet else (lambda text: None)
    while len(rows) < trials:
        values = suggested(sampler, recipe.tune, rows, seed=settings.seed)
        row = _trial(folder, len(rows), values, dataset, recipe, settings)
        rows.append(row)
        if is_main_process():
            _write_rows(path, rows)
            if _best(rows) is row:
                text = _tried(recipe, values).to_toml()
                write_atomically(folder / "best.toml", lambda part: part.write_text(text))  # noqa: B023
        tell(_told(row, trials))
    best = _best(rows)
    if best is None:
        raise ValueError(f"{folder}: no trial came to its end; the first: {rows[0]['error']}")
    return Search(folder, _tried(recipe, best["values"]), rows)


def _trial(
    folder: Path,
    number: int,
    values: Mapping[str, Any],
    dataset: Dataset,
    recipe: Recipe,
    settings: RunSettings,
) -> dict[str, Any]:
    """One training, as a row. What fails by its values is written down, and the search goes on."""
    name = f"trial-{number:03}"
    row: dict[str, Any] = {"trial": number, "folder": name, "values": dict(values)}
    begun = is_main_process() and (folder / name / "run.json").exists()
    options = settings.to_dict() | {"split": "all", "quiet": True}
    try:
        tried = _tried(recipe, values)
        run = train(
            dataset,
            method=tried,
            out=folder / name,
            resume=bool(broadcast_from_main("yes" if begun else "")),
            **options,
        )
    except UnreadablePictures:
        raise
    except (ValueError, torch.OutOfMemoryError) as error:
        return row | {"state": "failed", "error": str(error)}
    results = run.results
    return row | {
        "state": "done",
        "recall@1": results["validation_recall@1"],
        "step": results["selected_step"],
        "seconds": results["seconds"],
    }


def _tried(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe of a trial, with nothing left to search."""
    return with_changes(replace(recipe, tune={}), values, where="trial")


def _best(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The trial with the best recall; of equals, the first."""
    done = [row for row in rows if row["state"] == "done"]
    return max(done, key=lambda row: row["recall@1"], default=None)


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(path, lambda part: part.write_text(text))


def _told(row: Mapping[str, Any], trials: int) -> str:
    values = ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row["values"].items()
    )
    if row["state"] == "failed":
        return f"trial {row['trial'] + 1}/{trials}: {values}: failed: {row['error']}"
    recall = f"Recall@1 {row['recall@1']:.1%} (validation, step {row['step']})"
    return f"trial {row['trial'] + 1}/{trials}: {values}: {recall}, {row['seconds']:.0f} s"
