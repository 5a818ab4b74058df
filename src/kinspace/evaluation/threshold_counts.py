"""Counts of the entries of each row of a table that exceed each of a few thresholds.

    above       number of entries > high
    at_least    number of entries >= low

Both have the shape (rows, thresholds). A row is compared with one threshold at a time. The result
is one byte of 0 or 1 per entry. Eight such bytes are read as one int64, and the int64 numbers are
added, which adds eight columns at once and is much faster than a sum of booleans. A byte holds at
most 255, so at most 128 numbers are added before the bytes are summed.

For many thresholds it is faster to sort the rows and to search in them (`sort_rows`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

__all__ = ["count_above", "count_above_numpy", "padded_size", "sort_rows"]

BYTES = 8  # of an int64
ADDED = 128  # int64 numbers that are added before a byte could overflow


def padded_size(count: int) -> int:
    """The smallest size from `count` on that can be read as int64 numbers.

    >>> padded_size(5), padded_size(1024), padded_size(1025)
    (8, 1024, 2048)
    """
    unit = BYTES if count <= BYTES * ADDED else BYTES * ADDED
    return -(-count // unit) * unit


def count_above(table: Tensor, high: Tensor, low: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The counts `above` and `at_least`; mask: a bool buffer of the shape of the table.

    >>> table = torch.tensor([[1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]])
    >>> thresholds = torch.tensor([[2.0, 9.0]])
    >>> count_above(table, thresholds, thresholds, torch.empty(1, 8, dtype=torch.bool))
    (tensor([[2, 0]]), tensor([[3, 0]]))
    """
    added = min(ADDED, table.shape[1] // BYTES)
    packed = mask.view(torch.int64).view(len(table), -1, added)
    found = []
    for compare, thresholds in ((torch.gt, high), (torch.ge, low)):
        counts = torch.empty_like(thresholds, dtype=torch.int64)
        for column in range(thresholds.shape[1]):
            compare(table, thresholds[:, column, None], out=mask)
            counts[:, column] = packed.sum(2).view(torch.uint8).sum(1)
        found.append(counts)
    return found[0], found[1]


def count_above_numpy(
    table: Tensor, high: Tensor, low: Tensor, mask: Tensor, pool: ThreadPoolExecutor
) -> tuple[Tensor, Tensor]:
    """The same counts on a CPU by NumPy, whose comparisons are several times faster.

    The rows are divided among the threads of the pool.
    """
    counts = torch.empty(2, *high.shape, dtype=torch.int64)

    def count(part: slice) -> None:
        rows, true = table[part].numpy(), mask[part].numpy()
        packed = true.view(np.int64).reshape(len(rows), -1, min(ADDED, rows.shape[1] // BYTES))
        for kind, thresholds in enumerate((high, low)):
            compare = (np.greater, np.greater_equal)[kind]
            own, out = thresholds[part].numpy(), counts[kind, part].numpy()
            for column in range(own.shape[1]):
                compare(rows, own[:, column, None], out=true)
                out[:, column] = packed.sum(2).view(np.uint8).sum(1, dtype=np.int64)

    step = -(-len(table) // torch.get_num_threads())
    parts = [slice(at, at + step) for at in range(0, len(table), step)]
    if len(parts) == 1:
        count(parts[0])
    else:
        list(pool.map(count, parts))
    return counts[0], counts[1]


def sort_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """The rows in ascending order, and the column that each number had.

    >>> sort_rows(torch.tensor([[3.0, 1.0, 2.0]]))
    (tensor([[1., 2., 3.]]), tensor([[1, 2, 0]]))
    """
    if table.device.type != "cpu":
        values, columns = table.sort(dim=1)
        return values, columns
    order = np.argsort(table.numpy(), axis=1)  # several times faster than torch's
    ordered = np.take_along_axis(table.numpy(), order, axis=1)
    return torch.from_numpy(ordered), torch.from_numpy(order)
