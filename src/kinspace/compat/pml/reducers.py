"""How terms become one value there: what triplet and contrastive may be given."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AvgNonZeroReducer", "MeanReducer", "SumReducer"]


@dataclass(frozen=True)
class AvgNonZeroReducer:
    """The mean over the terms above 0.

    >>> AvgNonZeroReducer().reduction
    'mean_active'
    """

    reduction: str = "mean_active"


@dataclass(frozen=True)
class MeanReducer:
    """The mean over all terms."""

    reduction: str = "mean"


@dataclass(frozen=True)
class SumReducer:
    """The sum of all terms."""

    reduction: str = "sum"
