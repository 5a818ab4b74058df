"""An embedding layer by linear discriminant analysis of the features."""

import pytest
import torch
from torch import Tensor

from kinspace.models import Head
from kinspace.models.projections import lda_projection, whitening_projection


def three_classes() -> tuple[Tensor, Tensor]:
    """Three classes apart along two axes, and spread far along a third."""
    labels = torch.arange(3).repeat_interleave(20)
    noise = torch.randn(60, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    centers = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    noise[:, :2] = 0.1 * noise[:, :2] + centers[labels]
    noise[:, 2] *= 30
    return noise, labels


def test_tells_the_classes_apart_by_the_first_directions() -> None:
    features, labels = three_classes()
    head = Head(5, 4).double()
    head.init_from_lda(features, labels, shrinkage=0.001)
    assert head.linear is not None
    outputs = head.linear(features)
    torch.testing.assert_close(outputs.norm(dim=1).mean(), features.norm(dim=1).mean())
    means = torch.stack([outputs[labels == c].mean(0) for c in range(3)])
    torch.testing.assert_close(
        means.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-9, rtol=0
    )
    assert torch.cdist(outputs, means).argmin(1).equal(labels)
    raw = torch.stack([features[labels == c].mean(0) for c in range(3)])
    assert not torch.cdist(features, raw).argmin(1).equal(labels)
    # what does not tell classes apart stays small
    within = outputs - means[labels]
    assert within[:, 2:].norm() < 0.3 * within[:, :2].norm()


def test_full_shrinkage_keeps_the_shape_of_the_features() -> None:
    features, labels = three_classes()
    weight, bias = lda_projection(features, labels, 2, shrinkage=1.0)
    turned = weight @ weight.T
    torch.testing.assert_close(turned, turned[0, 0] * torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(
        bias, -weight @ torch.stack([features[labels == c].mean(0) for c in range(3)]).mean(0)
    )


def test_says_what_it_cannot_do() -> None:
    features, labels = three_classes()
    with pytest.raises(ValueError, match="dim: expected at most the 5 features, got 6"):
        lda_projection(features, labels, 6)
    with pytest.raises(ValueError, match="classes of two or more different samples, got none"):
        lda_projection(features, torch.arange(60), 2)
    with pytest.raises(ValueError, match="shrinkage: expected above 0 and at most 1, got 0"):
        lda_projection(features, labels, 2, shrinkage=0)
    with pytest.raises(ValueError, match="expected a head with one embedding layer"):
        Head(5, None).init_from_lda(features, labels)


@pytest.mark.parametrize("samples", [12, 40], ids=["fewer samples than features", "more"])
def test_whitened_vectors_are_as_far_apart_as_the_formula_says(samples: int) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(samples) % 4
    features = torch.randn(samples, 20, dtype=torch.float64, generator=generator)
    features += 2 * torch.randn(4, 20, dtype=torch.float64, generator=generator)[labels]
    weight, bias = whitening_projection(features, labels, 20, shrinkage=0.3)
    means = torch.stack([features[labels == c].mean(0) for c in range(4)])
    within = features - means[labels]
    covariance = within.T @ within / (samples - 4)
    even = torch.eye(20, dtype=torch.float64) * covariance.trace() / 20
    metric = torch.linalg.inv(0.7 * covariance + 0.3 * even)
    apart = features[:, None] - features
    wanted = torch.einsum("ijk,kl,ijl->ij", apart, metric, apart).sqrt()
    found = torch.cdist(features @ weight.T + bias, features @ weight.T + bias)
    torch.testing.assert_close(found / found.norm(), wanted / wanted.norm())
    first, _ = whitening_projection(features, labels, 5, shrinkage=0.3)
    outputs = features @ weight.T
    variances = (outputs - outputs.mean(0)).square().sum(0)
    assert (variances.diff() < 1e-9 * variances[0]).all()  # the first directions vary most
    torch.testing.assert_close(
        (features @ first.T).std(0) / (features @ first.T).std(0)[0],
        outputs.std(0)[:5] / outputs.std(0)[0],
    )
