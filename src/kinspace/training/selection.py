"""The settings of a training, chosen on training classes that are held out.

Candidates, each judged by retrieval among the pictures of the held-out classes:

    start      the backbone as it is: its features, whitened within the classes, discriminants
    frozen     head and loss trained on the features of the frozen backbone, at several rates; with
               the loss of `search.frozen` too
    training   the recipe itself, at several learning rates, then with other weights of its
               regularizers

How a candidate is trained and scored is in `trials`, which of two is better in `candidates`. All
trainings together take at most `search.budget` times `schedule.steps` steps; those on frozen
features, which take seconds, do not count.

Where two candidates cannot be told apart, the recipe's own settings are taken, then more steps. A
training is chosen over the best start only where it is better by two standard errors, in Recall@1
or in MAP@R without a lower Recall@1. Of too few classes none is held out, and a backbone that has
learnt is kept as it is.

    RUN/selection/NAME.safetensors   a candidate: what it scored, by query
    RUN/selection.json               all candidates, the choice and its reason
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from kinspace._core.atomic_files import write_json
from kinspace._core.checks import plural
from kinspace.distributed import barrier, is_main_process
from kinspace.models import Embedder
from kinspace.recipes import Recipe
from kinspace.recipes.overrides import method_changes
from kinspace.training.candidates import (
    Candidate,
    best_point,
    better,
    first_of_the_best,
    measures,
    percent,
    read_candidate,
    replaces,
    summary,
    write_candidate,
)
from kinspace.training.data_parts import DataPart
from kinspace.training.log import NoProgress, Progress
from kinspace.training.settings import RunSettings
from kinspace.training.trials import SEARCHED, Trials

__all__ = ["Choice", "Selection"]

NO_CHANGES: Mapping[str, Any] = MappingProxyType({})
RATE_FACTOR = 3.0  # between neighboring learning rates
WEIGHT_FACTOR = 5.0  # between neighboring weights of a regularizer


@dataclass(frozen=True, eq=False)
class Choice:
    """What the search found: the candidate, the changes to train with, and why.

    train: whether there is anything to train; the start is kept otherwise.
    """

    candidate: Candidate
    changes: Mapping[str, Any]
    train: bool
    reason: str


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
        self.trials = Trials(
            self.recipe,
            self.settings,
            self.model,
            self.train,
            self.folder,
            self.progress,
            on_features=self._on_features,
        )
        self.folds = self.trials.folds
        self.candidates: list[Candidate] = []
        self.spent = 0  # steps of the candidates that count
        self.notes: list[str] = []
        own, regularizers = self.recipe.schedule.steps, len(self.recipe.regularizers)
        self.budget = int(self.recipe.search.budget * own)
        tries = 3 + 2 * regularizers
        # a candidate's usual length; the recipe's own where the budget has room for it
        self.length = max(1, min(own, self.budget // (tries * max(1, len(self.folds)))))

    def run(self) -> Choice:
        """Try the candidates and choose."""
        choice = self._searched() if self.folds else self._unsearched()
        self.progress.message(choice.reason)
        if is_main_process():
            write_json(self.folder / "selection.json", self._to_dict(choice))
        barrier()
        return choice

    def _unsearched(self) -> Choice:
        """The features of the backbone, where too few classes tell what is better."""
        kept = Candidate("features", "start", start_changes("random", None), (), 0.0)
        classes = plural(self.train.dataset.num_classes, "training class", "training classes")
        reason = f"{classes}: too few to tell whether a training is better, so the pretrained "
        reason += "features are kept as they are; --budget 0 trains with the recipe's own settings"
        return Choice(kept, kept.changes, False, reason)

    def _searched(self) -> Choice:
        classes = sum(held.dataset.num_classes for _, held in self.folds)
        folds = "" if len(self.folds) == 1 else f" in {len(self.folds)} folds"
        self.progress.message(
            f"choosing settings on {classes} held-out training classes{folds}: at most "
            f"{self.budget:,} steps, {self.recipe.search.budget:g} times a training"
        )
        self._try_starts()
        if self._on_features:
            self._try_rates("frozen")
            self._try_other_method()
        if not self.recipe.model.freeze and self._has_time():
            best = self._try_rates("training")
            self._try_weights(best)
        return self._choose()

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
            if name != "features" and not self._starts_with(start):
                continue
            if name == "features" or self._on_features:
                self._add(name, "start", start_changes(start, dim))

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

    def _try_other_method(self) -> None:
        """On the features, the method that the recipe names beside its own."""
        name = self.recipe.search.frozen
        if name is not None and (changes := method_changes(self.recipe, name)):
            self._try_rates("frozen", method=changes)

    def _try_rates(self, kind: str, *, method: Mapping[str, Any] = NO_CHANGES) -> Candidate:
        """The recipe's own learning rate, and its neighbors in the direction that is better.

        method: changes that give it another method.
        """
        own = method.get("optimizer.lr", self.recipe.optimizer.lr)
        starts = [self.recipe.model.start]
        if kind == "frozen" and starts == ["random"] and self._starts_with("whitened"):
            starts.append("whitened")
        found = {(0, start): self._add_rate(kind, own, start, method) for start in starts}
        start = max(starts, key=lambda each: float(found[0, each].best.recall.mean()))
        if kind == "training":
            start = self.recipe.model.start
        best = found[0, start]
        for direction in (1, -1):
            place = direction
            while self._left(kind):
                tried = self._add_rate(kind, own * RATE_FACTOR**place, start, method)
                if not tried.points or better(best.best, tried.best) >= 0:
                    break
                best, place = tried, place + direction
            if place != direction:  # better this way: the other way is worse
                break
        return best

    def _add_rate(self, kind: str, rate: float, start: str, method: Mapping[str, Any]) -> Candidate:
        rate = float(f"{rate:.2g}")
        changes: dict[str, Any] = {**method, "optimizer.lr": rate}
        words = [kind]
        if method:
            words.append(method["name"])
        if kind == "frozen":
            changes |= {"model.freeze": True, "model.start": start}
            words.append(f"{start} start")
        return self._add(", ".join([*words, f"rate {rate:g}"]), kind, changes)

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

    @property
    def _most_steps(self) -> int:
        """The steps of a training that the budget has room for, at most twice the usual number."""
        return max(1, min(2 * self.length, (self.budget - self.spent) // len(self.folds)))

    def _left(self, kind: str) -> bool:
        """Whether the budget has room for another candidate."""
        return kind != "training" or self.budget - self.spent >= self.length * len(self.folds) // 2

    def _has_time(self) -> bool:
        """Whether this machine can train the network: on a CPU a few steps are timed first."""
        limit = self.recipe.search.cpu_minutes
        if self.train.device.type != "cpu" or limit is None or not self.has_weights:
            return True
        seconds = self.trials.seconds_a_step() * 3 * self.length * len(self.folds)
        if seconds <= 60 * limit:
            return True
        self.notes.append(
            f"training the whole network was not tried: it would take about {_duration(seconds)} "
            "on this CPU; on a GPU it is tried, and with --budget"
        )
        self.progress.message(self.notes[-1])
        return False

    def _add(self, name: str, kind: str, changes: Mapping[str, Any]) -> Candidate:
        """The candidate of this name: read where an interrupted search has it, else tried."""
        words = name.replace(",", "").replace(" ", "-")
        file = self.folder / "selection" / f"{words}.safetensors"
        found = read_candidate(file, name, kind, changes) if file.exists() else None
        barrier()
        if found is None:
            found = self.trials.score(
                name, kind, changes, length=self.length, most=self._most_steps
            )
            if is_main_process():
                file.parent.mkdir(exist_ok=True)
                write_candidate(file, found)
            barrier()
        self.candidates.append(found)
        if kind == "training" and found.points:
            self.spent += max(point.step for point in found.points) * len(self.folds)
        self.progress.message(summary(found))
        return found

    # the choice

    def _choose(self) -> Choice:
        starts = [each for each in self.candidates if each.kind == "start"]
        trained = [each for each in self.candidates if each.kind != "start" and each.points]
        start = first_of_the_best(starts) if starts else None
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
        if start is not None and not replaces(best.best, start.best):
            reason = f"{self._kept(start)}: no training is better on the held-out classes"
            reason += f" ({best.name}, {percent(best.best)})"
            return Choice(start, start.changes, False, reason)
        steps = self._final_steps(best)
        changes = {
            **SEARCHED,
            **best.changes,
            "schedule.steps": steps,
        }
        than = "" if start is None else f"; {start.name} {measures(start.best)}"
        reason = (
            f"chosen: {best.name}, {steps:,} steps; on held-out classes "
            f"{measures(best.best)}{than}{note}"
        )
        return Choice(best, changes, True, reason)

    def _kept(self, start: Candidate) -> str:
        return f"the start is kept ({start.name}, Recall@1 {percent(start.best)})"

    def _best_trained(self, trained: Sequence[Candidate]) -> tuple[Candidate, str]:
        """The best candidate; the recipe's own where the held-out classes cannot tell it apart."""
        points = {id(each.best): each for each in trained}
        best = points[id(best_point([each.best for each in trained]))]
        own = next((each for each in trained if self._is_own(each, best.kind)), None)
        if own is not None and own is not best and not better(best.best, own.best):
            return own, "; the held-out classes cannot tell other settings from the recipe's own"
        return best, ""

    def _is_own(self, candidate: Candidate, kind: str) -> bool:
        keys = {key for key in candidate.changes if not key.startswith("model.")}
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
            "step": choice.candidate.best.step if choice.candidate.points else 0,
            "changes": dict(choice.changes),
            "trained": choice.train,
            "reason": choice.reason,
            "notes": self.notes,
        }


def start_changes(start: str, dim: int | None) -> dict[str, Any]:
    """The changes of a start: the backbone as it is, and how its head begins."""
    return {"model.dim": dim, "model.start": start, "model.freeze": True}


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(5400), _duration(90)
    ('1.5 hours', '2 minutes')
    """
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{max(1, round(seconds / 60))} minutes"
