"""PDDM's similarities, and its quadruplet with all gradients, as GPU kernels.

A program scores a few pairs, from the samples to the score; what the layers make stays with it. The
three pairs of the quadruplet are scored by many programs, each of which takes them back through the
layers for some of the dimensions. The layers' weights are copied without what stands beside them,
so that their rows begin where several numbers can be read at a time.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"
# Triton's functions have no types.
from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace.gpu_kernels import available, jit, power_of_2, tl

__all__ = ["fused", "ready"]

PAIRS = 16  # of a tile
DIM = 16  # dimensions looked at together
UNITS = 16  # units of the joint layer looked at together
WARPS = 4
WIDEST = 128  # units of a layer: a program keeps those of its pairs
LIMIT = 2**31 - PAIRS  # numbers of the samples, and pairs: kernels count in 32 bits


def ready(x: Tensor, pairs: Tensor, joint: Tensor) -> bool:
    """Whether the kernels take these samples, so many pairs, and this layer."""
    return (
        available()
        and x.is_cuda
        and x.dtype == torch.float32
        and max(x.numel(), len(pairs)) < LIMIT
        and len(joint) <= WIDEST
        and not torch.compiler.is_compiling()
    )


@torch.no_grad()
def fused(
    x: Tensor,
    labels: Tensor,
    pairs: tuple[Tensor, Tensor, Tensor | None],
    layers: tuple[Tensor, Tensor],
    margins: tuple[float, float, float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The value and its slopes by x and by the layers; pairs: of `positive_pairs`, not none."""
    pairwise, joint = (layer.contiguous() for layer in layers)
    (one, other, _), x = pairs, x.contiguous()
    (size, dim), width = x.shape, len(joint)
    weights, joint_weights = pairwise[..., :-1].contiguous(), joint[:, :-2].contiguous()
    parts = (x, weights, pairwise, joint_weights, joint)
    scores, others = x.new_empty(len(one)), x.new_empty(2, size)
    value, by_x = x.new_empty(()), torch.zeros_like(x)
    by_pairwise, by_joint = torch.empty_like(pairwise), torch.empty_like(joint)
    tiles = (PAIRS, DIM, max(16, power_of_2(width)), UNITS)
    with torch.cuda.device_of(x):  # Triton launches on the current one
        _positives[(math.ceil(len(one) / PAIRS),)](
            *(*parts, one, other, scores, len(one), dim, width, *tiles),
            num_warps=WARPS,
        )
        place = scores.argmin()
        _against[(math.ceil(2 * size / PAIRS),)](
            *(*parts, one, other, place, labels.contiguous(), others, size, dim, width, *tiles),
            num_warps=WARPS,
        )
        _quadruplet[(math.ceil(dim / DIM),)](
            *(*parts, one, other, place, others.argmax(1), value, by_x, by_pairwise, by_joint),
            *map(float, margins),
            *(dim, width, *tiles),
            num_warps=WARPS,
            num_stages=1,  # less shared memory: other GPUs have less of it
        )
    return value, by_x, by_pairwise, by_joint


@jit
def _positives(x, weights, pairwise, joint_weights, joint, ones, others, scores, pairs, dim, width, PAIRS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The scores of the pairs listed."""
    at = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    one = tl.load(ones + at, at < pairs, 0)
    other = tl.load(others + at, at < pairs, 0)
    found = _scores(x, weights, pairwise, joint_weights, joint, one, other, dim, width, PAIRS, DIM, WIDTH, UNITS)  # fmt: skip  # noqa: E501
    tl.store(scores + at, found, at < pairs)


@jit
def _against(x, weights, pairwise, joint_weights, joint, ones, others, place, labels, scores, size, dim, width, PAIRS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The scores (2, size) of the pair at a place of the list, -infinite against its own class."""
    at = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    other = at % size
    where = tl.load(place)
    one = tl.where(at < size, tl.load(ones + where), tl.load(others + where))
    found = _scores(x, weights, pairwise, joint_weights, joint, one, other, dim, width, PAIRS, DIM, WIDTH, UNITS)  # fmt: skip  # noqa: E501
    same = tl.load(labels + one) == tl.load(labels + other)
    tl.store(scores + at, tl.where(same, float("-inf"), found), at < 2 * size)


@jit
def _quadruplet(x, weights, pairwise, joint_weights, joint, ones, others, place, negatives, value, by_x, by_pairwise, by_joint, margin, distance_margin, weight, dim, width, PAIRS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The loss and its gradients; those by x are added to by_x.

    All programs make the same but for the last step, and write the same.
    """
    pair = tl.arange(0, PAIRS)  # (i, j), (i, k), (j, l), and nothing
    where = tl.load(place)
    i, j = tl.load(ones + where), tl.load(others + where)
    one = tl.where(pair < 2, i, j)
    other = tl.where(pair == 1, tl.load(negatives), tl.load(negatives + 1))
    other = tl.where(pair == 0, j, other)
    far, near, u, v = _linear(x, weights, one, other, dim, width, PAIRS, DIM, WIDTH)
    unit_u, length_u = _hidden(u, pairwise, dim, width, WIDTH)
    unit_v, length_v = _hidden(v, pairwise + width * (dim + 1), dim, width, WIDTH)
    scores = _joint_scores(unit_u, unit_v, joint_weights, joint, width, PAIRS, WIDTH, UNITS)
    squares = tl.where(far < float("inf"), far * far, 0.0)
    loss, by_scores, by_squares = _hinges(pair, scores, squares, margin, distance_margin, weight)
    tl.store(value, loss)
    by_u, by_v = _joint_back(unit_u, unit_v, by_scores, joint_weights, joint, by_joint, width, PAIRS, WIDTH, UNITS)  # fmt: skip  # noqa: E501
    by_u = _hidden_back(by_u, unit_u, length_u)
    by_v = _hidden_back(by_v, unit_v, length_v)
    _linear_back(
        x, weights, one, other, far, near, u, v, by_u, by_v, by_squares, by_x, by_pairwise, dim,
        width, PAIRS, DIM, WIDTH,
    )  # fmt: skip


@jit
def _hinges(pair, scores, squares, margin, distance_margin, weight):
    """The loss, and its slopes by the scores and the squared distances of the pairs."""
    own = tl.sum(tl.where(pair == 0, scores, 0.0), 0)
    own_square = tl.sum(tl.where(pair == 0, squares, 0.0), 0)
    others = (pair == 1) | (pair == 2)
    by_score = tl.where(others, tl.maximum(margin + scores - own, 0.0), 0.0)
    by_square = distance_margin + own_square - squares
    by_square = tl.where(others, tl.maximum(by_square, 0.0) * weight, 0.0)
    active = tl.where(by_score > 0, 1.0, 0.0)
    active_square = tl.where(by_square > 0, weight, 0.0)
    return (
        tl.sum(by_score, 0) + tl.sum(by_square, 0),
        tl.where(pair == 0, -tl.sum(active, 0), active),
        tl.where(pair == 0, tl.sum(active_square, 0), -active_square),
    )


@jit
def _scores(x, weights, pairwise, joint_weights, joint, one, other, dim, width, PAIRS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    _, _, u, v = _linear(x, weights, one, other, dim, width, PAIRS, DIM, WIDTH)
    u, _ = _hidden(u, pairwise, dim, width, WIDTH)
    v, _ = _hidden(v, pairwise + width * (dim + 1), dim, width, WIDTH)
    return _joint_scores(u, v, joint_weights, joint, width, PAIRS, WIDTH, UNITS)


@jit
def _without_zero(length):
    return tl.where(length > 1.1754943508222875e-38, length, float("inf"))


@jit
def _seen(x, one, other, d, dim):
    """x - y and x + y, (pairs, dimensions)."""
    inside = (d < dim)[None, :]
    first = tl.load(x + one[:, None] * dim + d[None, :], inside, 0.0)
    second = tl.load(x + other[:, None] * dim + d[None, :], inside, 0.0)
    return first - second, first + second


@jit
def _layer(table, stride, d, dim, width, WIDTH: tl.constexpr):
    """Where a layer's weights for some dimensions are, (width, dimensions), and which there are."""
    unit = tl.arange(0, WIDTH)[:, None]
    return table + unit * stride + d[None, :], (unit < width) & (d < dim)[None, :]


@jit
def _linear(x, weights, one, other, dim, width, PAIRS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The lengths of x - y and x + y, infinite for 0, and the layers on both at length 1."""
    u = tl.zeros((PAIRS, WIDTH), tl.float32)
    v = tl.zeros((PAIRS, WIDTH), tl.float32)
    far = tl.zeros((PAIRS,), tl.float32)
    near = tl.zeros((PAIRS,), tl.float32)
    for first in range(0, dim, DIM):
        d = first + tl.arange(0, DIM)
        apart, both = _seen(x, one, other, d, dim)
        far += tl.sum(apart * apart, 1)
        near += tl.sum(both * both, 1)
        at, inside = _layer(weights, dim, d, dim, width, WIDTH)
        u = tl.dot(tl.abs(apart), tl.trans(tl.load(at, inside, 0.0)), u, input_precision="ieee")
        layer = tl.load(at + width * dim, inside, 0.0)
        v = tl.dot(both, tl.trans(layer), v, input_precision="ieee")
    far = _without_zero(tl.sqrt_rn(far))
    near = _without_zero(tl.sqrt_rn(near))
    return far, near, u / far[:, None], v / near[:, None]


@jit
def _hidden(linear, layer, dim, width, WIDTH: tl.constexpr):
    """unit(relu(linear + bias)), and the length it was divided by."""
    unit = tl.arange(0, WIDTH)
    bias = tl.load(layer + unit * (dim + 1) + dim, unit < width, 0.0)
    hidden = tl.maximum(linear + bias[None, :], 0.0)
    length = _without_zero(tl.sqrt_rn(tl.sum(hidden * hidden, 1)))
    return hidden / length[:, None], length


@jit
def _units(u, v, joint_weights, joint, first, width, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """Some units of the joint layer: their values, score weights, and weights on u and on v."""
    unit = first + tl.arange(0, UNITS)
    column = tl.arange(0, WIDTH)
    inside = (unit < width)[:, None] & (column < width)[None, :]
    at = joint_weights + unit[:, None] * (2 * width) + column[None, :]
    on_u = tl.load(at, inside, 0.0)
    on_v = tl.load(at + width, inside, 0.0)
    values = tl.dot(u, tl.trans(on_u), input_precision="ieee")
    values = tl.dot(v, tl.trans(on_v), values, input_precision="ieee")
    row = joint + unit * (2 * width + 2)
    values += tl.load(row + 2 * width, unit < width, 0.0)[None, :]
    score = tl.load(row + 2 * width + 1, unit < width, 0.0)
    return tl.maximum(values, 0.0), score, on_u, on_v


@jit
def _joint_scores(u, v, joint_weights, joint, width, PAIRS: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    total = tl.zeros((PAIRS,), tl.float32)
    for first in range(0, width, UNITS):
        values, score, _, _ = _units(u, v, joint_weights, joint, first, width, WIDTH, UNITS)
        total += tl.sum(values * score[None, :], 1)
    return total


@jit
def _joint_back(u, v, by_scores, joint_weights, joint, by_joint, width, PAIRS: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The slopes by u and v; those by the joint layer are written."""
    by_u = tl.zeros((PAIRS, WIDTH), tl.float32)
    by_v = tl.zeros((PAIRS, WIDTH), tl.float32)
    column = tl.arange(0, WIDTH)
    for first in range(0, width, UNITS):
        values, score, on_u, on_v = _units(u, v, joint_weights, joint, first, width, WIDTH, UNITS)
        flow = tl.where(values > 0, by_scores[:, None] * score[None, :], 0.0)
        by_u = tl.dot(flow, on_u, by_u, input_precision="ieee")
        by_v = tl.dot(flow, on_v, by_v, input_precision="ieee")
        unit = first + tl.arange(0, UNITS)
        row = by_joint + unit * (2 * width + 2)
        at = row[:, None] + column[None, :]
        inside = (unit < width)[:, None] & (column < width)[None, :]
        back = tl.trans(flow)
        tl.store(at, tl.dot(back, u, input_precision="ieee"), inside)
        tl.store(at + width, tl.dot(back, v, input_precision="ieee"), inside)
        tl.store(row + 2 * width, tl.sum(flow, 0), unit < width)
        tl.store(row + 2 * width + 1, tl.sum(values * by_scores[:, None], 0), unit < width)
    return by_u, by_v


@jit
def _hidden_back(grad, hidden, length):
    """Back through unit and relu."""
    along = tl.sum(grad * hidden, 1)
    return tl.where(hidden > 0, (grad - along[:, None] * hidden) / length[:, None], 0.0)


@jit
def _linear_back(x, weights, one, other, far, near, u, v, by_u, by_v, by_squares, by_x, by_pairwise, dim, width, PAIRS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """Write the slopes by the pairwise layers, and add those by x: of this program's dimensions."""
    unit = tl.arange(0, WIDTH)
    layer = width * (dim + 1)
    biases = by_pairwise + unit * (dim + 1) + dim
    tl.store(biases, tl.sum(by_u, 0), unit < width)
    tl.store(biases + layer, tl.sum(by_v, 0), unit < width)
    along_u = tl.sum(by_u * u, 1)[:, None]  # the slope by what was seen, along what was seen
    along_v = tl.sum(by_v * v, 1)[:, None]
    back_u, back_v = tl.trans(by_u), tl.trans(by_v)
    there = tl.arange(0, PAIRS)[:, None] < 3
    d = tl.program_id(0) * DIM + tl.arange(0, DIM)
    apart, both = _seen(x, one, other, d, dim)
    seen_u, seen_v = tl.abs(apart) / far[:, None], both / near[:, None]
    at, inside = _layer(by_pairwise, dim + 1, d, dim, width, WIDTH)
    tl.store(at, tl.dot(back_u, seen_u, input_precision="ieee"), inside)
    tl.store(at + layer, tl.dot(back_v, seen_v, input_precision="ieee"), inside)
    at, inside = _layer(weights, dim, d, dim, width, WIDTH)
    by_seen = tl.dot(by_u, tl.load(at, inside, 0.0), input_precision="ieee")
    by_seen = (by_seen - along_u * seen_u) / far[:, None]
    sign = tl.where(apart > 0, 1.0, tl.where(apart < 0, -1.0, 0.0))
    by_apart = by_seen * sign + 2 * by_squares[:, None] * apart
    by_both = tl.dot(by_v, tl.load(at + width * dim, inside, 0.0), input_precision="ieee")
    by_both = (by_both - along_v * seen_v) / near[:, None]
    here = there & (d < dim)[None, :]
    to_one = by_x + one[:, None] * dim + d[None, :]
    tl.atomic_add(to_one, by_both + by_apart, here, sem="relaxed")
    to_other = by_x + other[:, None] * dim + d[None, :]
    tl.atomic_add(to_other, by_both - by_apart, here, sem="relaxed")
