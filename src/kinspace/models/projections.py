"""Embedding layers computed from the features: a start, or a model, without training.

Whitening makes all directions of the features equally long, of the longest first:

    S = (1 - s) S_t + s tr(S_t)/d I,   W = U^T S^(-1/2),   b = -W m

S_t is the covariance of the d features, m their mean, and the rows of U^T its eigenvectors, those
of the largest eigenvalues first. It does not look at classes.

Linear discriminant analysis makes the directions in which samples of a class differ equally long:

    S = (1 - s) S_w + s tr(S_w)/d I,   W = V^T S^(-1/2),   b = -W m

S_w is the covariance within the classes, m the mean of the class means, and the
rows of V^T are directions in which these differ, those in which they differ most first. There are
at most as many as classes, less one; further rows go on with the directions left, shortened to
`rest`, so that training has them and they change little before it.

W is scaled so that vectors keep their length on average. Fisher, The use of multiple measurements
in taxonomic problems, 1936; shrinkage s as in Friedman, Regularized discriminant analysis, 1989.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import class_means

__all__ = ["lda_projection", "whitening_projection"]


@torch.no_grad()
def whitening_projection(
    features: Tensor, dim: int, *, shrinkage: float = 0.1
) -> tuple[Tensor, Tensor]:
    """The weight (dim, features) and bias (dim,) of a whitening layer (module docstring).

    >>> x = torch.tensor([[-9.0, 0.0], [9.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> weight, bias = whitening_projection(x, 2, shrinkage=1e-6)
    >>> (x @ weight.T + bias).abs().max(0).values.round()
    tensor([5., 5.])
    """
    count = features.shape[1]
    _check(dim, count, shrinkage)
    x = features.double()
    middle = x.mean(0)
    covariance = (x - middle).T @ (x - middle) / max(len(x) - 1, 1)
    even = covariance.diagonal().mean()
    if not even > 0:
        raise ValueError("features: expected two or more different samples, got none")
    covariance = torch.lerp(covariance, even * torch.eye(count).to(covariance), shrinkage)
    values, vectors = torch.linalg.eigh(covariance)  # the smallest first
    weight = (vectors * values.rsqrt()).flip(1)[:, :dim].T  # (dim, features)
    return _scaled(weight, x, middle, features.dtype)


@torch.no_grad()
def lda_projection(
    features: Tensor, labels: Tensor, dim: int, *, shrinkage: float = 0.3, rest: float = 0.1
) -> tuple[Tensor, Tensor]:
    """The weight (dim, features) and bias (dim,) of such a layer (module docstring).

    Two classes that differ along the second axis, and within themselves along the first:

    >>> x = torch.tensor([[-9.0, 0.0], [9.0, 0.0], [-9.0, 1.0], [9.0, 1.0]])
    >>> weight, bias = lda_projection(x, torch.tensor([0, 0, 1, 1]), 1, shrinkage=0.01)
    >>> (x @ weight.T + bias).sign()[:, 0]
    tensor([-1., -1.,  1.,  1.])
    """
    labels = checks.labels(features, labels)
    size, count = features.shape
    _check(dim, count, shrinkage)
    checks.number("rest", rest, at_least=0)
    x = features.double()
    found, places = labels.unique(return_inverse=True)
    means, _ = class_means(x, places, len(found))
    middle = means.mean(0)
    within = x - means[places]
    covariance = within.T @ within / max(size - len(found), 1)
    even = covariance.diagonal().mean()
    if not even > 0:
        raise ValueError("labels: expected classes of two or more different samples, got none")
    covariance = torch.lerp(covariance, even * torch.eye(count).to(covariance), shrinkage)
    values, vectors = torch.linalg.eigh(covariance)
    whitening = vectors * values.rsqrt()  # (features, features)
    _, spread, directions = torch.linalg.svd((means - middle) @ whitening, full_matrices=True)
    apart = int((spread > 1e-6 * spread.max()).sum())
    directions[apart:] *= rest
    return _scaled(directions[:dim] @ whitening.T, x, middle, features.dtype)


def _check(dim: int, count: int, shrinkage: float) -> None:
    if not 1 <= checks.integer("dim", dim, at_least=1) <= count:
        raise ValueError(f"dim: expected at most the {count} features, got {dim}")
    if not 0 < checks.number("shrinkage", shrinkage, at_least=0) <= 1:
        raise ValueError(f"shrinkage: expected above 0 and at most 1, got {shrinkage!r}")


def _scaled(weight: Tensor, x: Tensor, middle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The layer at the scale that keeps the mean length of the features, and its bias."""
    outputs = (x - middle) @ weight.T
    weight = weight * (x.norm(dim=1).mean() / outputs.norm(dim=1).mean())
    return weight.to(dtype), -(weight @ middle).to(dtype)
