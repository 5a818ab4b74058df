"""The papers' tables and figures, run again: `kinspace reproduce`.

`experiments/` has a TOML file each: rows, settings, and the numbers that the paper prints.
"""

from kinspace.reproduce.experiment import Curve, Experiment, Printed, Row, Sweep
from kinspace.reproduce.experiment_files import (
    experiment_from_dict,
    experiment_names,
    read_experiment,
)
from kinspace.reproduce.jobs import list_experiments, make_jobs, recipe_of
from kinspace.reproduce.results_page import results_page
from kinspace.reproduce.runner import Outcome, reproduce

__all__ = [
    "Curve",
    "Experiment",
    "Outcome",
    "Printed",
    "Row",
    "Sweep",
    "experiment_from_dict",
    "experiment_names",
    "list_experiments",
    "make_jobs",
    "read_experiment",
    "recipe_of",
    "reproduce",
    "results_page",
]
