"""How many entries of each row of a table are above each of some cuts.

    above       entries > high
    from_low    entries >= low

both (rows, cuts). For few cuts each is compared with the whole row and the truth values are added
as int64, eight counters in one number, which is much faster than adding bool. For many cuts there
are sorted rows, to search them in.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

__all__ = ["lane_counts", "numpy_lane_counts", "padded", "sorted_rows"]

LANES, RUN = 8, 128  # bytes of an int64 as counters, and how many are added before they are full


def padded(count: int) -> int:
    """The least number of rows or columns from `count` on that can be counted in lanes."""
    unit = LANES if count <= LANES * RUN else LANES * RUN
    return -(-count // unit) * unit


def lane_counts(table: Tensor, high: Tensor, low: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Above and from_low, by comparing; mask: memory of the table's shape.

    >>> table = torch.tensor([[1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]])
    >>> cuts = torch.tensor([[2.0, 9.0]])
    >>> lane_counts(table, cuts, cuts, torch.empty(1, 8, dtype=torch.bool))
    (tensor([[2, 0]]), tensor([[3, 0]]))
    """
    run = min(RUN, table.shape[1] // LANES)
    lanes = mask.view(torch.int64).view(len(table), -1, run)
    found = []
    for compare, cuts in ((torch.gt, high), (torch.ge, low)):
        counts = torch.empty_like(cuts, dtype=torch.int64)
        for slot in range(cuts.shape[1]):
            compare(table, cuts[:, slot, None], out=mask)
            counts[:, slot] = lanes.sum(2).view(torch.uint8).sum(1)  # at most 128 in a byte
        found.append(counts)
    return found[0], found[1]


def numpy_lane_counts(
    table: Tensor, high: Tensor, low: Tensor, mask: Tensor, pool: ThreadPoolExecutor
) -> tuple[Tensor, Tensor]:
    """The same by numpy, which writes truth values several times faster, a part a thread."""
    counts = torch.empty(2, *high.shape, dtype=torch.int64)

    def count(part: slice) -> None:
        rows, true = table[part].numpy(), mask[part].numpy()
        lanes = true.view(np.int64).reshape(len(rows), -1, min(RUN, rows.shape[1] // LANES))
        for kind, cuts in enumerate((high, low)):
            compare = (np.greater, np.greater_equal)[kind]
            own, out = cuts[part].numpy(), counts[kind, part].numpy()
            for slot in range(own.shape[1]):
                compare(rows, own[:, slot, None], out=true)
                out[:, slot] = lanes.sum(2).view(np.uint8).sum(1, dtype=np.int64)

    step = -(-len(table) // torch.get_num_threads())
    parts = [slice(at, at + step) for at in range(0, len(table), step)]
    if len(parts) == 1:
        count(parts[0])
    else:
        list(pool.map(count, parts))
    return counts[0], counts[1]


def sorted_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """The rows in ascending order, and where each number was.

    >>> sorted_rows(torch.tensor([[3.0, 1.0, 2.0]]))
    (tensor([[1., 2., 3.]]), tensor([[1, 2, 0]]))
    """
    if table.device.type != "cpu":
        values, order = table.sort(dim=1)
        return values, order
    places = np.argsort(table.numpy(), axis=1)  # several times faster than torch's
    ordered = np.take_along_axis(table.numpy(), places, axis=1)
    return torch.from_numpy(ordered), torch.from_numpy(places)
