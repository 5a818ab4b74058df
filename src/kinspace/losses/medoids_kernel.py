"""The greedy steps of `medoids` in one GPU kernel, for the time of a step is that of its launches.

Each program owns some candidates, and keeps its own copy of what all must know of the samples. In a
step it adds up what the moved samples change for its candidates, a tile (moved samples, candidates)
at a time, and writes its best candidate down; then it looks for those of the others until all are
there. Nothing else passes between programs, so this takes no barrier, which would empty the caches.
Counts within a class are taken anew for every sample that moves, from the class's members; those of
clusters are kept in a table.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"
# Triton's functions have no types.
from __future__ import annotations

from kinspace.gpu_kernels import jit, tl

__all__ = ["greedy_steps"]

# The quickest of those tried on an H200 at 512 to 4096 samples.
WARPS = 8
MOVED = 32  # samples of a tile
TILE = 2048  # samples times candidates of one where many move, as in the first steps
BLOCK = 4096  # samples looked at together for whether they move


@jit
def greedy_steps(  # noqa: PLR0913
    distances,
    members,
    starts,
    ends,
    entropy,
    class_part,
    weights,
    near,
    cluster,
    moved,
    left,
    scores,
    picks,
    medoids,
    nmi,
    size,
    classes,
    EACH: tl.constexpr,
    CANDIDATES: tl.constexpr,
    MOVED: tl.constexpr,
    MANY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All steps; launched by `medoids`. Every program must be on the device at once."""
    program = tl.program_id(0)
    near += program * size
    cluster += program * size
    moved += program * size
    candidates = program * CANDIDATES + tl.arange(0, CANDIDATES)
    free = candidates < size
    scale = tl.load(weights)
    weight = tl.load(weights + 1)
    whole = tl.load(entropy + size)
    true = tl.load(class_part)
    cost = _whole_cost(distances, candidates, size, scale, MOVED)
    taken = tl.zeros_like(candidates) + size
    joint = tl.zeros_like(cost) + true
    clusters = tl.zeros_like(cost) + whole
    for step in range(classes):
        best = _best(
            candidates, free, cost.to(tl.float64) / scale, whole + joint - clusters - true,
            2 * whole - clusters - true, weight, scores, picks, nmi, step, EACH,
        )  # fmt: skip
        tl.store(medoids + step, best)
        free = free & (candidates != best)
        row = distances + best.to(tl.int64) * size
        count = _list_moved(row, near, moved, size, BLOCK)
        kept, joined = taken, tl.zeros_like(taken)
        cost, joint, clusters, kept, joined = _tiles(
            distances, members, starts, ends, entropy, scale, near, cluster, left, row, moved, size,
            candidates, cost, joint, clusters, kept, joined, 0, count // MANY * MANY, MANY,
        )  # fmt: skip
        cost, joint, clusters, kept, joined = _tiles(
            distances, members, starts, ends, entropy, scale, near, cluster, left, row, moved, size,
            candidates, cost, joint, clusters, kept, joined, count // MANY * MANY, count, MOVED,
        )  # fmt: skip
        tl.store(left + step * size + candidates, joined, candidates < size)
        clusters += tl.load(entropy + joined)
        clusters += tl.load(entropy + kept) - tl.load(entropy + taken)
        taken = kept
        _move(row, near, cluster, moved, count, step)


@jit
def _fixed(distances, scale):
    return (distances.to(tl.float64) * scale).to(tl.int64)


@jit
def _whole_cost(distances, candidates, size, scale, MOVED: tl.constexpr):
    """The cost of each candidate as the only medoid."""
    cost = tl.zeros(candidates.shape, tl.int64)
    for first in range(0, size, MOVED):
        p = first + tl.arange(0, MOVED)
        there = (p < size)[:, None] & (candidates < size)[None, :]
        apart = tl.load(distances + p.to(tl.int64)[:, None] * size + candidates, there, 0.0)
        cost += tl.sum(_fixed(apart, scale), 0)
    return cost


@jit
def _list_moved(row, near, moved, size, BLOCK: tl.constexpr):
    """List the samples that are nearer to the new medoid; how many they are."""
    count = 0
    for first in range(0, size, BLOCK):
        p = first + tl.arange(0, BLOCK)
        there = p < size
        nearer = there & (tl.load(row + p, there, 0.0) < tl.load(near + p, there, 0.0))
        place = count + tl.cumsum(nearer.to(tl.int32), 0) - 1
        tl.store(moved + place, p, nearer)
        count += tl.sum(nearer.to(tl.int32), 0)
    tl.debug_barrier()
    return count


@jit
def _move(row, near, cluster, moved, count, step):
    """Bring the samples listed up to date, once all threads have read what they were."""
    tl.debug_barrier()
    for first in range(0, count, 256):
        place = first + tl.arange(0, 256)
        there = place < count
        p = tl.load(moved + place, there, 0)
        tl.store(near + p, tl.load(row + p, there, 0.0), there)
        tl.store(cluster + p, step, there)
    tl.debug_barrier()


@jit
def _tiles(distances, members, starts, ends, entropy, scale, near, cluster, left, row, moved, size, candidates, cost, joint, clusters, kept, joined, begin, end, TILE: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """Add to the candidates' sums and counts what the samples listed from begin to end change."""
    for first in range(begin, end, TILE):
        place = first + tl.arange(0, TILE)
        p = tl.load(moved + place, place < end, -1)
        more_cost, more_joint, more_clusters, lost, more = _moved_tile(
            distances, members, starts, ends, entropy, scale,
            near, cluster, left, row, size, p, candidates,
        )  # fmt: skip
        cost += more_cost
        joint += more_joint
        clusters += more_clusters
        kept -= lost
        joined += more
    return cost, joint, clusters, kept, joined


@jit
def _moved_tile(  # noqa: PLR0913
    distances,
    members,
    starts,
    ends,
    entropy,
    scale,
    near,
    cluster,
    left,
    row,
    size,
    p,
    candidates,
):
    """What the move of the samples p (-1: none) changes for each candidate.

    The cost, the sums joint and clusters (but for T_i and the new cluster), how many T_i loses,
    and how many outside T_i the new cluster gets.
    """
    valid = p >= 0
    p = tl.where(valid, p, 0)
    there = valid[:, None] & (candidates < size)[None, :]
    apart = tl.load(distances + p.to(tl.int64)[:, None] * size + candidates, there, 0.0)
    old_near = tl.load(near + p)[:, None]
    new_near = tl.load(row + p)[:, None]
    old = tl.load(cluster + p)
    nearer = _fixed(tl.minimum(apart, new_near), scale)
    cost = tl.where(there, nearer - _fixed(tl.minimum(apart, old_near), scale), 0)
    outside = there & (apart >= old_near)
    joins = there & (apart >= new_near)
    lost = joins & ~outside
    # several samples of the tile may leave one cluster: each is told what was there before it
    places = left + old.to(tl.int64)[:, None] * size + candidates
    before = tl.atomic_add(places, tl.where(outside, -1, 0), outside, sem="relaxed")
    pair, same, new = _class_counts(
        distances, members, tl.load(starts + p), tl.load(ends + p), near, cluster, row, size,
        p, valid, old, candidates,
    )  # fmt: skip
    joint = _growth(entropy, new, joins) - _growth(entropy, same - 1, lost)
    joint -= _growth(entropy, pair - 1, outside)
    clusters = -_growth(entropy, before - 1, outside)
    return (
        tl.sum(cost, 0),
        tl.sum(joint, 0),
        tl.sum(clusters, 0),
        tl.sum(lost.to(tl.int32), 0),
        tl.sum(joins.to(tl.int32), 0),
    )


@jit
def _growth(entropy, counts, where):
    """f(count + 1) - f(count)."""
    return tl.load(entropy + counts + 1, where, 0) - tl.load(entropy + counts, where, 0)


@jit
def _class_counts(distances, members, start, end, near, cluster, row, size, p, valid, old, candidates):  # fmt: skip  # noqa: E501, PLR0913
    """Counts within the class of p, when the moved samples before p have moved.

    For each p and candidate: those outside T_i in p's old cluster, those in T_i, and those
    outside T_i in the new cluster.
    """
    pair = tl.zeros((p.shape[0], candidates.shape[0]), tl.int32)
    same = pair
    new = pair
    for j in tl.range(0, tl.max(end - start, 0), loop_unroll_factor=4):
        there = valid & (start + j < end)
        # not a masked load: with some shapes Triton 3.6 fails to compile that one
        q = tl.load(members + tl.minimum(start + j, end - 1))
        both = there[:, None] & (candidates < size)[None, :]
        apart = tl.load(distances + q[:, None] * size + candidates, both, 0.0)
        old_near = tl.load(near + q)
        new_near = tl.load(row + q)
        done = (new_near < old_near) & (q < p)
        mates = ~done & (tl.load(cluster + q) == old)
        within = apart < old_near[:, None]
        kept = apart < new_near[:, None]
        pair += (both & mates[:, None] & ~within).to(tl.int32)
        same += (both & tl.where(done[:, None], kept, within)).to(tl.int32)
        new += (both & done[:, None] & ~kept).to(tl.int32)
    return pair, same, new


@jit
def _best(  # noqa: PLR0913
    candidates,
    free,
    cost,
    information,
    entropies,
    weight,
    scores,
    picks,
    nmi,
    step,
    EACH: tl.constexpr,
):
    """The candidate of the largest score among those of all programs.

    EACH: programs or more, and a thread each or more, so that no two threads look at one program.
    """
    own = 2 * information.to(tl.float64) / tl.maximum(entropies, 1).to(tl.float64)
    own = tl.where(entropies == 0, 1.0, own)
    score = weight * (1 - own) - cost
    score = tl.where(free & (score == score), score, float("-inf"))  # a NaN never wins
    top = tl.max(score, 0)
    pick = tl.min(tl.where(score == top, candidates, 2147483647), 0)
    programs = tl.num_programs(0)
    place = step * programs
    tl.store(scores + place + tl.program_id(0), top)
    tl.store(picks + place + tl.program_id(0), pick)
    each = tl.arange(0, EACH)
    there = each < programs
    tops = tl.full((EACH,), float("nan"), tl.float64)
    picked = tl.full((EACH,), -1, tl.int32)
    missing = 1
    while missing > 0:  # until none is as it was before the launch
        tops = tl.load(scores + place + each, there, float("-inf"), volatile=True)
        picked = tl.load(picks + place + each, there, 2147483647, volatile=True)
        missing = tl.sum(((tops != tops) | (picked < 0)).to(tl.int32), 0)
    best = tl.min(tl.where(tops == tl.max(tops, 0), picked, 2147483647), 0)
    tl.store(nmi + candidates * 0, own, candidates == best)
    return best
