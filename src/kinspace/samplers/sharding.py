"""One global batch for all processes, a part of it for each.

Every process draws the same global batch, from the same seed, and takes its own consecutive part.
The parts together are the batch, none overlap, and their sizes differ by at most one (by one group,
where samples belong together: repeats of a sample stay in one process). Put together
in the order of the ranks, as `kinspace.distributed.gather` does, they are the batch in its own
order: a loss on gathered embeddings sees what it would see in one process. Consecutive parts also
keep most samples of a class in one process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks

__all__ = ["Shard"]


@dataclass(frozen=True)
class Shard:
    """The part of process `rank` of `world_size`.

    smallest: the size of the smallest batch there will be; no process may be left without a sample.
    group: samples that belong together are not parted, where there is a group for each process.

    >>> [Shard(rank, 3, smallest=4).part(np.arange(4)).tolist() for rank in range(3)]
    [[0], [1], [2, 3]]
    """

    rank: int
    world_size: int
    smallest: int
    group: int = 1

    def __post_init__(self) -> None:
        checks.integer("world_size", self.world_size, at_least=1)
        checks.integer("rank", self.rank, at_least=0)
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank: expected less than world_size, which is {self.world_size}, got {self.rank}"
            )
        if self.smallest < self.world_size:
            raise ValueError(
                f"world_size: expected at most {self.smallest}, the samples of the smallest batch, "
                f"so that every process gets one, got {self.world_size}; use "
                "fewer processes or larger batches, or leave a small last batch out"
            )

    def part(self, batch: NDArray[np.intp]) -> NDArray[np.intp]:
        """The samples of this process."""
        size = self.group if len(batch) % self.group == 0 else 1
        size = size if len(batch) // size >= self.world_size else 1
        groups = len(batch) // size
        edges = (self.rank, self.rank + 1)
        begin, end = (groups * edge // self.world_size * size for edge in edges)
        return batch[begin:end]
