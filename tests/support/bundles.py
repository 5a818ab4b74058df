"""A small trained run with a gallery, made once a process; tests take copies of it."""

import functools
import shutil
import tempfile
from pathlib import Path

import kinspace
from kinspace.data import Dataset, digits_dataset
from kinspace.inference import index_run

# digits at 16 pixels through a narrow net, as in training_commands.py
QUICK = {
    "model.options": {"width": 4, "size": 16},
    "model.dim": 8,
    "transform.size": 16,
    "transform.resize": 18,
    "validation.every": 10,
    "validation.fraction": 0.4,
    "schedule.steps": 10,
    "warm_start.steps": 0,
}
_KEPT = []  # a temporary folder is removed when its object is


@functools.cache
def digits() -> Dataset:
    return digits_dataset()


@functools.cache
def _trained() -> Path:
    _KEPT.append(tempfile.TemporaryDirectory())
    folder = Path(_KEPT[-1].name) / "run"
    options = {"device": "cpu", "workers": 1, "quiet": True}
    kinspace.train("digits", method="nra", changes=QUICK, out=folder, **options)
    return folder


@functools.cache
def _indexed() -> Path:
    folder = _trained().with_name("indexed")
    shutil.copytree(_trained(), folder)
    index_run(folder)
    return folder


def bare_run(to: Path) -> Path:
    """A copy of the run as training leaves it."""
    return shutil.copytree(_trained(), to / "bare")


def run_with_gallery(to: Path) -> Path:
    """A copy of the run with the gallery of all digits."""
    return shutil.copytree(_indexed(), to / "run")
