"""kinspace.benchmark.benchmark: a loss beside those of the library, all on the same terms.

After Musgrave, Belongie and Lim, A metric learning reality check, ECCV 2020: the same backbone, the
same pictures in training and in test, as many trials for each method to choose its settings on
training classes that are held out, and several seeds of what was chosen, on classes never seen.

    OUT/benchmark.json, benchmark.md     the table
    OUT/features/                        of the frozen backbone, computed once
    OUT/METHOD/trial-00.safetensors      what a trial scored on the held-out classes
    OUT/METHOD/seed-0.safetensors        what a final training scored on the test classes

The same call with the same folder goes on where it was, with more trials, seeds or methods too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinspace._core import checks
from kinspace.benchmark.methods import Method, draw, own_method, shipped_method, shipped_names
from kinspace.benchmark.table import BenchmarkTable, compared_rows
from kinspace.benchmark.trainings import MEASURES, Scores, Trainings
from kinspace.data import Dataset
from kinspace.data.load import load_dataset
from kinspace.evaluation.retrieval import queries_of
from kinspace.models import Embedder
from kinspace.training.components import choose_backbone, make_model, transform_settings
from kinspace.training.data_parts import DataPart, DataParts, prepare, split_for, unread_parts
from kinspace.training.frozen import freeze, kept_features, with_features
from kinspace.training.run_folder import hardware
from kinspace.training.settings import RunSettings
from kinspace.training.trials import enough_classes, validation_folds

__all__ = ["USUAL", "benchmark"]

Status = Callable[[str], object]

USUAL = (
    *("contrastive", "triplet", "margin", "multi_similarity", "supcon", "nra"),
    *("normalized_softmax", "arcface", "proxy_nca", "proxy_anchor"),
)
STEPS, FROZEN_STEPS = 2000, 400
FEATURES_STATUS = 1000  # pictures between two lines


def benchmark(  # noqa: PLR0913 - every option of the command line is a parameter
    loss: str | Path,
    data: Any,
    *,
    against: str | Sequence[str] = USUAL,
    trials: int = 8,
    seeds: int = 5,
    steps: int | None = None,
    backbone: str | None = None,
    dim: int | None = None,
    whole_network: bool | None = None,
    out: str | Path | None = None,
    split: str = "auto",
    seed: int = 0,
    device: str | None = None,
    cache: str = "auto",
    workers: int | None = None,
    status: Status = lambda text: None,
) -> BenchmarkTable:
    """Compare a loss with those of the library under an equal budget.

    loss: a Python file with a loss (`kinspace.benchmark.methods` says what it has to be), FILE:NAME
        where it has several, or the name of a method of the library.
    data: as for `kinspace.train`.
    against: names of the library's methods, or "all".
    trials: trainings of each method to choose its settings; the first has the recipe's own.
    seeds: trainings of each method with the chosen settings, scored on the test classes.
    steps: of a training; by default 400 on frozen features, 2000 of the whole network. The number
        that was best on the held-out classes is chosen like every other setting.
    backbone: one for all; by default that of the default recipes for these pictures.
    dim: of the embeddings, one for all; by default that of the default recipes.
    whole_network: train the backbone too; by default only one without pretrained weights.
    out: the folder, new or of the same benchmark; by default runs/DATA-benchmark.
    split, device, cache, workers: as for `kinspace.train`.
    seed: of the split, the held-out classes and the draws of the trials.
    status: called with a line after each training.

    >>> table = benchmark("mine.py", "photos/")  # doctest: +SKIP
    >>> table.rows[1]["verdict"]  # doctest: +SKIP
    'not told apart'
    """
    for name, value in (("trials", trials), ("seeds", seeds), ("steps", steps or 1)):
        checks.integer(name, value, at_least=1)
    dataset = load_dataset(data)
    settings = RunSettings(
        seed=seed, device=device, cache=cache, workers=workers, split=split, quiet=True
    )
    base = choose_backbone(shipped_method("contrastive", {}).recipe, dataset)
    changes: dict[str, Any] = {"model.backbone": backbone or base.model.backbone}
    if dim is not None:
        changes["model.dim"] = checks.integer("dim", dim, at_least=1)
    methods = _methods(loss, against, changes)
    folder = Path(out or f"runs/{dataset.name}-benchmark")
    ground = _Ground.create(methods[0], dataset, settings, folder, whole_network, status)
    steps = steps or (FROZEN_STEPS if ground.trainings.frozen else STEPS)
    rows, scores = [], {}
    for method in methods:
        row, found = _run(method, ground, trials, seeds, steps, status)
        rows.append(row)
        if found:
            scores[method.name] = [_arrays(each, row["steps"]) for each in found]
    test = ground.parts.test
    assert test is not None
    compared = compared_rows(scores, _classes(test)) if methods[0].name in scores else {}
    rows = [{**row, **compared.get(row["method"], {})} for row in rows]
    table = BenchmarkTable(
        folder,
        ground.about | {"trials": trials, "seeds": seeds, "steps": steps, "seed": seed},
        rows,
        ground.trainings.starts(methods[0], ground.parts.train, test),
        ground.notes(trials, seeds, steps),
    )
    table.write()
    return table


def _methods(
    loss: str | Path, against: str | Sequence[str], changes: Mapping[str, Any]
) -> list[Method]:
    names = shipped_names()
    first = shipped_method(str(loss), changes) if str(loss) in names else own_method(loss, changes)
    others = names if against == "all" else [against] if isinstance(against, str) else against
    return [first, *(shipped_method(name, changes) for name in others if name != first.name)]


@dataclass(frozen=True, eq=False)
class _Ground:
    """What all methods share: the parts of the data, the folds of the trials, the backbone."""

    parts: DataParts
    folds: list[tuple[DataPart, DataPart]]
    trainings: Trainings
    about: dict[str, Any]

    @classmethod
    def create(
        cls,
        first: Method,
        dataset: Dataset,
        settings: RunSettings,
        folder: Path,
        whole_network: bool | None,
        status: Status,
    ) -> _Ground:
        recipe = first.recipe
        learnt = recipe.model.pretrained or recipe.model.weights is not None
        frozen = learnt if whole_network is None else not whole_network
        model = make_model(recipe, seed=settings.seed)
        split = split_for(dataset, settings.split or "auto")
        transform = transform_settings(recipe, model)
        parts = unread_parts(dataset, split, transform, settings)
        if parts.test is None:
            raise ValueError("split: expected one with a test part, got 'all'")
        if not enough_classes(parts.train.dataset.num_classes):
            count = parts.train.dataset.num_classes
            raise ValueError(f"{dataset.name}: expected 4 or more training classes, got {count}")
        kept = None
        if frozen:
            model.to(parts.train.device)
            freeze(model)
            kept = kept_features(parts, model, folder / "features")
        if kept is None:
            kept = prepare(dataset, split, transform, settings, validation=0.0)
            kept = _features(kept, model, folder, status) if frozen else kept
        parts = kept
        about = {
            "data": dataset.name,
            "split": split,
            **parts.to_dict(),
            "backbone": recipe.model.backbone,
            "dim": recipe.model.dim,
            "frozen": frozen,
            "hardware": hardware(parts.train.device),
        }
        trainings = Trainings(model, settings, folder, frozen)
        return cls(parts, validation_folds(parts.train, settings.seed), trainings, about)

    def notes(self, trials: int, seeds: int, steps: int) -> list[str]:
        """What a reader of the table has to know."""
        held = sum(part.dataset.num_classes for _, part in self.folds)
        test = self.parts.test
        assert test is not None
        folds = f" in {len(self.folds)} folds" if len(self.folds) > 1 else ""
        state = "frozen" if self.trainings.frozen else "trained too"
        return [
            f"{self.about['data']}: {self.parts.train.dataset.num_classes} classes train, "
            f"{test.dataset.num_classes} are the test; backbone {self.about['backbone']}, {state}",
            f"each method: {trials} trials of {steps} steps, judged by MAP@R on {held} held-out "
            f"training classes{folds}; the best setting and length on all training classes with "
            f"{seeds} seeds",
            "± is the standard deviation over seeds; p is corrected for the number of methods",
        ]

    def final_steps(self, steps: int) -> int:
        """As many epochs on all training classes as these steps on those of a trial."""
        share = sum(len(train.dataset) for train, _ in self.folds) / len(self.folds)
        return max(1, round(steps * len(self.parts.train.dataset) / share))


def _features(parts: DataParts, model: Embedder, folder: Path, status: Status) -> DataParts:
    """The features of the frozen backbone in place of the pictures, kept in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    last = [0]

    def told(done: int, total: int) -> None:
        if done // FEATURES_STATUS != last[0]:
            last[0] = done // FEATURES_STATUS
            status(f"features of the frozen backbone: {done:,} of {total:,}")

    return with_features(parts, model, folder=folder / "features", progress=told)


def _run(
    method: Method, ground: _Ground, trials: int, seeds: int, steps: int, status: Status
) -> tuple[dict[str, Any], list[Scores]]:
    """The trials of a method, and the final trainings with the best of them."""
    parts, trainings = ground.parts, ground.trainings
    assert parts.test is not None
    tried = []
    for number in range(trials):
        changes = draw(method, number, trainings.settings.seed)
        found = trainings.trial(method, number, changes, ground.folds, steps)
        tried.append((changes, found))
        status(f"{method.name}, trial {number + 1} of {trials}: {_words(found)}")
    ended = [(changes, found) for changes, found in tried if found.by_step]
    row: dict[str, Any] = {"method": method.name, "trials": trials}
    row["failed"] = trials - len(ended)
    row["seconds"] = round(sum(found.seconds for _, found in tried), 1)
    if not ended:
        return row, []
    chosen, best = max(ended, key=lambda pair: pair[1].best()[1])  # of equal ones the first
    step, value = best.best()
    length = ground.final_steps(step)
    row |= {"chosen": chosen, "steps": length, "validation": value}
    finals = []
    for seed in range(seeds):
        found = trainings.final(method, seed, chosen, parts.train, parts.test, length)
        if found.by_step:
            finals.append(found)
        status(f"{method.name}, seed {seed}: {_words(found)} on the test classes")
    row["failed_seeds"] = seeds - len(finals)
    return row, finals if len(finals) == seeds else []


def _words(scores: Scores) -> str:
    if not scores.by_step:
        return scores.ended
    step, precision = scores.best()
    recall = scores.mean(step, "recall@1")
    return f"Recall@1 {recall:.1%}, MAP@R {precision:.1%} at step {step}, {scores.seconds:.0f} s"


def _arrays(scores: Scores, step: int) -> dict[str, Any]:
    return {name: scores.by_step[step][name].double().numpy() for name in MEASURES}


def _classes(test: DataPart) -> Any:
    """The class of each query of the test part."""
    labels = test.dataset.labels.numpy()
    searching = queries_of(test.dataset.parts)
    return labels if searching is None else labels[searching]
