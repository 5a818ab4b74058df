"""One training of the benchmark, and what it scores: on held-out training classes, or on the test.

A training takes the recipe's sampler, batches and losses at a constant rate, and the average of its
weights over about the last tenth of the steps is scored, as in `kinspace.training.selection`. What
a training scores is kept in a file, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kinspace.benchmark.methods import Method, in_losses
from kinspace.evaluation.retrieval import QueryScores, retrieval_by_roles
from kinspace.models import Embedder, Head
from kinspace.recipes import Recipe, with_changes
from kinspace.recipes.overrides import fit_batch_size
from kinspace.training.components import (
    init_head,
    make_plan,
    make_state,
    original_densities,
    warm_start_recipe,
)
from kinspace.training.data_parts import DataPart, embedding_dim
from kinspace.training.embedding import embed_all
from kinspace.training.log import NotFinite
from kinspace.training.loop import Hooks, fit
from kinspace.training.run_folder import read_checkpoint, write_checkpoint
from kinspace.training.settings import RunSettings
from kinspace.training.trials import MAX_DECAY, fresh_model

__all__ = ["MEASURES", "Scores", "Trainings", "steps_scored"]

MEASURES = ("recall@1", "map@r")


@dataclass(frozen=True, eq=False)
class Scores:
    """Of a training, by step: each measure of each query; empty where the loss was not finite."""

    by_step: Mapping[int, Mapping[str, Tensor]]
    seconds: float
    ended: str = ""

    def mean(self, step: int, measure: str) -> float:
        """The mean over queries; without a match a query counts 0."""
        return float(self.by_step[step][measure].mean())

    def best(self, measure: str = "map@r") -> tuple[int, float]:
        """The step with the highest mean, and that; of equal ones the first."""
        means = {step: self.mean(step, measure) for step in self.by_step}
        step = max(means, key=lambda each: (means[each], -each))
        return step, means[step]


def steps_scored(steps: int) -> tuple[int, ...]:
    """The steps at which a trial is scored: octaves up to the last.

    >>> steps_scored(400)
    (25, 50, 100, 200, 400)
    """
    return tuple(sorted({max(1, round(steps / 2**octave)) for octave in range(5)}))


@dataclass
class Trainings:
    """Trainings that share a backbone, or its features, and a folder of results."""

    model: Embedder
    settings: RunSettings
    folder: Path
    frozen: bool

    def __post_init__(self) -> None:
        self._heads: dict[tuple[object, ...], Mapping[str, Tensor]] = {}

    def trial(
        self,
        method: Method,
        number: int,
        changes: Mapping[str, Any],
        folds: Sequence[tuple[DataPart, DataPart]],
        steps: int,
    ) -> Scores:
        """The scores of a trial on the held-out classes of each fold."""

        def run() -> list[dict[int, dict[str, Tensor]]]:
            recipe = self._recipe(method, changes, steps)
            at = steps_scored(steps)
            return [self._fold(recipe, train, held, at) for train, held in folds]

        about = {"changes": dict(changes), "steps": steps, "folds": len(folds)}
        return self._kept(f"{method.name}/trial-{number:02}", method, about, run)

    def final(
        self,
        method: Method,
        seed: int,
        changes: Mapping[str, Any],
        train: DataPart,
        test: DataPart,
        steps: int,
    ) -> Scores:
        """The scores on the test part of a training on all training classes."""

        def run() -> list[dict[int, dict[str, Tensor]]]:
            recipe = self._recipe(method, changes, steps)
            state = self._fit(recipe, train, None, (steps,), Hooks(), seed)
            vectors = embed_all(state, test)
            scores = retrieval_by_roles(vectors, test.dataset.labels, test.dataset.parts)
            return [{steps: _measures(scores.scores((1,)))}]

        about = {"changes": dict(changes), "steps": steps, "seed": seed}
        return self._kept(f"{method.name}/seed-{seed}", method, about, run)

    def starts(
        self, method: Method, train: DataPart, test: DataPart
    ) -> dict[str, dict[str, float]]:
        """The means before any training: of the features, and of the embedding layer's start."""
        found = {"features": self._mean_scores(self.model, test, "features")}
        with in_losses(method.name, method.cls):
            recipe = self._recipe(method, {}, 1)
        if recipe.model.start != "random":
            model = self._fresh(recipe, self.settings.seed).to(train.device)
            self._init_head(recipe, model, train, self.settings.seed)
            found[recipe.model.start] = self._mean_scores(model, test, "test")
        return found

    def _mean_scores(self, model: nn.Module, test: DataPart, what: str) -> dict[str, float]:
        vectors = embed_all(model.to(test.device), test, what=what)
        scores = retrieval_by_roles(vectors, test.dataset.labels, test.dataset.parts).scores((1,))
        return {name: float(values.mean()) for name, values in _measures(scores).items()}

    def _recipe(self, method: Method, changes: Mapping[str, Any], steps: int) -> Recipe:
        shared = {
            "schedule.kind": "constant",
            "schedule.steps": steps,
            "optimizer.ema": MAX_DECAY,
            "model.freeze": self.frozen,
            "search.budget": 0.0,
            "validation.fraction": 0.0,
        }
        return with_changes(method.recipe, {**shared, **changes}, where=method.name)

    def _fold(
        self, recipe: Recipe, train: DataPart, held: DataPart, at: tuple[int, ...]
    ) -> dict[int, dict[str, Tensor]]:
        found: dict[int, dict[str, Tensor]] = {}

        def validated(step: int, scores: QueryScores) -> bool:
            if step:
                found[step] = _measures(scores)
            return False

        self._fit(recipe, train, held, at, Hooks(validated=validated), self.settings.seed)
        return found

    def _fit(
        self,
        recipe: Recipe,
        train: DataPart,
        held: DataPart | None,
        at: tuple[int, ...],
        hooks: Hooks,
        seed: int,
    ) -> nn.Module:
        """The model after a training, with the average of its weights."""
        settings = replace(self.settings, seed=seed)
        labels = train.dataset.labels
        recipe, _ = fit_batch_size(recipe, labels)
        model = self._fresh(recipe, seed).to(train.device)
        self._init_head(recipe, model, train, seed)
        original = None
        if any(part.name == "density" for part in recipe.regularizers):
            original = original_densities(model, train).cpu()
        dim = embedding_dim(model, train)
        if recipe.warm_start.steps:
            before, _ = fit_batch_size(warm_start_recipe(recipe), labels)
            state = make_state(before, settings, model, train, dim=dim)
            fit(state, make_plan(before, settings), train, None, Hooks())
        state = make_state(recipe, settings, model, train, dim=dim, original=original)
        plan = make_plan(recipe, settings)
        plan = replace(plan, validate_at=at, keep_every=0, log_every=plan.steps)
        fit(state, plan, train, held, hooks)
        return state.eval_model

    def _fresh(self, recipe: Recipe, seed: int) -> nn.Module:
        """A model before its first step; on features it is the head alone."""
        if not self.frozen:
            return fresh_model(self.model, recipe, seed)
        part, layer = recipe.model, self.model.head.linear
        assert isinstance(layer, nn.Linear)  # no learners: `shipped_names`
        head = Head(
            layer.in_features,
            part.dim,
            pooling=self.model.head.pooling,
            dropout=part.dropout,
            normalize=part.length if part.normalize else False,
            seed=seed,
        )
        return Embedder(nn.Identity(), head)

    def _init_head(self, recipe: Recipe, model: nn.Module, train: DataPart, seed: int) -> None:
        """Initialize the embedding layer, once for all trainings that start alike."""
        if not isinstance(model, Embedder):
            return
        part = recipe.model
        own = seed if part.start == "random" else None
        key = (id(train), own, part.start, part.dim, part.start_norm, part.normalize)
        if key not in self._heads:
            init_head(recipe, model, train)
            self._heads[key] = {n: v.clone() for n, v in model.head.state_dict().items()}
        model.head.load_state_dict(dict(self._heads[key]))

    def _kept(self, name: str, method: Method, about: Mapping[str, Any], run: Any) -> Scores:
        """The scores in the file of this name, if they are of the same training; else made."""
        file = self.folder / f"{name}.safetensors"
        recipe = method.recipe.to_dict()
        stamp = {"recipe": recipe, "digest": method.digest, **about, "frozen": self.frozen}
        if (found := _read(file, stamp)) is not None:
            return found
        started = time.monotonic()
        ended = ""
        try:
            with in_losses(method.name, method.cls):
                folds = run()
        except NotFinite as error:
            folds, ended = [], str(error)
        except ValueError as error:
            if not about["changes"]:
                raise
            folds, ended = [], str(error).splitlines()[0]  # values that the loss refuses together
        scores = Scores(_joined(folds), time.monotonic() - started, ended)
        file.parent.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{step}/{name}": values
            for step, table in scores.by_step.items()
            for name, values in table.items()
        }
        write_checkpoint(file, tensors, {"stamp": stamp, "seconds": scores.seconds, "ended": ended})
        return scores


def _measures(scores: QueryScores) -> dict[str, Tensor]:
    return {name: scores.values[name].nan_to_num().float().cpu() for name in MEASURES}


def _joined(folds: Sequence[Mapping[int, Mapping[str, Tensor]]]) -> dict[int, dict[str, Tensor]]:
    """The queries of all folds in a row."""
    if not folds:
        return {}
    return {
        step: {name: torch.cat([fold[step][name] for fold in folds]) for name in MEASURES}
        for step in folds[0]
    }


def _read(file: Path, stamp: Mapping[str, Any]) -> Scores | None:
    if not file.exists():
        return None
    try:
        tensors, kept = read_checkpoint(file)
        if kept["stamp"] != _plain(stamp):
            return None
        by_step: dict[int, dict[str, Tensor]] = {}
        for key, values in tensors.items():
            step, _, name = key.partition("/")
            by_step.setdefault(int(step), {})[name] = values
        ordered = {step: by_step[step] for step in sorted(by_step)}
        return Scores(ordered, float(kept["seconds"]), str(kept["ended"]))
    except (ValueError, KeyError):
        return None


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))  # tuples become lists
