"""The trials of a search for settings: candidates trained and scored on held-out training classes.

A candidate trains at a constant rate and is judged at steps that grow by half an octave, by the
average of its weights over about the last tenth of its steps, which stands for a training that was
annealed to end there. It ends when twice the steps of its best point have brought nothing.

With few classes every class is held out once, in folds. The test part is not read.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from kinspace.data import class_folds, hold_out_classes
from kinspace.evaluation.retrieval import QueryScores, Retrieval
from kinspace.models import Embedder
from kinspace.recipes import Recipe, with_changes
from kinspace.recipes.overrides import fit_batch_size, samples_per_batch
from kinspace.training.candidates import Candidate, Point, best_point, join_folds
from kinspace.training.components import (
    densities_for,
    init_head,
    make_model,
    make_plan,
    make_state,
    warm_start_recipe,
)
from kinspace.training.data_parts import DataPart, DataParts, embedding_dim
from kinspace.training.embedding import embed_all
from kinspace.training.frozen import with_features
from kinspace.training.log import NoProgress, NotFinite, Progress, Row
from kinspace.training.loop import Hooks, Plan, fit
from kinspace.training.settings import RunSettings
from kinspace.training.state import State

__all__ = ["Trials", "enough_classes", "fresh_model", "start_recipe", "validation_folds"]

FOLDS = {4: 2, 9: 3, 40: 1}  # from so many training classes on; 1: a quarter of them is held out
HELD_OUT = 0.25
FROZEN_STEPS, FROZEN_EPOCHS = 200, 4  # a training on frozen features takes the more of both
MAX_DECAY = 0.9999  # of the averaged weights; below it the average covers a tenth of the steps
SEARCHED = {"schedule.kind": "constant", "optimizer.ema": MAX_DECAY}  # how a candidate trains


def enough_classes(classes: int) -> bool:
    """Whether so many training classes can hold some out.

    >>> enough_classes(3), enough_classes(4)
    (False, True)
    """
    return classes >= min(FOLDS)


@dataclass
class Trials:
    """Trains candidates of a recipe on the folds of a training part, from one model.

    folder: the run folder, where the features of the backbone are kept. on_features: whether
    starts are scored, and frozen candidates trained, on features that are computed once.
    """

    recipe: Recipe
    settings: RunSettings
    model: nn.Module
    train: DataPart
    folder: Path
    progress: Progress
    on_features: bool
    folds: list[tuple[DataPart, DataPart]] = field(init=False)

    def __post_init__(self) -> None:
        self.folds = validation_folds(self.train, self.settings.seed)
        self._frozen: list[tuple[DataPart, DataPart]] | None = None
        self._heads: dict[tuple[object, ...], Mapping[str, Tensor]] = {}
        self._warm: dict[tuple[int, bool, str], Mapping[str, Tensor]] = {}

    def score(
        self, name: str, kind: str, changes: Mapping[str, Any], *, length: int, most: int
    ) -> Candidate:
        """Train a candidate in every fold, and score it.

        kind: "start", "frozen" or "training". length, most: the usual and the largest number of
        steps of a training; one on frozen features has some epochs.
        """
        started = time.monotonic()
        ended, points = "", []
        for fold in range(len(self.folds)):
            try:
                found, ended = self._scores(fold, kind, changes, length, most)
            except NotFinite as error:
                found, ended = [], str(error)
            points.append(found)
        return Candidate(name, kind, changes, join_folds(points), time.monotonic() - started, ended)

    def _scores(
        self, fold: int, kind: str, changes: Mapping[str, Any], length: int, most: int
    ) -> tuple[list[Point], str]:
        """The points of a candidate in one fold, and why it ended."""
        train, held_out = self._parts(kind)[fold]
        recipe = start_recipe(self.recipe, changes) if kind == "start" else self._changed(changes)
        recipe, _ = fit_batch_size(recipe, train.dataset.labels)
        model = fresh_model(self.model, recipe, self.settings.seed).to(train.device)
        self._init_head(fold, kind, recipe, model, train)
        if kind == "start":
            vectors = embed_all(model, held_out)
            scores = Retrieval(vectors, held_out.dataset.labels).scores((1,))
            return [Point.of(0, scores, held_out.dataset.labels)], ""
        original = densities_for(recipe, model, train)
        if recipe.warm_start.steps:
            self._warm_start(fold, recipe, model, train)
        if kind == "frozen":
            length = self._frozen_length(recipe)
            most = 2 * length
        steps = [step for step in scored_steps(length) if step <= most]
        recipe = with_changes(recipe, {"schedule.steps": steps[-1]})
        dim = embedding_dim(model, train)
        state = make_state(recipe, self.settings, model, train, dim=dim, original=original)
        plan = replace(make_plan(recipe, self.settings), validate_at=tuple(steps), keep_every=0)
        progress = NoProgress() if kind == "frozen" else _RowsAlone(self.progress)
        return _trajectory(state, plan, train, held_out, progress, length)

    def _parts(self, kind: str) -> list[tuple[DataPart, DataPart]]:
        """The folds, with features in place of the pictures where no backbone trains."""
        return self._frozen_folds() if kind != "training" and self.on_features else self.folds

    def _init_head(
        self, fold: int, kind: str, recipe: Recipe, model: nn.Module, train: DataPart
    ) -> None:
        """Initialize the embedding layer: once for all candidates of a fold that start alike."""
        if not isinstance(model, Embedder):
            return
        part = recipe.model
        key = (fold, kind == "training", part.start, part.dim, part.start_norm, part.normalize)
        if key not in self._heads:
            init_head(recipe, model, train)
            self._heads[key] = {n: v.clone() for n, v in model.head.state_dict().items()}
        model.head.load_state_dict(dict(self._heads[key]))

    def _warm_start(self, fold: int, recipe: Recipe, model: nn.Module, train: DataPart) -> None:
        """The warm start, which depends on what trains and where the head starts, not on rates."""
        key = (fold, recipe.model.freeze, recipe.model.start)
        if key not in self._warm:
            before, _ = fit_batch_size(warm_start_recipe(recipe), train.dataset.labels)
            dim = embedding_dim(model, train)
            state = make_state(before, self.settings, model, train, dim=dim)
            fit(state, make_plan(before, self.settings), train, None, Hooks())
            self._warm[key] = {n: value.clone() for n, value in model.state_dict().items()}
        model.load_state_dict(dict(self._warm[key]))

    def _changed(self, changes: Mapping[str, Any]) -> Recipe:
        """The recipe as a candidate trains it: at a constant rate, with averaged weights."""
        given = {**SEARCHED, "search.budget": 0.0, **changes}
        return with_changes(self.recipe, given, where="selection")

    def _frozen_length(self, recipe: Recipe) -> int:
        """Some epochs: a head on given features learns fast, and the rate is searched."""
        epoch = math.ceil(len(self.train.dataset) / samples_per_batch(recipe))
        return min(self.recipe.schedule.steps, max(FROZEN_STEPS, FROZEN_EPOCHS * epoch))

    def _frozen_folds(self) -> list[tuple[DataPart, DataPart]]:
        """The folds with the features of the backbone in place of the pictures."""
        if self._frozen is None:
            assert isinstance(self.model, Embedder)
            self.progress.message("computing the features of the backbone")
            whole = with_features(
                DataParts(self.train, None, None),
                self.model.to(self.train.device),
                folder=self.folder / "features",
                views=self.recipe.model.freeze_views,
                progress=partial(self.progress.status, "features of the backbone"),
            ).train
            self._frozen = [
                (whole.part(train.dataset), whole.part(held.dataset)) for train, held in self.folds
            ]
        return self._frozen

    def seconds_a_step(self) -> float:
        """The time of a step, measured on eight pictures."""
        part, _ = self.folds[0]
        model = copy.deepcopy(self.model).train()
        batch = next(part.in_order(8))
        times = []
        for _ in range(2):
            started = time.perf_counter()
            model(batch.images).square().sum().backward()
            times.append(time.perf_counter() - started)
        recipe, _ = fit_batch_size(self.recipe, part.dataset.labels)
        return times[-1] / len(batch.images) * samples_per_batch(recipe)


def _trajectory(
    state: State,
    plan: Plan,
    train: DataPart,
    held_out: DataPart,
    progress: Progress,
    length: int,
) -> tuple[list[Point], str]:
    """Train at a constant rate, and score the average of the weights on the way."""
    steps = plan.validate_at
    points: list[Point] = []
    reasons: list[str] = []

    def validated(step: int, scores: QueryScores) -> bool:
        points.append(Point.of(step, scores, held_out.dataset.labels))
        best = best_point(points).step
        if step >= 2 * max(best, steps[0]) and step >= length // 2:
            reasons.append(f"no better since step {best}")
        elif step >= length and best < step:
            reasons.append("")
        return bool(reasons)

    progress.start(steps[-1])
    hooks = Hooks(progress=progress, validated=validated)
    try:
        fit(state, plan, train, held_out, hooks)
    except NotFinite as error:
        reasons.append(str(error))
    return points, reasons[-1] if reasons else "still better at its last step"


def start_recipe(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe of a start, which no loss trains: without learners and their groups.

    >>> from kinspace.recipes import read_recipe
    >>> start_recipe(read_recipe("bier"), {"model.dim": None}).model.groups is None
    True
    """
    table = recipe.to_dict() | {"fine_tuning": {}, "tune": {}, "search": {}, "warm_start": {}}
    if recipe.model.groups is not None:  # such a loss expects them
        table |= {"loss": {"name": "nra"}, "regularizers": []}
    plain = {"groups": None, "attention": 0, "depths": False, "dropout": 0.0, "start_norm": None}
    table["model"] = {**table["model"], **plain, "normalize": True}
    return with_changes(Recipe.from_dict(table), changes, where="selection")


def fresh_model(model: nn.Module, recipe: Recipe, seed: int) -> nn.Module:
    """A model of a recipe before its first step, with the backbone of another."""
    if not isinstance(model, Embedder):
        return copy.deepcopy(model)
    untrained = replace(recipe.model, pretrained=False, weights=None)
    fresh = make_model(replace(recipe, model=untrained), seed=seed)
    own = model.backbone.state_dict()
    fresh.backbone.load_state_dict({name: own[name] for name in fresh.backbone.state_dict()})
    return fresh


def scored_steps(length: int) -> list[int]:
    """The steps at which a training of this length is scored, half an octave apart, to twice it.

    >>> scored_steps(400)
    [6, 9, 12, 18, 25, 35, 50, 71, 100, 141, 200, 283, 400, 566, 800]
    """
    return sorted({max(1, round(length * 2 ** (half / 2))) for half in range(-12, 3)})


def validation_folds(train: DataPart, seed: int) -> list[tuple[DataPart, DataPart]]:
    """The training part without the held-out classes, and these, once or in folds.

    Empty with too few classes.
    """
    dataset = train.dataset
    if not enough_classes(dataset.num_classes):
        return []
    count = next(folds for least, folds in reversed(FOLDS.items()) if dataset.num_classes >= least)
    if count == 1:
        splits = [hold_out_classes(dataset, HELD_OUT, seed=seed)]
    else:
        splits = list(class_folds(dataset, count, seed=seed))
    return [(train.part(split.train), train.part(split.validation)) for split in splits]


class _RowsAlone(NoProgress):
    """Shows the rows of a candidate, without the scores on held-out classes and the messages."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def start(self, steps: int) -> None:
        """Begin a phase of `steps` steps."""
        self._progress.start(steps)

    def update(self, row: Row) -> None:
        """Show the row."""
        self._progress.update({name: value for name, value in row.items() if name != "recall@1"})
