"""Comparison of runs: their measures, means over seeds, and tests of significance.

Runs with the same data, split and recipe as it was given, which differ only in the seed and in what
was chosen with it, are one group.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core.device import pick_device
from kinspace.evaluation.retrieval import QueryScores, queries_of, retrieval_by_roles
from kinspace.evaluation.run_differences import conclusion, run_differences
from kinspace.evaluation.significance import compare_queries, compare_seeds, mean_and_spread
from kinspace.evaluation.similarity import vectors_of
from kinspace.evaluation.summary import MEASURES, RANKS, Status, plain
from kinspace.run import Run, open_run

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Runs beside each other.

    runs: a row for each run. groups: means over seeds. tests: each of two groups, with a conclusion
    in a sentence. differences: the settings that the groups do not share, with their values.
    """

    runs: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    tests: list[dict[str, Any]]
    differences: list[dict[str, Any]]
    notes: list[str]
    folders: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("runs", "groups", "tests", "differences", "notes")
        found: dict[str, Any] = plain({name: getattr(self, name) for name in names})
        return found


@dataclass(frozen=True, eq=False)
class _EvaluatedRun:
    """A run, its test pictures and the scores of each."""

    run: Run
    scores: QueryScores
    ids: tuple[str, ...]
    classes: NDArray[np.str_]
    key: str
    seed: int

    @property
    def found(self) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.scores.values["recall@1"].cpu().numpy()
        return values


def compare(
    runs: Sequence[str | Path | Run],
    data: Any = None,
    *,
    device: str | None = None,
    status: Status = lambda text: None,
) -> Comparison:
    """Evaluate runs on their test parts by cosine similarity and compare them.

    Two groups are compared by Recall@1 of each test picture, the pictures of a class together: by
    its mean over seeds, or of runs of one seed where the seed decides which classes are the test;
    and by seed if they share two or more seeds. data: where the data of the runs is now, if it has
    moved.

    >>> found = compare(["runs/nra-1", "runs/triplet-1"])  # doctest: +SKIP
    >>> difference = found.tests[0]["by_picture"]["difference"]  # doctest: +SKIP
    """
    if len(runs) < 2:
        raise ValueError(f"RUN: expected two or more runs to compare, got {len(runs)}")
    place = str(pick_device(device))
    opened = [one if isinstance(one, Run) else open_run(one) for one in runs]
    folders = [run.folder.resolve() for run in opened]
    if twice := {folder for folder in folders if folders.count(folder) > 1}:
        raise ValueError(f"RUN: expected each run once, got {min(twice).name} twice")
    evaluated = [_evaluated(run, data, place, status) for run in opened]
    groups: dict[str, list[_EvaluatedRun]] = {}
    for one in evaluated:
        groups.setdefault(one.key, []).append(one)
    names = _names(groups)
    notes = []
    if any(len({one.ids for one in evaluated if one.seed == s}) > 1 for s in _seeds(evaluated)) or (
        len({one.ids for one in evaluated}) > 1 and not _share_seeds(list(groups.values()))
    ):
        notes.append("the runs were tested on different pictures and may not be comparable")
    if any(len({one.seed for one in some}) < len(some) for some in groups.values()):
        notes.append("some runs of one recipe have the same seed, so their spread means little")
    return Comparison(
        runs=[_row(one, names[one.key]) for one in evaluated],
        groups=[_group(names[key], some) for key, some in groups.items()],
        tests=[
            _test(names[one], names[other], groups[one], groups[other])
            for one, other in combinations(groups, 2)
        ],
        differences=run_differences(
            {names[key]: [one.run.about for one in some] for key, some in groups.items()}
        ),
        notes=notes,
        folders=tuple(run.folder for run in opened),
    )


def _evaluated(run: Run, data: Any, device: str, status: Status) -> _EvaluatedRun:
    name = run.folder.resolve().name
    about = run.about
    splits = run.splits(data)
    table = run.embeddings(
        "test", data=splits, device=device, status=lambda text: status(f"{name}: {text}")
    )
    status(f"{name}: ranking")
    ks = [k for k in RANKS if k < len(table)]
    roles = splits.test.parts
    vectors = vectors_of(table, device=device)
    scores = retrieval_by_roles(vectors, table.labels, roles).scores(ks)
    if (searching := queries_of(roles)) is not None:
        table = table.select(searching)
    model = about["model"]
    backbone = model if isinstance(model, str) else model["backbone"]["name"]
    recipe = about.get("given") or about["recipe"]
    key = json.dumps([about["data"], about["split"], recipe, backbone], sort_keys=True)
    assert table.labels is not None
    classes = np.array([table.class_name(label) for label in table.labels.tolist()])
    return _EvaluatedRun(run, scores, table.ids, classes, key, int(about["seed"]))


def _seeds(runs: Sequence[_EvaluatedRun]) -> set[int]:
    return {one.seed for one in runs}


def _share_seeds(groups: Sequence[Sequence[_EvaluatedRun]]) -> bool:
    """Whether each two groups have a seed in common."""
    return all(_seeds(one) & _seeds(other) for one, other in combinations(groups, 2))


def _names(groups: dict[str, list[_EvaluatedRun]]) -> dict[str, str]:
    """The name of the recipe, with that of its first run if two recipes have the same name."""
    names = {key: str(some[0].run.about["recipe"]["name"]) for key, some in groups.items()}
    twice = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {
        key: f"{name} ({groups[key][0].run.folder.resolve().name})" if name in twice else name
        for key, name in names.items()
    }


def _row(one: _EvaluatedRun, group: str) -> dict[str, Any]:
    found, results = one.scores.summary(), one.run.results
    about = {"run": one.run.folder.resolve().name, "group": group, "seed": one.seed}
    kept = {name: found[name] for name in found if name in MEASURES or name.startswith("recall@")}
    return about | kept | {"seconds": results.get("seconds"), "steps": results.get("steps")}


def _group(name: str, some: list[_EvaluatedRun]) -> dict[str, Any]:
    rows = [one.scores.summary() for one in some]
    measures = [key for key in rows[0] if key in MEASURES or key.startswith("recall@")]
    return {
        "group": name,
        "seeds": [one.seed for one in some],
        **{key: mean_and_spread([row[key] for row in rows]) for key in measures},
    }


def _test(
    name: str, other_name: str, ours: list[_EvaluatedRun], theirs: list[_EvaluatedRun]
) -> dict[str, Any]:
    found: dict[str, Any] = {"first": name, "second": other_name, "measure": "recall@1"}
    found |= {"by_picture": None, "by_seed": None}
    if len({one.ids for one in ours + theirs}) == 1:
        mean, other = (np.mean([one.found for one in some], axis=0) for some in (ours, theirs))
        found["by_picture"] = compare_queries(mean, other, ours[0].classes)
    elif pairs := [(a, b) for a in ours for b in theirs if (a.seed, a.ids) == (b.seed, b.ids)]:
        found["by_picture"] = compare_queries(
            np.concatenate([a.found for a, _ in pairs]),
            np.concatenate([b.found for _, b in pairs]),
            np.concatenate([a.classes for a, _ in pairs]),
        )
    first, second = ({one.seed: float(one.found.mean()) for one in some} for some in (ours, theirs))
    shared = sorted(first.keys() & second.keys())
    if len(shared) > 1:
        found["by_seed"] = compare_seeds([first[s] for s in shared], [second[s] for s in shared])
    found["conclusion"] = conclusion(found)
    return found
