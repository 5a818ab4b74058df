"""Training: from a recipe to a run folder. `train` is the way in; `loop` is the story."""

from kinspace.training.run import Run, open_run
from kinspace.training.settings import RunSettings
from kinspace.training.training import train

__all__ = ["Run", "RunSettings", "open_run", "train"]
