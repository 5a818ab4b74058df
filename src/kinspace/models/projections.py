"""Embedding layers computed from features and their classes: a start, or a model, without training.

Both make the directions equally long in which samples of one class differ:

    S = (1 - s) S_w + s tr(S_w)/d I,   W = V^T S^(-1/2),   b = -W m

S_w is the covariance of the d features within the classes, and W is scaled so that vectors keep
their length on average. They differ in the directions V and the mean m.

Within-class whitening: V^T has the directions in which the whitened samples vary most, of one class
or of several, and m is the mean of all samples. A class that was not there is then as far from the
others as before: for classes that are not seen in training. Hatch, Kajarekar and Stolcke,
Within-class covariance normalization, Interspeech 2006.

Linear discriminant analysis: V^T has the directions in which the class means differ most, and m is
the mean of these. There are at most as many as classes, less one; further rows go on with the
directions left, shortened to `rest`, so that training has them and they change little before it.
For classes that are seen in training. Fisher, The use of multiple measurements in taxonomic
problems, 1936; the shrinkage s as in Friedman, Regularized discriminant analysis, 1989.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import class_means

__all__ = ["lda_projection", "whitening_projection"]


@torch.no_grad()
def whitening_projection(
    features: Tensor, labels: Tensor, dim: int, *, shrinkage: float = 0.6
) -> tuple[Tensor, Tensor]:
    """The weight (dim, features) and bias (dim,) of a within-class whitening (module docstring).

    Two classes that differ along the second axis, and within themselves along the first:

    >>> x = torch.tensor([[-9.0, 0.0], [9.0, 0.0], [-9.0, 1.0], [9.0, 1.0], [9.0, 1.2]])
    >>> y = torch.tensor([0, 0, 1, 1, 1])
    >>> weight, _ = whitening_projection(x, y, 2, shrinkage=0.01)
    >>> whitened = x @ weight.T
    >>> for z in (x, whitened):  # within a class over between the classes
    ...     print(f"{(z[3] - z[2]).norm() / (z[2] - z[0]).norm():.1f}")
    18.0
    1.3
    """
    labels = checks.labels(features, labels)
    root, _, x = _inverse_root(features, labels, dim, shrinkage)
    middle = x.mean(0)
    directions, _ = _directions(root(x - middle), dim)
    return _scaled(root(directions), x, middle, features.dtype)


@torch.no_grad()
def lda_projection(
    features: Tensor, labels: Tensor, dim: int, *, shrinkage: float = 0.3, rest: float = 0.1
) -> tuple[Tensor, Tensor]:
    """The weight (dim, features) and bias (dim,) of an LDA (module docstring).

    Two classes that differ along the second axis, and within themselves along the first:

    >>> x = torch.tensor([[-9.0, 0.0], [9.0, 0.0], [-9.0, 1.0], [9.0, 1.0]])
    >>> weight, bias = lda_projection(x, torch.tensor([0, 0, 1, 1]), 1, shrinkage=0.01)
    >>> (x @ weight.T + bias).sign()[:, 0]
    tensor([-1., -1.,  1.,  1.])
    """
    labels = checks.labels(features, labels)
    checks.number("rest", rest, at_least=0)
    root, means, x = _inverse_root(features, labels, dim, shrinkage)
    middle = means.mean(0)
    directions, spread = _directions(root(means - middle), dim)
    apart = int((spread > 1e-6 * spread.max()).sum())
    directions[apart:] *= rest
    return _scaled(root(directions), x, middle, features.dtype)


def _inverse_root(
    features: Tensor, labels: Tensor, dim: int, shrinkage: float
) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """Rows times S^(-1/2) as a function; the class means; the features in float64.

    S_w has at most as many directions V of variance l_k as there are samples; in all others S is
    the constant s tr(S_w)/d = c. Where there are fewer samples than features,

        y S^(-1/2) = y / sqrt(c) + y V diag(1 / sqrt((1 - s) l_k + c) - 1 / sqrt(c)) V^T

    takes O(N^2 d) in place of O(d^3): of 500 samples with 2,560 features a hundredth.
    """
    count = features.shape[1]
    if not 1 <= checks.integer("dim", dim, at_least=1) <= count:
        raise ValueError(f"dim: expected at most the {count} features, got {dim}")
    if not 0 < checks.number("shrinkage", shrinkage, at_least=0) <= 1:
        raise ValueError(f"shrinkage: expected above 0 and at most 1, got {shrinkage!r}")
    x = features.double()
    found, places = labels.unique(return_inverse=True)
    means, _ = class_means(x, places, len(found))
    within = (x - means[places]) / max(len(x) - len(found), 1) ** 0.5
    even = within.square().sum() / count
    if not even > 0:
        raise ValueError("labels: expected classes of two or more different samples, got none")
    constant = shrinkage * even
    values, directions = _principal(within)
    vectors, elsewhere = directions.T, constant.rsqrt()  # (features, directions)
    more = torch.lerp(values, even, shrinkage).rsqrt() - elsewhere

    def root(y: Tensor) -> Tensor:
        rooted: Tensor = y * elsewhere + (y @ vectors * more) @ vectors.T
        return rooted

    return root, means, x


def _principal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues above 0 of rows^T rows, descending, and their directions (some, features)."""
    if len(rows) < rows.shape[1]:  # those of rows rows^T, which is smaller
        values, vectors = torch.linalg.eigh(rows @ rows.T)
        directions = (vectors.T @ rows) * values.clamp(min=1e-300).rsqrt()[:, None]
    else:
        values, vectors = torch.linalg.eigh(rows.T @ rows)
        directions = vectors.T
    kept = (values > 1e-12 * values[-1]).nonzero()[:, 0].flip(0)
    return values[kept], directions[kept]


def _directions(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Orthogonal directions (dim, features) and how far the rows are spread in each, descending.

    Where the rows have fewer directions, any others follow, with a spread of 0.
    """
    count = rows.shape[1]
    values, found = _principal(rows)
    spread, found = values[:dim].sqrt(), found[:dim]
    if len(found) < dim:
        generator = torch.Generator().manual_seed(0)
        others = torch.randn(count, dim - len(found), generator=generator, dtype=rows.dtype)
        both = torch.cat([found.T, others.to(rows.device)], 1)
        found = torch.cat([found, torch.linalg.qr(both)[0].T[len(found) :]])
        spread = torch.cat([spread, spread.new_zeros(dim - len(spread))])
    return found, spread


def _scaled(weight: Tensor, x: Tensor, middle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The layer at the scale that keeps the mean length of the features, and its bias."""
    outputs = (x - middle) @ weight.T
    weight = weight * (x.norm(dim=1).mean() / outputs.norm(dim=1).mean())
    return weight.to(dtype), -(weight @ middle).to(dtype)
