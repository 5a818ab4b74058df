"""The greedy search for medoids in one launch, on a GPU.

The formula takes a step a class, and each waits for the one before. On the CPU the host waits for
the network first, and what it prepares after that is not hidden behind it: 27 of the 38 ms of a
GoogLeNet step on an H200 (batch 128 of 227 px, bfloat16). Here one program takes all steps, so that
the host reads nothing. It keeps what the formula keeps, in the same whole numbers and in the same
order of the few operations that round: the medoids are the same, ties by the first index.

A lane of the program is a candidate, and a sample too. Its costs are in registers; its column of
the table of counts, in global memory, is read and written by this lane alone. A step

    1. scores all candidates and takes the first of the best,
    2. finds the samples that move to it, lists them, and gives their cells new rows of the table,
    3. lets every candidate add what each of these samples changes.

The table has three parts, a row for each sample at most: |T_i & c| of the classes c, |k & c - T_i|
of the cells (a class in a cluster), |k - T_i| of the clusters k.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import functools

import torch
from torch import Tensor

from kinspace._core.tensor_ops import fixed_point_n_log_n
from kinspace._kernels._triton import available_on, jit, power_of_2, tl

__all__ = ["forward", "supports"]

LARGEST = 1024  # samples: a lane for each, in one program
ROWS = 8  # of the distances at a time, in the first sum


def supports(distances: Tensor, classes: Tensor, *, margin_weight: float | Tensor) -> bool:
    """Whether the kernel takes these."""
    return (
        available_on(distances)
        and distances.device == classes.device
        and distances.dtype in (torch.float32, torch.float64)
        and 0 < len(classes) <= LARGEST
    )


def forward(
    distances: Tensor, classes: Tensor, *, margin_weight: float | Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
    """The medoid of each sample and the NMI of the clusters: a constant of the gradient."""
    distances, size = distances.detach().contiguous(), len(classes)
    if isinstance(margin_weight, Tensor) and margin_weight.is_cuda:
        weight = margin_weight.detach().double()
    else:  # written by a launch: a copy would wait
        weight = distances.new_full((), float(margin_weight), dtype=torch.float64)
    sizes = torch.zeros_like(classes, dtype=torch.int32)
    sizes.scatter_add_(0, classes, torch.ones_like(sizes))
    counts = sizes.new_zeros(3 * size, size)
    counts[:size] = sizes[:, None]  # no medoid yet: every candidate takes every sample
    lists = sizes.new_empty(8, size)
    reached = distances.new_empty(2, size)
    medoids, nmi = torch.empty_like(classes, dtype=torch.int64), distances.new_empty(())
    lanes = power_of_2(max(size, 32))
    _search[(1,)](
        distances, classes, distances.max(), weight, sizes, *_n_log_n(size, distances.device),
        counts, lists, reached, medoids, nmi, size, size.bit_length(), lanes, ROWS,
        num_warps=lanes // 32,  # a lane has one number of each vector: no other reads its column
        num_stages=1, enable_fp_fusion=False,
    )  # fmt: skip
    return (medoids, nmi), ()


@functools.cache
def _n_log_n(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """f(n), and f(n + 1) - f(n). The CPU's, so that no digit differs; it is copied once."""
    f = fixed_point_n_log_n(size)
    return f.to(device), f.diff().to(device)


@jit
def _search(distances, classes, highest, weight, sizes, f, steps_of_f, counts, lists, reached, medoids, nmi, size, bits, LANES: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913, PLR0915
    lane = tl.arange(0, LANES)
    inside = lane < size
    weight = tl.load(weight)
    # what a step lists of the samples that move, and which rows of cells are free
    samples, of_class, of_cell = lists, lists + size, lists + 2 * size
    to_cell, of_cluster = lists + 3 * size, lists + 4 * size
    used, free_rows, chosen = lists + 5 * size, lists + 6 * size, lists + 7 * size
    # a power of 2 with which N distances add up to less than 2^62, and its inverse, by their bits
    exponent = tl.load(highest).to(tl.float64).to(tl.int64, bitcast=True) >> 52
    exponent = tl.minimum(1084 - bits - exponent, 1000)
    scale = ((exponent + 1023) << 52).to(tl.float64, bitcast=True)
    inverse = ((1023 - exponent) << 52).to(tl.float64, bitcast=True)

    # as candidates
    cost = tl.zeros((LANES,), tl.int64)
    for first in range(0, size, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < size)[:, None] & inside[None, :]
        part = tl.load(distances + row[:, None] * size + lane[None, :], mask=mask, other=0.0)
        cost += tl.sum((part.to(tl.float64) * scale).to(tl.int64), 0)
    class_sizes = tl.load(sizes + lane, mask=inside, other=0)
    count = tl.sum((class_sizes > 0).to(tl.int32))
    whole = tl.load(f + size)
    truth = tl.sum(tl.load(f + class_sizes))
    joint = tl.zeros((LANES,), tl.int64) + truth  # sums of f over the rows of its column
    cluster_sum = tl.zeros((LANES,), tl.int64)  # without f of what it takes
    taken_sum = tl.zeros((LANES,), tl.int32) + size  # |T_i|
    available = inside
    # as samples
    own_class = tl.load(classes + lane, mask=inside, other=0).to(tl.int32)
    near = tl.full((LANES,), float("inf"), distances.dtype.element_ty)
    cluster = tl.zeros((LANES,), tl.int32)
    cell = tl.zeros((LANES,), tl.int32)
    medoid = tl.zeros((LANES,), tl.int32)

    for step in range(count):
        clusters = cluster_sum + tl.load(f + taken_sum, mask=inside, other=0)
        information = whole + joint - clusters - truth
        entropies = 2 * whole - clusters - truth
        shared = (2 * information).to(tl.float64) / tl.maximum(entropies, 1).to(tl.float64)
        shared = tl.where(entropies == 0, 1.0, shared)
        score = weight * (1 - shared) - cost.to(tl.float64) * inverse
        score = tl.where(available, score, -float("inf"))
        best = tl.min(tl.where(score == tl.max(score, 0), lane, LANES), 0)
        available = available & (lane != best)
        tl.store(nmi, tl.sum(tl.where(lane == best, shared, 0.0)).to(nmi.dtype.element_ty))

        nearer = tl.load(distances + lane * size + best, mask=inside, other=0.0)
        moves = inside & (nearer < near)
        place = tl.cumsum(moves.to(tl.int32), 0) - 1
        # The samples of a class move to one new cell, in a row that no staying sample's cell has.
        # There are as many free rows as moving samples or more: one of the class finds it.
        tl.store(used + lane, 0, mask=inside)
        tl.debug_barrier()
        tl.store(used + cell, 1, mask=inside & ~moves)
        tl.store(chosen + own_class, place, mask=moves)
        tl.debug_barrier()
        free = inside & (tl.load(used + lane, mask=inside, other=1) == 0)
        tl.store(free_rows + tl.cumsum(free.to(tl.int32), 0) - 1, lane, mask=free)
        tl.debug_barrier()
        choice = tl.load(chosen + own_class, mask=moves, other=0)
        new_cell = tl.load(free_rows + choice, mask=moves, other=0)
        tl.store(samples + place, lane, mask=moves)
        tl.store(of_class + place, own_class, mask=moves)
        tl.store(of_cell + place, cell, mask=moves)
        tl.store(to_cell + place, new_cell, mask=moves)
        tl.store(of_cluster + place, cluster, mask=moves)
        tl.store(reached + place, near, mask=moves)
        tl.store(reached + size + place, nearer, mask=moves)
        tl.debug_barrier()

        gathered = tl.zeros((LANES,), tl.int32)  # |k - T_i| of the new cluster k
        for move in range(tl.sum(moves.to(tl.int32))):
            before, after = tl.load(reached + move), tl.load(reached + size + move)
            old_row, new_row = tl.load(of_cell + move), tl.load(to_cell + move)
            same = old_row == new_row
            in_class = counts + tl.load(of_class + move) * size + lane
            in_old = counts + (size + old_row) * size + lane
            in_new = counts + (size + new_row) * size + lane
            in_cluster = counts + (2 * size + tl.load(of_cluster + move)) * size + lane
            row = distances + tl.load(samples + move) * size + lane
            # all loads before all that waits for one of them
            class_count = tl.load(in_class, mask=inside, other=0)
            old_count = tl.load(in_old, mask=inside, other=0)
            new_count = tl.load(in_new, mask=inside, other=0)
            cluster_count = tl.load(in_cluster, mask=inside, other=0)
            distance = tl.load(row, mask=inside, other=0.0)
            # a sample in T_i counts there, any other in its cluster; kept implies taken
            kept, taken = (distance < after).to(tl.int32), (distance < before).to(tl.int32)
            in_same = tl.where(same, 1 - kept, 0)
            class_after = class_count + kept - taken
            old_after = old_count + taken - 1 + in_same
            new_after = new_count + 1 - kept - in_same
            cluster_after = cluster_count + taken - 1
            tl.store(in_class, class_after, mask=inside)
            tl.store(in_new, new_after, mask=inside)  # before the old: they may be one row
            tl.store(in_old, old_after, mask=inside)
            tl.store(in_cluster, cluster_after, mask=inside)
            joint += _change(steps_of_f, class_after, class_count, inside)
            joint += _change(steps_of_f, old_after, old_count, inside)
            joint += _change(steps_of_f, new_after, new_count, inside)
            cluster_sum += _change(steps_of_f, cluster_after, cluster_count, inside)
            cost += (tl.minimum(distance, after).to(tl.float64) * scale).to(tl.int64)
            cost -= (tl.minimum(distance, before).to(tl.float64) * scale).to(tl.int64)
            taken_sum += kept - taken
            gathered += 1 - kept
        tl.store(counts + (2 * size + step) * size + lane, gathered, mask=inside)
        cluster_sum += tl.load(f + gathered, mask=inside, other=0)
        near = tl.where(moves, nearer, near)
        cluster = tl.where(moves, step, cluster)
        cell = tl.where(moves, new_cell, cell)
        medoid = tl.where(moves, best, medoid)
    tl.store(medoids + lane, medoid, mask=inside)


@jit
def _change(steps_of_f, after, before, inside):
    """f(after) - f(before): counts change by one, or stay."""
    changed = inside & (after != before)
    step = tl.load(steps_of_f + tl.minimum(after, before), mask=changed, other=0)
    return tl.where(after > before, step, -step)
