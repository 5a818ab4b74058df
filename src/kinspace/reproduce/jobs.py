"""From an experiment to the commands of its runs: one a row and seed.

The `command` of a job is what a reader types: data and weights by their names, without folders of
this machine. Equal commands mean equal settings: numbers on the disk are reused only then.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kinspace.data.standard import STANDARD_SETS
from kinspace.recipes import Recipe, parse_set, read_recipe, with_changes, with_regularizers
from kinspace.recipes.schema import to_toml
from kinspace.reproduce.experiment import Experiment, Row
from kinspace.reproduce.experiment_files import experiment_names, read_experiment

__all__ = [
    "Job",
    "data_name",
    "list_experiments",
    "make_jobs",
    "recipe_of",
    "settings_of",
    "shown_data",
]


@dataclass(frozen=True)
class Job:
    """One training. held_out: the fraction of training classes that it does not see."""

    row: Row
    seed: int
    held_out: float
    recipe: Recipe
    options: tuple[str, ...]  # of the command, without those that depend on the machine
    kind: str
    data: str  # its name

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.row.name}-seed{self.seed}" + ("-validation" if self.held_out else "")

    @property
    def steps(self) -> int:
        """Steps of the optimizer, including those of a warm start."""
        return self.recipe.schedule.steps + self.recipe.warm_start.steps

    @property
    def command(self) -> str:
        """The command that a reader types."""
        options = [*self.options]
        for place, text in enumerate(options):  # the weights by their file name alone
            if text == "--weights":
                options[place + 1] = Path(options[place + 1]).name
            elif text.startswith("model.weights="):
                options[place] = f"model.weights={Path(text.partition('=')[2].strip(chr(34))).name}"
        return shlex.join(["kinspace", self.kind, shown_data(self.data), *options])


def data_name(data: str) -> str:
    """The name of a data set by its place.

    >>> data_name("cub200:folder/cub"), data_name("moths"), data_name("photos/birds.zip")
    ('cub200', 'moths', 'birds')
    """
    name, colon, _ = data.partition(":")
    return name if colon else Path(data).stem


def shown_data(name: str) -> str:
    """What a reader types for a data set: a standard set is in some folder.

    >>> shown_data("cub200"), shown_data("moths")
    ('cub200:FOLDER', 'moths')
    """
    return f"{name}:FOLDER" if name in STANDARD_SETS else name


def settings_of(
    experiment: Experiment, row: Row, data: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The dotted keys of a row: the experiment's, its own, the user's.

    Of the experiment and of the row those for a data set come after those for all.
    """
    common = {**experiment.settings, **experiment.sets.get(data, {})}
    return {**common, **row.settings, **row.sets.get(data, {}), **changes}


def recipe_of(
    experiment: Experiment, row: Row, data: str, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """The recipe of a row, as `kinspace train` makes it from the row's options."""
    recipe = read_recipe(row.recipe or experiment.recipe or "")
    if row.regularizers is not None:
        recipe = with_regularizers(recipe, row.regularizers)
    settings = settings_of(experiment, row, data, changes or {})
    return with_changes(recipe, settings, where=f"{experiment.name}, {row.name}")


def make_jobs(
    experiment: Experiment,
    data: str,
    seeds: Sequence[int],
    *,
    changes: Mapping[str, Any] | None = None,
    weights: str | None = None,
) -> list[Job]:
    """Every row with the first seed, then with the next; `data` is the name of the set."""
    made = []
    for row in experiment.rows:
        whole = _job(experiment, row, 0.0, data, changes or {}, weights)
        made.append(whole)
        trains_on_all = experiment.kind == "train" and not whole.recipe.validation.fraction
        if experiment.validate and trains_on_all:
            made.append(_job(experiment, row, experiment.validate, data, changes or {}, weights))
    return [
        replace(job, seed=seed, options=(*job.options, "--seed", str(seed)))
        for seed in seeds
        for job in made
    ]


def _job(
    experiment: Experiment,
    row: Row,
    held_out: float,
    data: str,
    changes: Mapping[str, Any],
    weights: str | None,
) -> Job:
    """The job of a row, still without its seed."""
    if held_out:
        changes = {**changes, "validation.fraction": held_out}
    recipe = recipe_of(experiment, row, data, changes)
    settings = settings_of(experiment, row, data, changes)
    options = ["--method", row.recipe or experiment.recipe or ""]
    for regularizer in row.regularizers or ():
        options += ["--regularizer", regularizer]
    if weights is not None and experiment.kind == "hierarchy":
        settings = {**settings, "model.weights": weights}
    for key, value in settings.items():
        options += ["--set", f"{key}={_text(value)}"]
    if weights is not None and experiment.kind == "train":
        options += ["--weights", weights]
    if row.micro_batch is not None:
        options += ["--micro-batch", str(row.micro_batch)]
    return Job(row, 0, held_out, recipe, tuple(options), experiment.kind, data)


def _text(value: Any) -> str:
    """A value as `parse_set` reads it: words bare, the rest as TOML."""
    if isinstance(value, str) and parse_set(f"key={value}") == ("key", value):
        return value
    return to_toml({"key": value}).removeprefix("key = ").strip()


def list_experiments(seeds: int = 3) -> list[dict[str, str]]:
    """Name, data set, title and number of runs of each experiment.

    >>> list_experiments()[0]["name"]
    'almn'
    """
    return [
        {
            "name": experiment.name,
            "data": experiment.data,
            "title": f"{experiment.title}: {experiment.paper}",
            "runs": str(len(make_jobs(experiment, experiment.data, range(seeds)))),
        }
        for experiment in map(read_experiment, experiment_names())
    ]
