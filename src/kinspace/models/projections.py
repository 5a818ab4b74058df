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
    whitening, _, x = _whitening(features, labels, dim, shrinkage)
    middle = x.mean(0)
    whitened = (x - middle) @ whitening
    _, directions = torch.linalg.eigh(whitened.T @ whitened)  # the smallest variance first
    return _scaled(directions.flip(1)[:, :dim].T @ whitening.T, x, middle, features.dtype)


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
    whitening, means, x = _whitening(features, labels, dim, shrinkage)
    middle = means.mean(0)
    _, spread, directions = torch.linalg.svd((means - middle) @ whitening, full_matrices=True)
    apart = int((spread > 1e-6 * spread.max()).sum())
    directions[apart:] *= rest
    return _scaled(directions[:dim] @ whitening.T, x, middle, features.dtype)


def _whitening(
    features: Tensor, labels: Tensor, dim: int, shrinkage: float
) -> tuple[Tensor, Tensor, Tensor]:
    """S^(-1/2), but for a rotation behind it; the class means; the features in float64."""
    count = features.shape[1]
    if not 1 <= checks.integer("dim", dim, at_least=1) <= count:
        raise ValueError(f"dim: expected at most the {count} features, got {dim}")
    if not 0 < checks.number("shrinkage", shrinkage, at_least=0) <= 1:
        raise ValueError(f"shrinkage: expected above 0 and at most 1, got {shrinkage!r}")
    x = features.double()
    found, places = labels.unique(return_inverse=True)
    means, _ = class_means(x, places, len(found))
    within = x - means[places]
    covariance = within.T @ within / max(len(x) - len(found), 1)
    even = covariance.diagonal().mean()
    if not even > 0:
        raise ValueError("labels: expected classes of two or more different samples, got none")
    covariance = torch.lerp(covariance, even * torch.eye(count).to(covariance), shrinkage)
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.rsqrt(), means, x


def _scaled(weight: Tensor, x: Tensor, middle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The layer at the scale that keeps the mean length of the features, and its bias."""
    outputs = (x - middle) @ weight.T
    weight = weight * (x.norm(dim=1).mean() / outputs.norm(dim=1).mean())
    return weight.to(dtype), -(weight @ middle).to(dtype)
