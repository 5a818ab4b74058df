"""A batch sampler that goes on from batch to batch, from epoch to epoch, and from a saved run.

It draws a pass over the data at a time, from its seed and the number of the pass alone. An
epoch is one pass, or, with `batches_per_epoch`, that many batches of the endless sequence of
passes: the next epoch goes on where the last one ended, so nothing is passed over.

Each `iter(sampler)` (each `for batch in loader`) gives the next epoch. Which batches are done only
the training step can say: a DataLoader with workers asks for several batches ahead. So the loop
says it, once a step:

    for epoch in range(epochs):
        for batch in loader:  # DataLoader(data, batch_sampler=sampler, num_workers=8)
            step(batch)
            sampler.advance()
            checkpoint["sampler"] = sampler.state_dict()  # at any step

A new sampler with that state gives the rest of the epoch, from exactly the next batch, and then the
epochs after it. Batches that were asked for ahead of the training step are given again. A loop that
never calls `advance()` gets its epochs in the same way, and a saved state starts the epoch in
progress again. The number of processes may change in between: positions count global batches. The
version of numpy should not: its generators may change with it.

A loop that counts epochs may say which one comes next: `sampler.set_epoch(epoch)`, as with torch's
DistributedSampler. Lightning, Accelerate and the Trainer of transformers call it, and read
`batch_size`, `drop_last`, `sampler` and the length. A position loaded for that epoch stays.

One global batch for all processes, a part of it for each.

Every process draws the same global batch, from the same seed, and takes its own consecutive part.
The parts together are the batch, none overlap, and their sizes differ by at most one (by one group,
where samples belong together: repeats of a sample stay in one process). Put together
in the order of the ranks, as `kinspace.distributed.gather` does, they are the batch in its own
order: a loss on gathered embeddings sees what it would see in one process. Consecutive parts also
keep most samples of a class in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks

__all__ = ["BatchSampler", "LivePass", "Pass", "Plan", "Shard"]

Ints = NDArray[np.intp]
_KEYS = ("seed", "epoch", "done", "start", "settings", "ahead")


class Pass(Protocol):
    """The global batches of one pass over the data: a list, or batches made when asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Ints: ...


@dataclass(frozen=True)
class LivePass:
    """Batches that are drawn when they are asked for, each from a seed of its own.

    >>> live = LivePass(lambda rng: rng.permutation(3), np.array([4, 5]))
    >>> len(live), live[0], live[1], live[0]
    (2, array([0, 1, 2]), array([1, 2, 0]), array([0, 1, 2]))
    """

    draw: Callable[[np.random.Generator], Ints]
    seeds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, number: int, /) -> Ints:
        return self.draw(np.random.default_rng(self.seeds[number]))


@dataclass(frozen=True)
class Plan:
    """Which samples make a batch.

    draw: a pass over the data from a random generator. batch_size: of the largest batch; smallest:
    of the smallest. settings: what the batches depend on beside the seed; a saved state has to have
    the same. group: the number of neighbors in a batch that belong together. live: batches depend
    on more than that (on losses seen so far), so that those asked for ahead of the training step
    are saved with the position.
    """

    draw: Callable[[np.random.Generator], Pass]
    batch_size: int
    smallest: int
    settings: Mapping[str, int]
    group: int = 1
    live: bool = False


class BatchSampler:
    """Batches of indices for a DataLoader, by a plan (module docstring).

    rank, world_size: of several processes each gives its own part of every batch
    (`kinspace.samplers.batch_sampler`).

    >>> from kinspace.samplers import random
    >>> sampler, resumed = (random([0] * 6, batch_size=2, seed=seed) for seed in (0, 1))
    >>> batches = iter(sampler)
    >>> next(batches), sampler.advance(), next(batches)  # the second asked for, and not done
    ([3, 2], None, [5, 4])
    >>> resumed.load_state_dict(sampler.state_dict())
    >>> list(resumed)
    [[5, 4], [0, 1]]
    """

    def __init__(
        self,
        plan: Plan,
        *,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.batch_size = plan.batch_size
        self.drop_last = plan.smallest == plan.batch_size  # whether every batch is full
        self._plan = plan
        self._shard = Shard(rank, world_size, plan.smallest, plan.group)
        self._seed = checks.integer("seed", seed, at_least=0)
        if batches_per_epoch is not None:
            checks.integer("batches_per_epoch", batches_per_epoch, at_least=1)
        self._fixed_length = batches_per_epoch
        self._settings = {"batches_per_epoch": batches_per_epoch, **plan.settings}
        self._epoch = 0  # in progress, or next where `_begun` is false
        self._done = 0  # batches of it that the training step has taken
        self._start = (0, 0)  # where it begins: a pass, a batch of that pass
        self._begun = False
        self._ahead: list[Ints] = []  # live batches given out and not done
        self._memory: tuple[int, Pass] | None = None  # the last pass drawn, by its number

    def __iter__(self) -> Iterator[list[int]]:
        """This process's part of each batch of the next epoch."""
        # A generator: a DataLoader with workers makes two iterators and uses one of them, so an
        # epoch must not begin before its first batch is asked for.
        if self._begun:
            self._to_next_epoch()
        self._begun = True
        place, end = self._done, len(self)
        number, first = self._walk(self._start, place)
        while place < end:
            drawn = self._pass(number)
            for batch in range(first, min(len(drawn), first + end - place)):
                yield self._shard.part(self._global_batch(drawn, batch, place)).tolist()
                place += 1
            number, first = number + 1, 0

    def __len__(self) -> int:
        """The batches of a whole epoch: of the one in progress, where epochs differ."""
        return self._fixed_length or len(self._pass(self._start[0]))

    def advance(self) -> None:
        """Count one more batch as done by the training step."""
        if not self._begun:
            raise ValueError(
                "advance: expected one call for each batch, after it is done, "
                f"got one before the first batch of epoch {self._epoch}"
            )
        self._done += 1
        del self._ahead[:1]
        if self._done == len(self):
            self._to_next_epoch()

    @property
    def sampler(self) -> BatchSampler:
        """Itself: where Lightning looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Make this the next epoch that `iter` gives, from its first batch.

        Where it is the next one already nothing changes, so that a loaded position stays.

        >>> from kinspace.samplers import random
        >>> sampler, other = (random([0] * 6, batch_size=2) for _ in range(2))
        >>> first, second = list(sampler), list(sampler)
        >>> other.set_epoch(1)
        >>> list(other) == second
        True
        """
        epoch = checks.integer("epoch", epoch, at_least=0)
        if epoch == self._epoch and not self._begun:
            return
        if epoch == self._epoch + 1 and self._begun:
            self._to_next_epoch()
            return
        fixed = self._fixed_length
        self._start = self._walk((0, 0), epoch * fixed) if fixed else (epoch, 0)
        self._epoch, self._done, self._begun = epoch, 0, False
        self._ahead.clear()

    def state_dict(self) -> dict[str, Any]:
        """The position, in plain numbers, lists and dictionaries."""
        return {
            "seed": self._seed,
            "epoch": self._epoch,
            "done": self._done,
            "start": list(self._start),
            "settings": dict(self._settings),
            "ahead": [batch.tolist() for batch in self._ahead],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a saved position; the seed is the saved one."""
        if missing := [key for key in _KEYS if key not in state]:
            raise ValueError(
                f"state_dict: expected the keys {', '.join(_KEYS)}, got one without "
                f"{', '.join(missing)}; was it saved by a sampler?"
            )
        if state["settings"] != self._settings:
            raise ValueError(
                f"state_dict: expected the settings {self._settings}, got {state['settings']}; "
                "build the sampler with the labels and options it was saved with"
            )
        self._seed, self._epoch, self._done = state["seed"], state["epoch"], state["done"]
        self._start = (state["start"][0], state["start"][1])
        self._ahead = [np.array(batch, dtype=np.intp) for batch in state["ahead"]]
        self._begun, self._memory = False, None

    def _to_next_epoch(self) -> None:
        self._start = self._walk(self._start, len(self))
        self._epoch, self._done, self._begun = self._epoch + 1, 0, False
        self._ahead.clear()

    def _walk(self, position: tuple[int, int], batches: int) -> tuple[int, int]:
        """The position this number of batches further in the sequence of passes."""
        number, batch = position[0], position[1] + batches
        while batch and batch >= (length := len(self._pass(number))):
            number, batch = number + 1, batch - length
        return number, batch

    def _pass(self, number: int) -> Pass:
        if self._memory is None or self._memory[0] != number:
            self._memory = number, self._plan.draw(np.random.default_rng([self._seed, number]))
        return self._memory[1]

    def _global_batch(self, drawn: Pass, batch: int, place: int) -> Ints:
        if not self._plan.live:
            return drawn[batch]
        if place - self._done == len(self._ahead):
            self._ahead.append(drawn[batch])
        return self._ahead[place - self._done]


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
