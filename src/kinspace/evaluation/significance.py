"""Is one run better than another? Means over seeds, and paired permutation tests.

The null hypothesis is that the two runs are exchangeable: each paired difference could as well have
the other sign. The p-value is the share of sign changes whose mean difference is at least as large
as the observed one (two-sided, the observed one included). Queries of a class are not independent,
so their differences change sign together. The 95 % interval has every difference d for which the
same sign changes of the differences less d give a p-value above 0.05: it has 0 if, and only if, the
p-value is above 0.05.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinspace._core import checks

__all__ = ["compare_queries", "compare_seeds", "mean_and_spread"]

FEWEST = 6  # classes: of five all signs alike have a p-value of 1 / 16
LEVEL = 0.05
STEPS = 30  # of bisection
EXACT = 14  # pairs up to which all sign changes are enumerated


def mean_and_spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation (of a sample; NaN for one value) over seeds.

    >>> mean_and_spread([0.5, 0.7])
    {'mean': 0.6, 'spread': 0.1414..., 'count': 2}
    """
    array = _finite("values", values)
    spread = float(array.std(ddof=1)) if len(array) > 1 else math.nan
    return {"mean": float(array.mean()), "spread": spread, "count": len(array)}


def compare_seeds(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Compare runs with the same seeds: the difference of means, first - second, and its p-value.

    With n seeds the p-value is at least 2 / 2^n: 0.0625 with five seeds.

    >>> compare_seeds([0.75, 0.5, 1.0], [0.5, 0.25, 0.75])
    {'difference': 0.25, 'p_value': 0.25, 'count': 3}
    """
    differences = _paired(first, second)
    ones, rng = np.ones(len(differences)), np.random.default_rng(0)
    changes, difference = _changes(differences, ones, 100_000, rng), float(differences.mean())
    return {
        "difference": difference,
        "p_value": _p_value(changes, difference),
        "count": len(differences),
    }


def compare_queries(
    first: ArrayLike,
    second: ArrayLike,
    groups: ArrayLike,
    *,
    samples: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """Compare two runs on the same queries, for example by `QueryScores.values["recall@1"]`.

    groups: the class of each query. The queries of a class change sign together in the test and
    for the 95 % interval of the difference. Of fewer than six classes, whose signs say too little,
    each query stands for itself, and what is found is true of these classes alone. Queries with NaN
    are left out. `groups` of the result: what changed sign together, classes or queries.

    >>> ones, y = np.ones(40), np.arange(40) // 2
    >>> found = compare_queries(ones, ones - np.arange(40) % 4 / 4, y, samples=500)
    >>> found["difference"], found["p_value"] < 0.01, 0 < found["low"] < 0.375 < found["high"]
    (0.375, True, True)
    """
    checks.integer("samples", samples, at_least=1)
    ours, theirs, classes = (np.asarray(value) for value in (first, second, groups))
    if not ours.shape == theirs.shape == classes.shape or ours.ndim != 1:
        raise ValueError(
            "first, second, groups: expected three vectors of one length, "
            f"got {ours.shape}, {theirs.shape} and {classes.shape}"
        )
    kept = ~np.isnan(ours) & ~np.isnan(theirs)
    differences = _paired(ours[kept], theirs[kept])
    numbers = np.unique(classes[kept], return_inverse=True)[1]
    if numbers.max() + 1 < FEWEST:
        numbers = np.arange(len(differences))
    sizes = np.bincount(numbers).astype(np.float64)
    sums = np.bincount(numbers, weights=differences).astype(np.float64)
    changes = _changes(sums, sizes, samples, np.random.default_rng(seed))
    difference = float(differences.mean())
    return {
        "difference": difference,
        "p_value": _p_value(changes, difference),
        "low": _end(changes, difference, -1.0),
        "high": _end(changes, difference, 1.0),
        "count": len(differences),
        "groups": len(sums),
    }


def _paired(first: Any, second: Any) -> NDArray[np.float64]:
    ours, theirs = _finite("first", first), _finite("second", second)
    if len(ours) != len(theirs):
        raise ValueError(
            f"first, second: expected as many values of each, got {len(ours)} and {len(theirs)}"
        )
    return ours - theirs


def _finite(name: str, values: Any) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise ValueError(f"{name}: expected one or more finite numbers, got {array.tolist()}")
    return array


@dataclass(frozen=True, eq=False)
class _Changes:
    """For each change of signs the mean of the changed differences, and of as many ones.

    sampled: whether they are some of all, to which the observed signs are added.
    """

    means: NDArray[np.float64]
    ones: NDArray[np.float64]
    sampled: bool


def _changes(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], samples: int, rng: np.random.Generator
) -> _Changes:
    """sums: of the differences of each group; sizes: of the groups, which change as one."""
    if len(sums) <= EXACT:
        signs = np.array(list(itertools.product((1, -1), repeat=len(sums))))
        return _Changes(signs @ sums / sizes.sum(), signs @ sizes / sizes.sum(), False)
    parts = []
    for at in range(0, samples, 1000):
        signs = rng.integers(0, 2, (min(1000, samples - at), len(sums))) * 2 - 1
        parts.append(np.stack([signs @ sums, signs @ sizes]) / sizes.sum())
    means, ones = np.concatenate(parts, 1)
    return _Changes(means, ones, True)


def _p_value(changes: _Changes, difference: float, shift: float = 0.0) -> float:
    """The p-value of the differences less `shift`."""
    found = abs(difference - shift) * (1 - 1e-12)  # as large up to rounding
    hits = int((abs(changes.means - shift * changes.ones) >= found).sum())
    return (hits + changes.sampled) / (len(changes.means) + changes.sampled)


def _end(changes: _Changes, difference: float, side: float) -> float:
    """An end of the interval, between the difference and `side`."""
    if _p_value(changes, difference, side) > LEVEL:
        return side
    inside, outside = difference, side
    if difference * side < 0 and _p_value(changes, difference) <= LEVEL:
        outside = 0.0  # the interval agrees with the p-value
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if _p_value(changes, difference, middle) > LEVEL:
            inside = middle
        else:
            outside = middle
    return outside
