"""A fair benchmark of losses: `benchmark` gives each the same trials, seeds and held-out classes.

Read equal_budget.py first, then methods.py (a loss, its recipe and what is searched), trainings.py
(one training and its scores) and table.py (the comparison).
"""

from kinspace.benchmark.equal_budget import USUAL, benchmark
from kinspace.benchmark.methods import Method, own_method, search_space, shipped_method
from kinspace.benchmark.table import BenchmarkTable

__all__ = [
    "USUAL",
    "BenchmarkTable",
    "Method",
    "benchmark",
    "own_method",
    "search_space",
    "shipped_method",
]
