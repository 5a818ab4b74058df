"""The pages that show a verdict: of a run, of vectors, and of runs beside each other."""

from kinspace.report.comparison_page import write_comparison
from kinspace.report.page import write_report

__all__ = ["write_comparison", "write_report"]
