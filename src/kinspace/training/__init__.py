"""Training: from a recipe to a run folder.

`train` trains one model, `tune` searches for better options of a recipe. Read trainer.py first,
then data_parts.py (the data), components.py (the recipe), loop.py and step.py.
"""

from kinspace.training.callbacks import CALLBACKS, Callback
from kinspace.training.runs import resume_training, train
from kinspace.training.settings import RunSettings
from kinspace.training.tuner import TuneResult, parse_range, tune

__all__ = [
    "CALLBACKS",
    "Callback",
    "RunSettings",
    "TuneResult",
    "parse_range",
    "resume_training",
    "train",
    "tune",
]
