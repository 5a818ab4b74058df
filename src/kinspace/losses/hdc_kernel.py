"""HDC's whole cascade in one GPU kernel, between the products of all pairs and their gradient.

Each program owns some rows of the tables. The place of the last pair that a learner passes on is
found by radix: three times the programs count the next 8 of 24 binary places of the distances, add
their counts up, wait for each other, and go on within the place's bin. Distances are up to 4, so
such a key is as fine as float32 at 2. Then one pass turns the products into the weights of the
gradient, and takes from the next learner's table what it does not see.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"
# Triton's functions have no types.
from __future__ import annotations

from kinspace.gpu_kernels import jit, meet, tl

__all__ = ["BINS", "DIGITS", "cascade"]

WARPS = 8
BLOCK = 4096  # pairs of a tile at most
DIGITS = 3  # of a key
BINS = 256  # of a digit


@jit
def cascade(  # noqa: PLR0913
    products,
    x,
    divisors,
    members,
    ranks,
    state,
    pulls,
    own,
    sums,
    margin,
    size,
    learners,
    dim,
    width,
    rows,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    DIM: tl.constexpr,
    DIGITS: tl.constexpr,
    BINS: tl.constexpr,
):
    """All learners; launched by `hdc`. Every program must be on the device at once.

    products (learners, size, size) become the weights of the different pairs' gradient; own
    (size, learners, dim) gets the same pairs' gradient, and sums each program's part of the loss.
    members (size, width): the positives, -1 for none. ranks (2, learners): places, of different
    and of same pairs. state: zeros. x (size, learners, dim) of length 1 or 0.
    """
    begin = tl.program_id(0) * rows
    end = tl.minimum(begin + rows, size)
    waiting = state
    kept = state + 1  # how many pairs each learner passes on
    counts = kept + learners
    for row in range(begin, end):
        _same(products, x, members, pulls, row, size, learners, dim, width, WIDE, DIM)
    tl.debug_barrier()
    loss = 0.0
    met = 0
    seen = size * (size - 1)
    for learner in range(learners):
        push_key, push_rank = 0, tl.load(ranks + learner)
        pull_key, pull_rank = 0, tl.load(ranks + learners + learner)
        if learner + 1 < learners:
            for digit in range(DIGITS):
                _count(
                    products, divisors, pulls, counts, push_key, pull_key, digit, learner, begin,
                    end, size, learners, width, BLOCK, DIGITS, BINS,
                )  # fmt: skip
                met += 1
                meet(waiting, met)
                push_key, push_rank = _next_digit(counts, push_key, push_rank, BINS)
                pull_key, pull_rank = _next_digit(counts + BINS, pull_key, pull_rank, BINS)
                counts += 2 * BINS
        else:
            met += 1
            meet(waiting, met)
        if learner > 0:
            seen = tl.load(kept + learner - 1, cache_modifier=".cg")
        part = 1.0 / tl.maximum(seen, 1).to(tl.float32)
        total = 0.0
        more = 0
        for row in range(begin, end):
            one, passed = _push(
                products, divisors, row, learner, learners, size, margin, 4 * part, push_key, BLOCK
            )
            total += one
            more += passed
        one, passed = _pull(pulls, learner, learners, begin, end, size, width, pull_key, BLOCK)
        loss += (total + one) * part
        tl.atomic_add(kept + learner, more + passed, sem="relaxed")
        tl.debug_barrier()
        for row in range(begin, end):
            _same_back(
                x, members, pulls, own, row, learner, 4 * part, size, learners, dim, width, WIDE,
                DIM,
            )  # fmt: skip
    tl.store(sums + tl.program_id(0), loss)


@jit
def _key(distances):
    """24 binary places of distances up to 4."""
    return tl.minimum(tl.maximum((distances * 4194304.0).to(tl.int32), 0), 16777215)


@jit
def _same(products, x, members, pulls, row, size, learners, dim, width, WIDE: tl.constexpr, DIM: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The distances of a row's same pairs, -1 where there is none; no product of them is seen."""
    d = tl.arange(0, DIM)
    for first in range(0, width, WIDE):
        p = first + tl.arange(0, WIDE)
        other = tl.load(members + row * width + p, p < width, -1)
        for learner in range(learners):
            at = learner * size + row
            tl.store(products + at * size + row, float("-inf"))
            tl.store(products + at * size + other, float("-inf"), other >= 0)
            apart = _apart(x, row, other, learner, learners, dim, d)
            found = tl.where(other >= 0, tl.sum(apart * apart, 1), -1.0)
            tl.store(pulls + at * width + p, found, p < width)


@jit
def _apart(x, row, other, learner, learners, dim, d):
    """x_row - x_other of one learner, 0 where there is no other."""
    mine = tl.load(x + (row * learners + learner) * dim + d, d < dim, 0.0)[None, :]
    there = (other >= 0)[:, None] & (d < dim)[None, :]
    at = (other * learners + learner)[:, None] * dim + d[None, :]
    return tl.where(there, mine - tl.load(x + at, there, 0.0), 0.0)


@jit
def _same_back(x, members, pulls, own, row, learner, weight, size, learners, dim, width, WIDE: tl.constexpr, DIM: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The gradient of a row's same pairs that the learner sees."""
    d = tl.arange(0, DIM)
    total = tl.zeros((DIM,), tl.float32)
    for first in range(0, width, WIDE):
        p = first + tl.arange(0, WIDE)
        other = tl.load(members + row * width + p, p < width, -1)
        at = pulls + (learner * size + row) * width + p
        other = tl.where(tl.load(at, p < width, -1.0) >= 0, other, -1)
        total += tl.sum(_apart(x, row, other, learner, learners, dim, d), 0)
    tl.store(own + (row * learners + learner) * dim + d, weight * total, d < dim)


@jit
def _distances(products, divisors, row, j, learner, learners, size):
    """Which pairs of a row the learner sees, and their distances."""
    inside = j < size
    product = tl.load(products + (learner * size + row) * size + j, inside, float("-inf"))
    # a sample whose length counts as infinite is zero
    own = tl.where(tl.load(divisors + row * learners + learner) < float("inf"), 1.0, 0.0)
    divisor = tl.load(divisors + j * learners + learner, inside, 1.0)
    lengths = own + tl.where(divisor < float("inf"), 1.0, 0.0)
    seen = product > float("-inf")
    return seen, tl.where(seen, lengths - 2 * product, 0.0)


@jit
def _count(products, divisors, pulls, counts, push_key, pull_key, digit, learner, begin, end, size, learners, width, BLOCK: tl.constexpr, DIGITS: tl.constexpr, BINS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """Add up how many keys that begin like these have which digit next."""
    shift = 8 * (DIGITS - 1 - digit)
    block = tl.arange(0, BLOCK)
    pushed = tl.zeros((BINS,), tl.int32)
    for row in range(begin, end):
        for first in range(0, size, BLOCK):
            seen, apart = _distances(
                products, divisors, row, first + block, learner, learners, size
            )
            key = _key(apart)
            seen = seen & ((key >> (shift + 8)) == push_key)
            pushed += tl.histogram((key >> shift) & 255, BINS, mask=seen)
    pulled = tl.zeros((BINS,), tl.int32)
    table = pulls + learner * size * width
    for first in range(begin * width, end * width, BLOCK):
        apart = tl.load(table + first + block, first + block < end * width, -1.0)
        key = 16777215 - _key(apart)
        seen = (apart >= 0) & ((key >> (shift + 8)) == pull_key)
        pulled += tl.histogram((key >> shift) & 255, BINS, mask=seen)
    bins = tl.arange(0, BINS)
    tl.atomic_add(counts + bins, pushed, pushed > 0, sem="relaxed")
    tl.atomic_add(counts + BINS + bins, pulled, pulled > 0, sem="relaxed")


@jit
def _next_digit(counts, key, rank, BINS: tl.constexpr):
    """The key with the digit of the bin in which the place is, and the place within the bin."""
    found = tl.load(counts + tl.arange(0, BINS), cache_modifier=".cg")
    up_to = tl.cumsum(found, 0)
    before = up_to <= rank
    return key * BINS + tl.sum(before.to(tl.int32), 0), rank - tl.max(tl.where(before, up_to, 0), 0)


@jit
def _push(products, divisors, row, learner, learners, size, margin, weight, last, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """A row's products become weights; the sum of its losses, and how many pairs go on."""
    total = tl.zeros((BLOCK,), tl.float32)
    more = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, size, BLOCK):
        j = first + tl.arange(0, BLOCK)
        seen, apart = _distances(products, divisors, row, j, learner, learners, size)
        hinge = tl.where(seen, tl.maximum(margin - apart, 0.0), 0.0)
        total += hinge
        at = products + (learner * size + row) * size + j
        tl.store(at, tl.where(hinge > 0, weight, 0.0), j < size)
        on = seen & (_key(apart) <= last + 4)  # 4 of 2^22: what differs by rounding
        more += on.to(tl.int32)
        if learner + 1 < learners:
            tl.store(at + size * size, float("-inf"), (j < size) & ~on)
    return tl.sum(total, 0), tl.sum(more, 0)


@jit
def _pull(pulls, learner, learners, begin, end, size, width, last, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The sum of the same pairs' losses of the program's rows, and how many of them go on."""
    total = tl.zeros((BLOCK,), tl.float32)
    more = tl.zeros((BLOCK,), tl.int32)
    table = pulls + learner * size * width
    for first in range(begin * width, end * width, BLOCK):
        p = first + tl.arange(0, BLOCK)
        apart = tl.load(table + p, p < end * width, -1.0)
        total += tl.maximum(apart, 0.0)
        on = (apart >= 0) & (16777215 - _key(apart) <= last + 4)
        more += on.to(tl.int32)
        if learner + 1 < learners:
            tl.store(table + size * width + p, -1.0, (p < end * width) & ~on)
    return tl.sum(total, 0), tl.sum(more, 0)
