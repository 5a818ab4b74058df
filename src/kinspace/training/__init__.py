"""Training: from a recipe to a run folder. `train` is the way in; `loop` is the story."""

from kinspace.training.search_space import parse_range
from kinspace.training.settings import RunSettings
from kinspace.training.trainer import resume_training, train
from kinspace.training.tuner import Search, tune

__all__ = ["RunSettings", "Search", "parse_range", "resume_training", "train", "tune"]
