"""Greedy medoids of the clustering loss: facility location plus the margin of the NMI.

With near_p the distance of sample p to its nearest medoid, each step adds the candidate i of the
largest score, ties by the first index:

    score_i = -sum_p min(near_p, D_pi) + w (1 - NMI_i)

It takes the samples T_i = {p: D_pi < near_p}. For classes c, clusters k and f(n) = n log n,

    joint_i    = sum_c f(|T_i & c|) + sum_kc f(|k & c - T_i|)
    clusters_i = f(|T_i|) + sum_k f(|k - T_i|),    classes = sum_c f(n_c)
    NMI_i      = 2 (f(N) + joint_i - clusters_i - classes) / (2 f(N) - clusters_i - classes)

A new medoid changes near_p and the cluster of the samples only that it takes: about N log K in all
K steps. So costs and counts are kept, and a step adds what these samples change: some N^2 log K
operations, where from the beginning every step would take up to N^3. The sums are of whole numbers
(fixed point), exact in any order: nothing drifts, equal candidates stay equal, devices agree.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from kinspace import cuda_kernels

__all__ = ["greedy_medoids"]

CHUNK = 512  # samples whose rows are worked on at a time: bounds the memory of the first steps
BITS = 40  # binary places of n log n
# of the kernel
SOURCE = Path(__file__).with_name("medoids.cu")
THREADS = 640
LANES = 32
LISTENED = 5  # blocks that a lane listens to, at most
LOGGED = 24  # moves of a guess, at most: many are seldom right
SUMS = 3 * 2 * 10 * LANES * 4  # bytes, for a candidate of each lane
WIDTHS = 8, 16, 32  # samples of a class in a word
LARGEST = 2**16 - 1  # samples


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a choice waits for the one before
@torch.no_grad()
def greedy_medoids(
    distances: Tensor, tops: Tensor, begins: Tensor, widest: int, margin_weight: float
) -> tuple[Tensor, Tensor]:
    """The medoid each sample ends with, of as many as there are classes, and their NMI.

    Samples class after class; begins: where each class begins, and the end; widest: the samples of
    the largest. distances: finite, symmetric, row after row; tops: their largest in any parts.

    >>> x, begins = torch.tensor([0.0, 1.0, 9.0, 10.0]), torch.tensor([0, 2, 4])
    >>> greedy_medoids((x[:, None] - x).abs(), torch.tensor([10.0]), begins, 2, 1.0)
    (tensor([1, 1, 2, 2]), tensor(1.))
    """
    entropy = _entropies(len(distances), distances.device)
    if cuda_kernels.takes(distances) and len(distances) <= LARGEST:
        blocks = torch.cuda.get_device_properties(distances.device).multi_processor_count
        return _fused(distances, tops, begins, widest, entropy, margin_weight, blocks)
    sizes = begins.diff()
    groups = torch.arange(len(sizes), device=begins.device).repeat_interleave(sizes)
    state = _start(distances, groups, sizes, entropy, _scale(tops, len(distances)))
    free = torch.ones_like(groups, dtype=torch.bool)
    medoids = []
    for step in range(len(sizes)):
        nmi = _nmi(state)
        score = margin_weight * (1 - nmi) - state.cost.double() / state.scale
        best = int(score.masked_fill_(~free, -math.inf).argmax())
        free[best] = False
        medoids.append(best)
        _add(state, best, step)
    found = torch.tensor(medoids, device=groups.device)[state.cluster]
    return found, nmi[best].to(distances.dtype)


@lru_cache(16)
def _entropies(size: int, device: torch.device) -> Tensor:
    """f(0), ..., f(N) in fixed point; made on the CPU, so that devices agree."""
    counts = torch.arange(size + 1, dtype=torch.float64)
    values: Tensor = torch.special.xlogy(counts, counts).mul_(2.0**BITS).round_().long()
    return values.to(device)


def _scale(tops: Tensor, size: int) -> Tensor:
    """The largest power of 2 with which N distances add up to less than 2^62."""
    top = torch.frexp(tops.max().double()).exponent
    places = (62 - size.bit_length() - top).clamp(max=1000)
    scale: Tensor = torch.ldexp(torch.ones_like(top, dtype=torch.float64), places)
    return scale


def _fused(
    distances: Tensor,
    tops: Tensor,
    begins: Tensor,
    widest: int,
    entropy: Tensor,
    margin_weight: float,
    blocks: int,
) -> tuple[Tensor, Tensor]:
    """The same in one kernel of at most so many blocks, which share the candidates."""
    size, classes = len(distances), len(begins) - 1
    each = math.ceil(size / (LANES * min(blocks, LISTENED * LANES)))
    blocks = math.ceil(size / (LANES * each))
    found, medoids = begins.new_empty(size), begins.new_empty(classes)
    nmi = distances.new_empty(())
    shared_room = cuda_kernels.shared_room(distances.device)
    sizes = size, classes, widest, each
    macros, shared, room = _plan(distances.element_size(), *sizes, THREADS, shared_room)
    cuda_kernels.run_together(
        *((SOURCE, "greedy_steps"), distances, (blocks, THREADS), shared),
        *(distances, tops, begins, entropy),
        begins.new_zeros((classes, blocks, 2)),
        begins.new_empty((blocks, room), dtype=torch.uint8),
        *(medoids, found, nmi, float(margin_weight), size, classes, room, len(tops)),
        macros=(*macros, cuda_kernels.packed(distances)),
    )
    return found, nmi


@lru_cache(16)
def _plan(
    item: int, size: int, classes: int, widest: int, each: int, threads: int, room: int
) -> tuple[tuple[str, ...], int, int]:
    """How the kernel is compiled, with as many tables in shared memory as go in; bytes as above."""
    width = next((bits for bits in WIDTHS if widest <= bits), WIDTHS[-1])
    single = widest <= width
    tables = [each * SUMS + LOGGED * (4 * each + item + 4)]  # of sums and moves: always there
    tables.append(size * (2 * item + 4) + classes * 8 + 2)  # of samples and classes
    words = classes if single else classes + size // width + 1
    tables.append(words * each * 4 * width)  # the T_i
    tables += [(size + 1) * 8, classes * each * 64]  # f, the counts
    # each in up to eight pieces, rounded up to 16 bytes
    bytes_to = list(itertools.accumulate((table // 16 + 8) * 16 for table in tables))
    shared = sum(end <= room for end in bytes_to[1:])
    macros = {
        "EACH": each,
        "SHARED": shared,
        "WIDTH": width,
        "SINGLE": int(single),
        "LISTENED": math.ceil(size / (LANES * LANES * each)),
        "LOGGED": LOGGED,
        "SCANNED": 4 if size <= 4 * (threads - LANES) else 8,
    }
    named = tuple(f"{name}={value}" for name, value in macros.items())
    return named, bytes_to[shared], bytes_to[-1] - bytes_to[shared]


@dataclass
class _State:
    distances: Tensor  # (samples, candidates)
    groups: Tensor
    scale: Tensor  # of the costs
    entropy: Tensor  # f(0), ..., f(N)
    class_part: Tensor  # sum_c f(n_c)
    near: Tensor  # a sample each, and so the next two
    cluster: Tensor
    pair: Tensor  # which row of the joint counts is its (cluster, class)
    cost: Tensor  # a candidate each, and so the next two
    joint: Tensor
    clusters: Tensor
    joint_counts: Tensor  # (classes + pairs, candidates): |T_i & c|, |k & c - T_i|
    cluster_counts: Tensor  # (1 + clusters, candidates): |T_i|, |k - T_i|


def _start(
    distances: Tensor, groups: Tensor, sizes: Tensor, entropy: Tensor, scale: Tensor
) -> _State:
    """No medoid yet: every candidate takes every sample."""
    size, classes = len(groups), len(sizes)
    joint_counts = groups.new_zeros((classes + size, size), dtype=torch.int32)
    joint_counts[:classes] = sizes[:, None]
    cluster_counts = groups.new_zeros((1 + classes, size), dtype=torch.int32)
    cluster_counts[0] = size
    class_part, parts = entropy[sizes].sum(), distances.split(CHUNK)
    return _State(
        distances=distances,
        groups=groups,
        scale=scale,
        entropy=entropy,
        class_part=class_part,
        near=distances.new_full((size,), math.inf),
        cluster=torch.zeros_like(groups),
        pair=torch.full_like(groups, classes),
        cost=torch.stack([_fixed(rows, scale).sum(0) for rows in parts]).sum(0),
        joint=class_part.repeat(size),
        clusters=entropy[-1].repeat(size),
        joint_counts=joint_counts,
        cluster_counts=cluster_counts,
    )


def _fixed(distances: Tensor, scale: Tensor) -> Tensor:
    return (distances.double() * scale).long()


def _nmi(state: _State) -> Tensor:
    """Of the clusters that each candidate would lead to; 1 if both partitions are trivial."""
    whole = state.entropy[-1]
    information = state.joint - state.clusters - state.class_part + whole
    entropies = 2 * whole - state.clusters - state.class_part
    return torch.where(entropies == 0, 1.0, 2 * information.double() / entropies.clamp(min=1))


def _add(state: _State, medoid: int, step: int) -> None:
    """Give the medoid its samples, and every candidate what changes by that."""
    row = state.distances[medoid]
    moved = (row < state.near).nonzero()[:, 0]
    new_pair = _new_pairs(state, moved)
    for part, new in zip(moved.split(CHUNK), new_pair.split(CHUNK), strict=True):
        apart = state.distances[part]  # (moved, candidates)
        near, nearer = state.near[part, None], row[part, None]
        state.cost += (
            _fixed(apart.minimum(nearer), state.scale) - _fixed(apart.minimum(near), state.scale)
        ).sum(0)
        kept, taken = apart < nearer, apart < near
        # A sample in T_i counts there, and any other in its cluster; kept implies taken.
        change = torch.cat((kept.int() - taken.int(), taken.int() - 1, 1 - kept.int()))
        old_pair, old, first = state.pair[part], state.cluster[part], torch.zeros_like(part)
        rows = torch.cat((state.groups[part], old_pair, new))
        state.joint += _shift(state.joint_counts, rows, change, state.entropy)
        rows = torch.cat((first, 1 + old, first + 1 + step))
        state.clusters += _shift(state.cluster_counts, rows, change, state.entropy)
    state.near[moved] = row[moved]
    state.cluster[moved] = step
    state.pair[moved] = new_pair


def _new_pairs(state: _State, moved: Tensor) -> Tensor:
    """For each moved sample the row of its class in the new cluster: rows no other pair has."""
    stays = torch.ones_like(state.groups, dtype=torch.bool)
    stays[moved] = False
    used = torch.zeros(len(state.joint_counts), dtype=torch.bool, device=moved.device)
    used[: len(state.cluster_counts) - 1] = True  # the classes' own
    used[state.pair[stays]] = True
    return (~used).nonzero()[:, 0][state.groups[moved].unique(return_inverse=True)[1]]


def _shift(counts: Tensor, rows: Tensor, change: Tensor, entropy: Tensor) -> Tensor:
    """Add the changes to the rows of the counts; by how much sum f(count) of each column grew."""
    rows, places = rows.unique(return_inverse=True)
    old = counts[rows]
    new = old.index_add(0, places, change)
    counts[rows] = new
    return (_look(entropy, new) - _look(entropy, old)).sum(0)


def _look(table: Tensor, index: Tensor) -> Tensor:
    return table.index_select(0, index.view(-1)).view_as(index)
