"""Inputs of the measures, similarity of vectors, and exact nearest neighbors.

Similarities are fast in float32, and exact where that cannot decide an order:

    cosine      x.y / (|x| |y|), 0 where a vector is 0
    euclidean   -|x - y|^2

Higher is nearer. The table of all queries by all gallery vectors is computed in float32, with an
error that has a bound. Only pairs that are within this bound of each other are computed again, in
float64, and for the Euclidean distance from differences. Two similarities that differ by no more
than float64 rounding (`slack`) are equal. The order is therefore the same for every block size, on
every device, and for float32 and float64 copies of the same numbers.

Bound: a dot product over d terms errs by about sqrt(d) u |x| |y|, u the unit roundoff (Higham and
Mary, A new approach to probabilistic rounding error analysis, SISC 2019); four times that is taken.

`nearest` orders by similarity, then by lower index. The candidates come from float32 similarities,
in blocks, and their order from exact ones. Where the bound of the float32 error does not rule out
the rest of the gallery, the whole row is computed exactly. The c largest entries of a row are
within the c groups of columns with the largest maxima, so only these groups are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.embeddings import EmbeddingTable

__all__ = [
    "METRICS",
    "Labels",
    "Rows",
    "Space",
    "Vectors",
    "class_numbers",
    "in_range",
    "labels_of",
    "nearest",
    "nearest_blocks",
    "unit_rows",
    "vectors_of",
    "with_labels",
]

Vectors = EmbeddingTable | Tensor | NDArray[Any]
Labels = Tensor | NDArray[Any] | None
METRICS = ("cosine", "euclidean")
CHUNK = {"cpu": 2**18, "cuda": 2**25}  # numbers made at a time, where not all are needed at once
# Unit roundoff of a float32 product by what the user allows it to be computed in.
ROUNDOFF = {"highest": 2.0**-24, "high": 2.0**-11, "medium": 2.0**-8}
BLOCK = {"cpu": 2**23, "cuda": 2**28}  # numbers in a block of similarities
SPARE = 8  # candidates beyond k
GROUP = 64  # columns
UNIT_ROWS = 4096  # brought to length 1 at a time


def vectors_of(
    value: Vectors, *, device: str | torch.device | None = None, name: str = "vectors"
) -> Tensor:
    """A finite float32 or float64 matrix on the device, by default where it is.

    >>> vectors_of(np.array([[1, 2]]))
    tensor([[1., 2.]])
    """
    if isinstance(value, EmbeddingTable):
        value = value.vectors
    if not isinstance(value, Tensor):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name}: expected numbers, got {array.dtype}")
        value = torch.from_numpy(array if array.flags.writeable else array.copy())
    if value.is_complex():
        raise ValueError(f"{name}: expected real numbers, got {value.dtype}")
    tensor = value.detach()
    if tensor.dtype != torch.float64:
        tensor = tensor.float()
    checks.vectors(name, tensor)
    tensor = tensor.to(device or tensor.device)
    low, high = tensor.aminmax()
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        bad = (~tensor.isfinite().all(1)).nonzero()[:, 0]
        raise ValueError(
            f"{name}: expected finite numbers, got NaN or infinity in {len(bad)} of {len(tensor)} "
            f"rows, the first is row {int(bad[0])}; remove those rows or embed them again"
        )
    return tensor


def unit_rows(vectors: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """The rows at length 1, as computed in float64; the result is the only table that is made.

    >>> unit_rows(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]], dtype=torch.float64)
    """
    found = torch.empty_like(vectors, dtype=dtype)
    for at in range(0, len(vectors), UNIT_ROWS):
        found[at : at + UNIT_ROWS] = unit(vectors[at : at + UNIT_ROWS].double())
    return found


def labels_of(value: Vectors, labels: Labels, *, name: str = "labels") -> NDArray[Any]:
    """The labels as an array, those of the table where none are given; one for each vector."""
    if labels is None and isinstance(value, EmbeddingTable):
        labels = value.labels
    if labels is None:
        raise ValueError(f"{name}: expected one for each vector, got None")
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (len(value),):
        raise ValueError(
            f"{name}: expected shape ({len(value)},), one for each vector, got {array.shape}"
        )
    if array.dtype.kind not in "iuUS":
        raise ValueError(f"{name}: expected integers or strings, got {array.dtype}")
    return array


def class_numbers(*labels: NDArray[Any]) -> list[Tensor]:
    """Each array of labels as numbers 0, 1, ... that are the same for the same label.

    >>> class_numbers(np.array(["b", "a"]), np.array(["a", "c"]))
    [tensor([1, 0]), tensor([0, 2])]
    """
    kinds = {array.dtype.kind in "iu" for array in labels}
    if len(kinds) > 1:
        raise ValueError(
            "labels, gallery_labels: expected both as integers or both as strings, got one of each"
        )
    numbers = np.unique(np.concatenate(labels), return_inverse=True)[1]
    bounds = np.cumsum([len(array) for array in labels])[:-1]
    return [torch.from_numpy(part.astype(np.int64)) for part in np.split(numbers, bounds)]


def with_labels(
    vectors: Vectors, labels: Labels, *, device: str | torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """The vectors, and their labels as class numbers 0, 1, ..., on the device."""
    tensor = vectors_of(vectors, device=device)
    return tensor, class_numbers(labels_of(vectors, labels))[0].to(tensor.device)


@dataclass(frozen=True)
class Rows:
    """Vectors prepared for a `Space`."""

    given: Tensor  # (rows, dim) float32 or float64, for the exact similarities
    inverse: Tensor  # (rows,) 1 / length of the given ones, 0 for a zero vector
    fast: Tensor  # (rows, dim) float32, what is multiplied
    length: Tensor  # (rows,) of the fast ones, float64
    bias: Tensor | None  # (rows,) float32, what a gallery vector adds to its products

    def __len__(self) -> int:
        return len(self.given)


class Space:
    """A metric; for the Euclidean one with the center and scale that keep float32 accurate.

    >>> space = Space("euclidean", torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    >>> rows = space.rows(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    >>> space.table(rows, slice(0, 1), rows, slice(0, 2))
    tensor([[ -0., -25.]], dtype=torch.float64)
    """

    def __init__(self, metric: str, gallery: Tensor) -> None:
        self.cosine = checks.choice("metric", metric, METRICS) == "cosine"
        dim = gallery.shape[1]
        precision = torch.get_float32_matmul_precision()
        self.error = 4 * (math.sqrt(dim) + 4) * ROUNDOFF[precision]
        self.rounding = 4 * (math.sqrt(dim) + 4) * 2.0**-53
        self.middle = gallery.mean(0, dtype=torch.float64)
        low, high = (value.double() for value in gallery.aminmax(dim=0))
        top = float(torch.maximum(high - self.middle, self.middle - low).max())
        self.scale = math.ldexp(1.0, -math.frexp(top)[1]) if top else 1.0  # changes no digit

    def rows(self, given: Tensor) -> Rows:
        """Prepare vectors in parts, without a float64 copy of all of them."""
        if self.cosine and given.dtype == torch.float64:  # squares stay in range
            given = given / _nonzero(given.abs().amax(1, keepdim=True))
        fast = torch.empty(given.shape, dtype=torch.float32, device=given.device)
        inverse = torch.empty(len(given), dtype=torch.float64, device=given.device)
        length = torch.empty_like(inverse)
        step = _step(given)
        for part in (slice(at, at + step) for at in range(0, len(given), step)):
            exact = given[part].double()
            norms = torch.linalg.vector_norm(exact, dim=1)
            inverse[part] = norms.reciprocal().masked_fill_(norms == 0, 0)
            if self.cosine:
                exact = exact * inverse[part, None]
            else:
                exact = (exact - self.middle) * self.scale
            fast[part] = exact
            length[part] = torch.linalg.vector_norm(exact, dim=1)
        bias = None if self.cosine else length.square().div_(-2).float()
        return Rows(given, inverse, fast, length, bias)

    def pairs(self, x: Rows, i: Tensor, y: Rows, j: Tensor) -> Tensor:
        """Exact similarity of row i[n] of x and row j[n] of y, (n,), float64."""
        step = _step(x.given)
        found = x.inverse.new_empty(len(i))
        for part in (slice(at, at + step) for at in range(0, len(i), step)):
            found[part] = self._pairs(x, i[part], y, j[part])
        return found

    def _pairs(self, x: Rows, i: Tensor, y: Rows, j: Tensor) -> Tensor:
        left, right = x.given.index_select(0, i).double(), y.given.index_select(0, j).double()
        if self.cosine:
            return left.mul_(right).sum(1).mul_(x.inverse[i]).mul_(y.inverse[j])
        return left.sub_(right).square_().sum(1).neg_()

    def table(self, x: Rows, i: Tensor | slice, y: Rows, j: Tensor | slice) -> Tensor:
        """Exact similarities of all rows i of x to all rows j of y, float64."""
        left, right = x.given[i].double(), y.given[j].double()
        if self.cosine:
            return (left @ right.T).mul_(x.inverse[i, None]).mul_(y.inverse[j])
        distances = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.square_().neg_()

    def screen(self, lengths: Tensor, exact: Tensor) -> tuple[Tensor, Tensor]:
        """Where an exact similarity lies among fast ones plus bias, and how far off these may be.

        lengths: of the fast query, of the shape of exact.
        """
        if self.cosine:
            return exact, torch.full_like(exact, self.error)
        # Vectors about as far as this one are within the radius of the middle, so outliers do not
        # spoil the bound for the others.
        radius = exact.neg().clamp_(min=0).sqrt_().mul_(self.scale).add_(lengths)
        cut = (lengths.square() + exact * self.scale**2) / 2
        return cut, (lengths * radius + radius.square()).mul_(self.error).add_(1e-36)

    def slack(self, exact: Tensor) -> Tensor:
        """Differences up to this are rounding in float64."""
        return torch.full_like(exact, self.rounding) if self.cosine else exact.abs() * self.rounding

    def ordered(self, exact: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Rows by similarity; where that differs by rounding alone, by index.

        >>> space = Space("cosine", torch.ones(1, 2))
        >>> space.ordered(torch.tensor([[0.5, 1.0, 0.5]]), torch.tensor([[7, 6, 5]]))[1]
        tensor([[6, 5, 7]])
        """
        exact, order = exact.sort(dim=1, descending=True)
        index = index.gather(1, order)
        apart = exact[:, :-1] - exact[:, 1:] > self.slack(exact[:, :-1])
        groups = torch.nn.functional.pad(apart.cumsum(1), (1, 0))
        place = (groups * 2**32 + index).argsort(dim=1)
        return exact.gather(1, place), index.gather(1, place)


def in_range(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same vectors, all scaled by one power of two if their squares leave float64's range."""
    if all(tensor.dtype != torch.float64 for tensor in tensors):
        return tensors
    top = max(float(tensor.abs().max()) for tensor in tensors)
    if 1e-60 < top < 1e60 or top == 0:
        return tensors
    scale = math.ldexp(1.0, max(-1022, min(1023, -math.frexp(top)[1])))
    return tuple(tensor.double() * scale for tensor in tensors)


def _step(vectors: Tensor) -> int:
    return max(1, CHUNK.get(vectors.device.type, CHUNK["cpu"]) // vectors.shape[1])


def _nonzero(values: Tensor) -> Tensor:
    return values.masked_fill(values == 0, 1)


def nearest(
    vectors: Tensor, k: int, *, gallery: Tensor | None = None, metric: str = "cosine"
) -> tuple[Tensor, Tensor]:
    """Similarity (float64) and index of the k nearest in the gallery, (rows, k), nearest first.

    Without a gallery: the k nearest other vectors. k is limited to the number of candidates.
    Similarities are cosines, or negative squared distances for "euclidean".

    >>> nearest(torch.tensor([[0.0], [1.0], [3.0]]), 1, metric="euclidean")
    (tensor([[-1.],
            [-1.],
            [-4.]], dtype=torch.float64), tensor([[1],
            [0],
            [1]]))
    """
    found = list(nearest_blocks(vectors, k, gallery=gallery, metric=metric))
    return torch.cat([values for values, _ in found]), torch.cat([index for _, index in found])


def nearest_blocks(
    vectors: Tensor, k: int, *, gallery: Tensor | None = None, metric: str = "cosine"
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same as an iterator over blocks of rows."""
    itself = gallery is None
    vectors, others = in_range(vectors, vectors if gallery is None else gallery)
    k = min(checks.integer("k", k, at_least=1), len(others) - itself)
    space = Space(metric, others)
    rows = space.rows(others)
    queries = rows if itself else space.rows(vectors)
    step = max(1, BLOCK.get(vectors.device.type, BLOCK["cpu"]) // len(others))
    for at in range(0, len(vectors), step):
        part = torch.arange(at, min(at + step, len(vectors)), device=vectors.device)
        yield _block(space, queries, rows, part, k, itself)


def _block(
    space: Space, queries: Rows, gallery: Rows, part: Tensor, k: int, itself: bool
) -> tuple[Tensor, Tensor]:
    with torch.autocast(part.device.type, enabled=False):
        table = queries.fast[part] @ gallery.fast.T
    if gallery.bias is not None:
        table += gallery.bias
    own = part[:, None] if itself else None
    if own is not None:
        table.scatter_(1, own, -math.inf)
    count = min(k + SPARE, len(gallery) - itself)
    rough, index = _largest(table, count)
    rows = part[:, None].expand_as(index)
    exact = space.pairs(queries, rows.flatten(), gallery, index.flatten()).view_as(rough)
    exact, index = (found[:, :k] for found in space.ordered(exact, index))
    if count < len(gallery) - itself and k:
        cut, margin = space.screen(queries.length[part], exact[:, -1])
        crowded = (rough[:, -1].double() >= cut - margin).nonzero()[:, 0]
        step = max(1, 2**22 // len(gallery))
        for some in (crowded[at : at + step] for at in range(0, len(crowded), step)):
            whole = space.table(queries, part[some], gallery, slice(None))
            if own is not None:
                whole.scatter_(1, own[some], -math.inf)
            places = torch.arange(len(gallery), device=part.device).expand_as(whole)
            whole, places = space.ordered(whole, places)
            exact[some], index[some] = whole[:, :k], places[:, :k]
    return exact, index


def _largest(table: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row in descending order, and their columns."""
    rows, columns = table.shape
    groups = columns // GROUP
    if groups < 4 * count:  # nothing to gain
        return table.topk(count, dim=1)
    whole = groups * GROUP
    tops = table[:, :whole].unflatten(1, (groups, GROUP)).amax(2)
    best = tops.topk(count, dim=1, sorted=False).indices * GROUP
    steps = torch.arange(GROUP, device=table.device)
    rest = torch.arange(whole, columns, device=table.device).expand(rows, -1)
    candidates = torch.cat([(best[:, :, None] + steps).flatten(1), rest], 1)
    values, places = table.gather(1, candidates).topk(count, dim=1)
    return values, candidates.gather(1, places)
