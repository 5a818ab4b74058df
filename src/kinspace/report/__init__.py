"""Judging runs and vectors, and showing the verdict to people.

`evaluate` measures, `write_report` makes the page, `compare_runs` puts runs beside each other,
`recover_hierarchy` runs that experiment.
"""

from kinspace.report.comparing import Comparison, compare_runs, write_comparison
from kinspace.report.gathering import evaluate
from kinspace.report.page import write_report
from kinspace.report.recovering import recover_hierarchy

__all__ = [
    "Comparison",
    "compare_runs",
    "evaluate",
    "recover_hierarchy",
    "write_comparison",
    "write_report",
]
