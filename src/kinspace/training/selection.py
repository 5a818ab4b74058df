"""The settings of a training, chosen on training classes that are held out.

Candidates, each judged by retrieval among the pictures of the held-out classes:

    start      the backbone as it is: its features, whitened within the classes, discriminants
    frozen     head and loss trained on the features of the frozen backbone, at several rates
    training   the recipe itself, at several learning rates, then with other weights of its
               regularizers

The length comes with the rate: a candidate trains at a constant rate and is judged at steps that
grow by half an octave, by the average of its weights over about the last tenth of its steps, which
stands for a training that was annealed to end there. It ends when twice the steps of its best point
have brought nothing. All trainings together take at most `search.budget` times `schedule.steps`
steps; those on frozen features, which take seconds, do not count.

Of two candidates the better one has the higher Recall@1, if that is more than one standard error of
the paired difference; else the higher MAP@R; else, where neither tells them apart, the recipe's own
settings, then more steps. What counts is new classes, so the error is that of a mean over classes
drawn at random, not over pictures. A training is chosen over the best start only where it is better
by two standard errors.

With few classes every class is held out once, in folds. The test part is not read.

    RUN/selection/NAME.safetensors   a candidate: what it scored, by query
    RUN/selection.json               all candidates, the choice and its reason
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core.atomic_files import write_json
from kinspace.data import class_folds, hold_out_classes
from kinspace.distributed import barrier, is_main_process
from kinspace.evaluation.retrieval import QueryScores, Retrieval
from kinspace.models import Embedder
from kinspace.recipes import Recipe, with_changes
from kinspace.recipes.overrides import fit_batch_size, samples_per_batch
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
from kinspace.training.loop import Hooks, fit
from kinspace.training.run_folder import read_checkpoint, write_checkpoint
from kinspace.training.settings import RunSettings

__all__ = ["Candidate", "Choice", "Point", "Selection", "better", "enough_classes"]

FOLDS = {4: 2, 9: 3, 40: 1}  # from so many training classes on; 1: a quarter of them is held out
HELD_OUT = 0.25
RATE_FACTOR = 3.0  # between neighboring learning rates
WEIGHT_FACTOR = 5.0  # between neighboring weights of a regularizer
FROZEN_STEPS, FROZEN_EPOCHS = 200, 4  # a training on frozen features takes the more of both
MANY = 2**32  # more than a fold has classes
MAX_DECAY = 0.9999  # of the averaged weights; below it the average covers a tenth of the steps


@dataclass(frozen=True, eq=False)
class Point:
    """The scores of a candidate at a step, for each query of the held-out classes."""

    step: int
    recall: Tensor  # (queries,) 1 where the nearest picture is of the class
    precision: Tensor  # (queries,) its share of MAP@R, 0 for a query without a match
    classes: Tensor  # (queries,) the class of each

    @classmethod
    def of(cls, step: int, scores: QueryScores, labels: Tensor) -> Point:
        """The point of a validation."""
        values = scores.values
        return cls(
            step,
            values["recall@1"].float().cpu(),
            values["map@r"].nan_to_num().float().cpu(),
            labels.cpu(),
        )

    def to_dict(self) -> dict[str, Any]:
        """The means, for JSON."""
        return {
            "step": self.step,
            "recall@1": float(self.recall.mean()),
            "map@r": float(self.precision.mean()),
        }


def better(first: Point, second: Point, *, errors: float = 1.0) -> int:
    """1 where the first is better, -1 where the second is, 0 where the classes cannot tell.

    errors: by how many standard errors it has to be.

    >>> classes = torch.arange(50) % 5
    >>> sure = Point(10, torch.ones(50), torch.ones(50), classes)
    >>> poor = Point(10, torch.zeros(50), torch.zeros(50), classes)
    >>> better(sure, poor), better(poor, sure), better(sure, sure)
    (1, -1, 0)
    """
    for ours, theirs in ((first.recall, second.recall), (first.precision, second.precision)):
        apart = ours.double() - theirs.double()
        mean = float(apart.mean())
        if abs(mean) > errors * _standard_error(apart, first.classes):
            return 1 if mean > 0 else -1
    return 0


def _standard_error(values: Tensor, classes: Tensor) -> float:
    """Of the mean of the values, which are drawn in whole classes (cluster-robust).

    sqrt( C / (C - 1) sum_c (sum_{i in c} (v_i - v))^2 ) / N
    """
    found, places = classes.unique(return_inverse=True)
    sums = torch.zeros(len(found), dtype=values.dtype).index_add(0, places, values - values.mean())
    spread = float(sums.square().sum()) * len(found) / max(len(found) - 1, 1)
    return math.sqrt(spread) / max(len(values), 1)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Settings that were tried: their changes of the recipe, and what they scored by step.

    kind: "start", "frozen" or "training". ended: why there are no further points.
    """

    name: str
    kind: str
    changes: Mapping[str, Any]
    points: tuple[Point, ...]
    seconds: float
    ended: str = ""

    @property
    def best(self) -> Point:
        """The point that no other is better than; of equal ones the last."""
        return _best(self.points)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "changes": dict(self.changes),
            "points": [point.to_dict() for point in self.points],
            "best": self.best.step if self.points else None,
            "seconds": round(self.seconds, 1),
            "ended": self.ended,
        }


def _best(points: Sequence[Point]) -> Point:
    """The highest Recall@1; of those it cannot be told from, the highest MAP@R; then the last."""
    top = max(points, key=lambda point: float(point.recall.mean()))
    near = [point for point in points if not _recall_apart(top, point)]
    return max(near, key=lambda point: (round(float(point.precision.mean()), 4), point.step))


def _recall_apart(first: Point, second: Point) -> bool:
    return (
        better(replace(first, precision=first.recall), replace(second, precision=second.recall))
        != 0
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """What the search found: the candidate, the changes to train with, and why.

    train: whether there is anything to train; the start is kept otherwise.
    """

    candidate: Candidate
    changes: Mapping[str, Any]
    train: bool
    reason: str


def enough_classes(classes: int) -> bool:
    """Whether so many training classes can hold some out.

    >>> enough_classes(3), enough_classes(4)
    (False, True)
    """
    return classes >= min(FOLDS)


@dataclass
class Selection:
    """A search: the recipe, the model before its first step, and the training part.

    folder: the run folder, whose candidates of an interrupted search are read. has_weights: whether
    the backbone has learnt anything.
    """

    recipe: Recipe
    settings: RunSettings
    model: nn.Module
    train: DataPart
    folder: Path
    progress: Progress = field(default_factory=NoProgress)
    has_weights: bool = False

    def __post_init__(self) -> None:
        self.folds = _folds(self.train, self.settings.seed)
        self.candidates: list[Candidate] = []
        self.spent = 0  # steps of the candidates that count
        self.notes: list[str] = []
        self._frozen: list[tuple[DataPart, DataPart]] | None = None
        self._heads: dict[tuple[object, ...], Mapping[str, Tensor]] = {}
        self._warm: dict[int, Mapping[str, Tensor]] = {}
        own, regularizers = self.recipe.schedule.steps, len(self.recipe.regularizers)
        self.budget = int(self.recipe.search.budget * own)
        tries = 3 + 2 * regularizers
        # a candidate's usual length; the recipe's own where the budget has room for it
        self.length = max(1, min(own, self.budget // (tries * len(self.folds))))

    def run(self) -> Choice:
        """Try the candidates and choose."""
        classes = sum(held.dataset.num_classes for _, held in self.folds)
        folds = "" if len(self.folds) == 1 else f" in {len(self.folds)} folds"
        self.progress.message(
            f"choosing settings on {classes} held-out training classes{folds}: at most "
            f"{self.budget:,} steps, {self.recipe.search.budget:g} times a training"
        )
        self._try_starts()
        if self._on_features:
            self._try_rates("frozen")
        if not self.recipe.model.freeze and self._has_time():
            best = self._try_rates("training")
            self._try_weights(best)
        choice = self._choose()
        self.progress.message(choice.reason)
        if is_main_process():
            write_json(self.folder / "selection.json", self._to_dict(choice))
        barrier()
        return choice

    @property
    def _on_features(self) -> bool:
        """Whether training on the features of the frozen backbone is worth trying."""
        learnt = self.has_weights or self.recipe.model.freeze
        return isinstance(self.model, Embedder) and learnt

    # the candidates

    def _try_starts(self) -> None:
        if not isinstance(self.model, Embedder):
            return
        dims = {"features": None, "whitened": self.recipe.model.dim}
        dims["discriminants"] = self.recipe.model.dim
        for name, dim in dims.items():
            start = "random" if name == "features" else name
            changes = {"model.dim": dim, "model.start": start, "model.freeze": True}
            if name != "features" and not self._starts_with(start):
                continue
            if name == "features" or self._on_features:
                self._add(name, "start", changes)

    def _starts_with(self, start: str) -> bool:
        """Whether the head can start so: an error of the recipe or the features says it cannot."""
        part = self.recipe.model
        return (
            isinstance(self.model, Embedder)
            and part.dim is not None
            and not part.attention
            and not part.groups
            and isinstance(self.model.head.linear, nn.Linear)
            and part.dim <= self.model.head.linear.in_features
        )

    def _try_rates(self, kind: str) -> Candidate:
        """The recipe's own learning rate, and its neighbors in the direction that is better."""
        own = self.recipe.optimizer.lr
        starts = [self.recipe.model.start]
        if kind == "frozen" and starts == ["random"] and self._starts_with("whitened"):
            starts.append("whitened")
        found = {(0, start): self._add_rate(kind, own, start) for start in starts}
        start = max(starts, key=lambda each: float(found[0, each].best.recall.mean()))
        if kind == "training":
            start = self.recipe.model.start
        best = found[0, start]
        for direction in (1, -1):
            place = direction
            while self._left(kind):
                tried = self._add_rate(kind, own * RATE_FACTOR**place, start)
                if not tried.points or better(best.best, tried.best) >= 0:
                    break
                best, place = tried, place + direction
            if place != direction:  # better this way: the other way is worse
                break
        return best

    def _add_rate(self, kind: str, rate: float, start: str) -> Candidate:
        rate = float(f"{rate:.2g}")
        changes: dict[str, Any] = {"optimizer.lr": rate}
        name = f"{kind}, rate {rate:g}"
        if kind == "frozen":
            changes |= {"model.freeze": True, "model.start": start}
            name = f"frozen, {start} start, rate {rate:g}"
        return self._add(name, kind, changes)

    def _try_weights(self, best: Candidate) -> None:
        """Other weights of each regularizer, at the best learning rate."""
        for part in self.recipe.regularizers:
            for factor in (WEIGHT_FACTOR, 1 / WEIGHT_FACTOR):
                if not self._left("training"):
                    return
                weight = float(f"{part.weight * factor:.2g}")
                key = f"regularizers.{part.name}.weight"
                rate = best.changes["optimizer.lr"]
                name = f"training, rate {rate:g}, {part.name} {weight:g}"
                self._add(name, "training", {**best.changes, key: weight})

    def _left(self, kind: str) -> bool:
        """Whether the budget has room for another candidate."""
        return kind != "training" or self.budget - self.spent >= self.length * len(self.folds) // 2

    def _has_time(self) -> bool:
        """Whether this machine can train the network: on a CPU a few steps are timed first."""
        limit = self.recipe.search.cpu_minutes
        if self.train.device.type != "cpu" or limit is None or not self.has_weights:
            return True
        seconds = self._seconds_a_step() * 3 * self.length * len(self.folds)
        if seconds <= 60 * limit:
            return True
        self.notes.append(
            f"training the whole network was not tried: it would take about {_duration(seconds)} "
            "on this CPU; on a GPU it is tried, and with --budget"
        )
        self.progress.message(self.notes[-1])
        return False

    def _seconds_a_step(self) -> float:
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

    def _add(self, name: str, kind: str, changes: Mapping[str, Any]) -> Candidate:
        """The candidate of this name: read where an interrupted search has it, else tried."""
        words = name.replace(",", "").replace(" ", "-")
        file = self.folder / "selection" / f"{words}.safetensors"
        found = _read(file, name, kind, changes) if file.exists() else None
        barrier()
        if found is None:
            found = self._try(name, kind, changes)
            if is_main_process():
                file.parent.mkdir(exist_ok=True)
                _write(file, found)
            barrier()
        self.candidates.append(found)
        if kind == "training" and found.points:
            self.spent += max(point.step for point in found.points) * len(self.folds)
        self.progress.message(_line(found))
        return found

    def _try(self, name: str, kind: str, changes: Mapping[str, Any]) -> Candidate:
        started = time.monotonic()
        on_features = kind != "training" and self._on_features
        parts = self._frozen_folds() if on_features else self.folds
        ended, points = "", []
        for number, (train, held_out) in enumerate(parts):
            try:
                found, ended = self._scores(number, train, held_out, kind, changes)
            except NotFinite as error:
                found, ended = [], str(error)
            points.append(found)
        return Candidate(name, kind, changes, _joined(points), time.monotonic() - started, ended)

    def _scores(
        self, fold: int, train: DataPart, held_out: DataPart, kind: str, changes: Mapping[str, Any]
    ) -> tuple[list[Point], str]:
        """The points of a candidate in one fold."""
        recipe = start_recipe(self.recipe, changes) if kind == "start" else self.changed(changes)
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
        return self._trajectory(recipe, model, train, held_out, kind, original)

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
        """The warm start, trained once a fold: it does not depend on what is searched."""
        if fold not in self._warm:
            before, _ = fit_batch_size(warm_start_recipe(recipe), train.dataset.labels)
            dim = embedding_dim(model, train)
            state = make_state(before, self.settings, model, train, dim=dim)
            fit(state, make_plan(before, self.settings), train, None, Hooks())
            self._warm[fold] = {n: value.clone() for n, value in model.state_dict().items()}
        model.load_state_dict(dict(self._warm[fold]))

    def _trajectory(
        self,
        recipe: Recipe,
        model: nn.Module,
        train: DataPart,
        held_out: DataPart,
        kind: str,
        original: Tensor | None,
    ) -> tuple[list[Point], str]:
        """Train at a constant rate, and score the average of the weights on the way."""
        length = self._frozen_length(recipe) if kind == "frozen" else self.length
        most = 2 * length
        if kind == "training":
            most = max(1, min(most, (self.budget - self.spent) // len(self.folds)))
        steps = [step for step in scored_steps(length) if step <= most]
        recipe = with_changes(recipe, {"schedule.steps": steps[-1]})
        dim = embedding_dim(model, train)
        state = make_state(recipe, self.settings, model, train, dim=dim, original=original)
        plan = replace(make_plan(recipe, self.settings), validate_at=tuple(steps), keep_every=0)
        points: list[Point] = []
        reasons: list[str] = []

        def validated(step: int, scores: QueryScores) -> bool:
            points.append(Point.of(step, scores, held_out.dataset.labels))
            best = _best(points).step
            if step >= 2 * max(best, steps[0]) and step >= length // 2:
                reasons.append(f"no better since step {best}")
            elif step >= length and best < step:
                reasons.append("")
            return bool(reasons)

        silent = NoProgress() if kind == "frozen" else _RowsAlone(self.progress)
        silent.start(steps[-1])
        hooks = Hooks(progress=silent, validated=validated)
        try:
            fit(state, plan, train, held_out, hooks)
        except NotFinite as error:
            reasons.append(str(error))
        return points, reasons[-1] if reasons else "still better at its last step"

    def _frozen_length(self, recipe: Recipe) -> int:
        """Some epochs: a head on given features learns fast, and the rate is searched."""
        epoch = math.ceil(len(self.train.dataset) / samples_per_batch(recipe))
        return min(self.recipe.schedule.steps, max(FROZEN_STEPS, FROZEN_EPOCHS * epoch))

    def changed(self, changes: Mapping[str, Any]) -> Recipe:
        """The recipe as a candidate trains it: at a constant rate, with averaged weights."""
        given = {"schedule.kind": "constant", "optimizer.ema": MAX_DECAY, "search.budget": 0.0}
        return with_changes(self.recipe, {**given, **changes}, where="selection")

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

    # the choice

    def _choose(self) -> Choice:
        starts = [each for each in self.candidates if each.kind == "start"]
        trained = [each for each in self.candidates if each.kind != "start" and each.points]
        start = _first_of_the_best(starts) if starts else None
        if not trained:
            if start is None:
                raise ValueError(
                    "selection: every candidate ended with a loss that is not finite; lower "
                    "optimizer.lr, or clip the gradients (optimizer.clip_norm)"
                )
            return Choice(
                start, start.changes, False, f"{self._kept(start)}: no training ended well"
            )
        best, note = self._best_trained(trained)
        if start is not None and better(best.best, start.best, errors=2.0) <= 0:
            reason = f"{self._kept(start)}: no training is better on the held-out classes"
            reason += f" ({best.name}, {_percent(best.best)})"
            return Choice(start, start.changes, False, reason)
        steps = self._final_steps(best)
        changes = {
            "schedule.kind": "constant",
            "optimizer.ema": MAX_DECAY,
            **best.changes,
            "schedule.steps": steps,
        }
        than = "" if start is None else f", {start.name} {_percent(start.best)}"
        reason = (
            f"chosen: {best.name}, {steps:,} steps; on held-out classes Recall@1 "
            f"{_percent(best.best)}{than}{note}"
        )
        return Choice(best, changes, True, reason)

    def _kept(self, start: Candidate) -> str:
        return f"the start is kept ({start.name}, Recall@1 {_percent(start.best)})"

    def _best_trained(self, trained: Sequence[Candidate]) -> tuple[Candidate, str]:
        """The best candidate; the recipe's own where the held-out classes cannot tell it apart."""
        points = {id(each.best): each for each in trained}
        best = points[id(_best([each.best for each in trained]))]
        own = next((each for each in trained if self._is_own(each, best.kind)), None)
        if own is not None and own is not best and not better(best.best, own.best):
            return own, "; the held-out classes cannot tell other settings from the recipe's own"
        return best, ""

    def _is_own(self, candidate: Candidate, kind: str) -> bool:
        keys = {key for key in candidate.changes if key.startswith(("optimizer.", "regularizers."))}
        return (
            candidate.kind == kind
            and keys == {"optimizer.lr"}
            and candidate.changes["optimizer.lr"] == self.recipe.optimizer.lr
        )

    def _final_steps(self, best: Candidate) -> int:
        """As many epochs on all classes; the recipe's own steps where the budget was too short."""
        own = self.recipe.schedule.steps
        last = best.best.step == best.points[-1].step
        share = sum(len(train.dataset) for train, _ in self.folds) / len(self.folds)
        steps = max(1, round(best.best.step * len(self.train.dataset) / share))
        return max(own, steps) if last and best.kind == "training" else steps

    def _to_dict(self, choice: Choice) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "spent": self.spent,
            "folds": [
                {
                    "train": list(train.dataset.class_names),
                    "held_out": list(held.dataset.class_names),
                    "queries": len(held.dataset),
                }
                for train, held in self.folds
            ],
            "candidates": [each.to_dict() for each in self.candidates],
            "chosen": choice.candidate.name,
            "step": choice.candidate.best.step,
            "changes": dict(choice.changes),
            "trained": choice.train,
            "reason": choice.reason,
            "notes": self.notes,
        }


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


def _folds(train: DataPart, seed: int) -> list[tuple[DataPart, DataPart]]:
    """The training part without the held-out classes, and these, once or in folds."""
    dataset = train.dataset
    count = next(folds for least, folds in reversed(FOLDS.items()) if dataset.num_classes >= least)
    if count == 1:
        splits = [hold_out_classes(dataset, HELD_OUT, seed=seed)]
    else:
        splits = list(class_folds(dataset, count, seed=seed))
    return [(train.part(split.train), train.part(split.validation)) for split in splits]


def _joined(folds: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """The points of the steps that every fold has, their queries in a row."""
    shared = set.intersection(*({point.step for point in points} for points in folds))
    by_step = [{point.step: point for point in points} for points in folds]
    return tuple(
        Point(
            step,
            torch.cat([points[step].recall for points in by_step]),
            torch.cat([points[step].precision for points in by_step]),
            # a class of another fold is another class
            torch.cat([points[step].classes + MANY * i for i, points in enumerate(by_step)]),
        )
        for step in sorted(shared)
    )


def _first_of_the_best(starts: Sequence[Candidate]) -> Candidate:
    """The best start; of equal ones the first, which is the simplest."""
    best = starts[0]
    for start in starts[1:]:
        if better(start.best, best.best) > 0:
            best = start
    return best


def _write(file: Path, candidate: Candidate) -> None:
    tensors = {"classes": candidate.points[0].classes} if candidate.points else {}
    for point in candidate.points:
        tensors[f"recall.{point.step}"] = point.recall
        tensors[f"precision.{point.step}"] = point.precision
    write_checkpoint(file, tensors, candidate.to_dict())


def _read(file: Path, name: str, kind: str, changes: Mapping[str, Any]) -> Candidate | None:
    """A candidate that was tried before; None where the file is of another one, or damaged."""
    try:
        tensors, about = read_checkpoint(file)
        if (about["name"], about["kind"], about["changes"]) != (name, kind, dict(changes)):
            return None
        steps = [point["step"] for point in about["points"]]
        points = [
            Point(s, tensors[f"recall.{s}"], tensors[f"precision.{s}"], tensors["classes"])
            for s in steps
        ]
        return Candidate(name, kind, changes, tuple(points), about["seconds"], about["ended"])
    except (ValueError, KeyError):
        return None


def _line(candidate: Candidate) -> str:
    if not candidate.points:
        return f"{candidate.name}: {candidate.ended}"
    best = candidate.best
    at = "" if candidate.kind == "start" else f" at step {best.step}"
    ended = f" ({candidate.ended})" if candidate.ended else ""
    return f"{candidate.name}: Recall@1 {_percent(best)}{at}{ended}"


def _percent(point: Point) -> str:
    return f"{float(point.recall.mean()):.1%}"


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(5400), _duration(90)
    ('1.5 hours', '2 minutes')
    """
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{max(1, round(seconds / 60))} minutes"


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
