"""Random numbers for a sample: by the seed, the number of the batch, and the sample alone.

The rest of the batch has no influence: processes that share a batch, and one that has all of it,
give a sample the same crop. A sample that is twice in a process's share has two crops.

This is a counter-based generator: a hash of the words, mixed one after the other by the finalizer
of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), for all samples at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks

__all__ = ["SampleRNG"]

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


class SampleRNG:
    """Random numbers for the samples of each batch, and the number of batches so far.

    >>> rng = SampleRNG(seed=0)
    >>> rng.uniform(7, [5, 6], 2).round(3)
    array([[0.53 , 0.887],
           [0.022, 0.691]])
    >>> rng.uniform(7, [6], 2).round(3).ravel()
    array([0.887, 0.691])
    """

    def __init__(self, seed: int) -> None:
        self.seed = checks.integer("seed", seed, at_least=0)
        self.batches = 0

    def seeds(self, number: int, indices: Sequence[int]) -> NDArray[np.int64]:
        """A seed for each sample of the batch of that number."""
        (words,) = self._hashed(number, indices, 1) >> np.uint64(1)
        seeds: NDArray[np.int64] = words.astype(np.int64)
        return seeds

    def uniform(self, number: int, indices: Sequence[int], draws: int) -> NDArray[np.float64]:
        """(draws, samples) numbers in 0 .. 1, 1 not among them."""
        words = self._hashed(number, indices, draws) >> np.uint64(11)
        return words.astype(np.float64) * 2.0**-53

    def _hashed(self, number: int, indices: Sequence[int], draws: int) -> NDArray[np.uint64]:
        samples = np.asarray(indices, dtype=np.uint64)
        columns = np.arange(draws, dtype=np.uint64)[:, None]
        state = np.zeros((draws, len(samples)), dtype=np.uint64)
        with np.errstate(over="ignore"):  # it counts modulo 2^64
            words = (np.uint64(self.seed), np.uint64(number), samples, _repeats(samples), columns)
            for word in words:
                state = _mixed((state ^ word) + _STEP)
        return state

    def state_dict(self) -> dict[str, int]:
        """The seed and the number of batches so far."""
        return {"seed": self.seed, "batches": self.batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after that number of batches."""
        if set(state) != {"seed", "batches"}:
            raise ValueError(
                f"state_dict: expected the keys seed and batches, got {', '.join(state) or 'none'}"
            )
        self.seed, self.batches = state["seed"], state["batches"]


def _repeats(samples: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each sample, how often it occurs before this place.

    >>> _repeats(np.array([7, 3, 7, 7], dtype=np.uint64))
    array([0, 0, 1, 2], dtype=uint64)
    """
    order = np.argsort(samples, kind="stable")
    ranked = samples[order]
    places = np.arange(len(samples), dtype=np.uint64)
    first = np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(samples)]
    found = np.empty_like(places)
    found[order] = places - np.maximum.accumulate(np.where(first, places, np.uint64(0)))
    return found


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        words = (words ^ (words >> shift)) * factor
    return words ^ (words >> _SHIFTS[-1])
