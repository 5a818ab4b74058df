"""Small real runs on pictures of digits in files, and fixtures for tests that evaluate a run.

A conftest.py imports the fixtures `photos` and `run`.
"""

from pathlib import Path
from typing import Any

import pytest

import kinspace
from kinspace.data import digits_dataset
from kinspace.run import Run

QUICK: dict[str, Any] = {
    "model.options": {"width": 4, "size": 16},
    "model.dim": 8,
    "transform.size": 16,
    "transform.resize": 18,
    "schedule.steps": 16,
    "validation.every": 4,
    "validation.fraction": 0.4,
}
OPTIONS: dict[str, Any] = {"device": "cpu", "quiet": True, "workers": 1, "log_every": 2}


def write_digits(folder: Path, *, each: int = 16) -> Path:
    """The first digits of each class as PNG files in class folders."""
    digits = digits_dataset()
    for label in range(10):
        (folder / f"digit {label}").mkdir(parents=True)
        for place in (digits.labels == label).nonzero().flatten()[:each].tolist():
            digits.pictures.read(place).save(folder / f"digit {label}" / f"{place}.png")
    return folder


def trained(photos: Path, out: Path, *, method: str = "triplet", seed: int = 4) -> Run:
    return kinspace.train(str(photos), method=method, changes=QUICK, out=out, seed=seed, **OPTIONS)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures of digits in ten classes."""
    return write_digits(tmp_path_factory.mktemp("pictures") / "photos")


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on these pictures."""
    return trained(photos, tmp_path_factory.mktemp("runs") / "first")
