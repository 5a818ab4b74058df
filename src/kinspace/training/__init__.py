"""Training: from a recipe to a run folder. `train` is the way in; `loop` is the story."""

from kinspace.training.run import Run, open_run
from kinspace.training.searching import parse_range
from kinspace.training.settings import RunSettings
from kinspace.training.training import train
from kinspace.training.tuning import Search, tune

__all__ = ["Run", "RunSettings", "Search", "open_run", "parse_range", "train", "tune"]
