"""Similarity of vectors: fast in float32, and exact where that cannot decide an order.

    cosine      x.y / (|x| |y|), 0 where a vector is 0
    euclidean   -|x - y|^2

Higher is nearer. The table of all queries by all gallery vectors is computed in float32, with an
error that has a bound. Only pairs that are within this bound of each other are computed again, in
float64, and for the Euclidean distance from differences. Two similarities that differ by no more
than float64 rounding (`slack`) are equal. The order is therefore the same for every block size, on
every device, and for float32 and float64 copies of the same numbers.

Bound: a dot product over d terms errs by about sqrt(d) u |x| |y|, u the unit roundoff (Higham and
Mary, A new approach to probabilistic rounding error analysis, SISC 2019); four times that is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace._core import checks

__all__ = ["METRICS", "Rows", "Space", "in_range"]

METRICS = ("cosine", "euclidean")
CHUNK = {"cpu": 2**18, "cuda": 2**25}  # numbers made at a time, where not all are needed at once
# Unit roundoff of a float32 product by what the user allows it to be computed in.
ROUNDOFF = {"highest": 2.0**-24, "high": 2.0**-11, "medium": 2.0**-8}


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
