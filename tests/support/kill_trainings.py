"""A training that `kill_points` kills, of pictures of 16 pixels through a narrow net."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kinspace
from kinspace.training import resume_training
from odd_pictures import write_clean

__all__ = ["CLOCKS", "TrainingWork", "outcome", "plain", "train"]

torch.set_num_threads(1)
CLOCKS = ("images/s", "left", "seconds")  # what two equal runs may differ in
OPTIONS: dict[str, Any] = {"device": "cpu", "workers": 0, "quiet": True, "cache": "none"}
CHANGES: dict[str, Any] = {
    "model.options": {"width": 4, "size": 16},
    "model.dim": 8,
    "transform.size": 16,
    "transform.resize": 18,
    "validation.every": 4,
    "validation.fraction": 0.4,
    "schedule.steps": 8,
    "warm_start.steps": 0,
    "search.budget": 0,
}


@dataclass(frozen=True)
class TrainingWork:
    """A training of eight steps with a checkpoint after every third."""

    def prepare(self, folder: Path) -> None:
        write_clean(folder / "photos", classes=8, each=6)

    def steps(self, folder: Path) -> Iterator[Any]:
        yield None
        train(folder)
        yield outcome(folder)

    def check(self, folder: Path, allowed: list[Any]) -> None:
        place = folder / "run"
        if not (place / "results.json").exists():
            if (place / "run.json").exists():
                resume_training(place, quiet=True)
            else:
                train(folder)  # nothing had begun; what is left is no hindrance
        assert outcome(folder) in allowed, "other numbers than without the kill"
        left = [path.name for path in place.rglob("*.part")]
        assert not left, left


def train(folder: Path) -> None:
    kinspace.train(
        str(folder / "photos"),
        method="contrastive",
        changes=CHANGES,
        out=folder / "run",
        save_every=3,
        log_every=2,
        **OPTIONS,
    )


def outcome(folder: Path) -> list[Any]:
    """The measures and the metrics of a training, without what depends on the clock."""
    run = kinspace.Run(folder / "run")
    results = {name: value for name, value in run.results.items() if name not in CLOCKS}
    rows = [{k: v for k, v in row.items() if k not in CLOCKS} for row in run.metrics]
    return plain([results, rows])


def plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))
