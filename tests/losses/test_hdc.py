"""HDC's cascade: what each learner passes on to the next."""

import pytest
import torch

import loops
from gradients import disagreement, evaluate
from kinspace.losses import HDC, hdc_loss

# dimensions, learners, shares, samples a class, margin
CASES = [
    (10, 3, (1.0, 0.5, 0.2), 4, 1.0),
    (10, 4, (1.0, 1.0, 0.9, 0.1), 13, 3.0),
    (9, 1, (1.0,), 3, 1.0),
    (2, 3, (1.0, 0.5, 0.2), 3, 3.0),  # two learners: there are no more dimensions
    (4, 2, (1.0, 0.5), 1, 3.0),
    (4, 2, (1.0, 0.5), 1000, 1.0),
]


@pytest.mark.parametrize(("dim", "groups", "shares", "per_class", "margin"), CASES)
def test_agrees_with_the_loop_whatever_the_learners_and_classes(
    dim: int, groups: int, shares: tuple[float, ...], per_class: int, margin: float
) -> None:
    x = torch.randn(14, dim, generator=torch.Generator().manual_seed(14))
    x[0], x[1] = 0, x[2]
    arguments = {"embeddings": x, "labels": torch.arange(14) // per_class}
    options = {"groups": groups, "shares": shares, "margin": margin}
    expected = evaluate(loops.hdc_loss, arguments, options)
    problem = disagreement(evaluate(hdc_loss, arguments, options), expected)
    assert problem is None, problem
    single = evaluate(hdc_loss, arguments, options, dtype=torch.float32)
    problem = disagreement(single, expected, value=1e-5, gradient=1e-4, gradient_floor=1e-6)
    assert problem is None, problem


def test_a_cascade_passes_on_the_hardest_share_of_the_pairs() -> None:
    """Of six different pairs one fifth is one, for the first learner the nearest two samples."""
    angles = torch.tensor([0.0, 0.1, 0.5, 1.2], dtype=torch.float64)
    first = torch.stack([angles.cos(), angles.sin()], 1)
    second = torch.tensor([[1.0, 0.2], [1.0, 0.3], [1.0, 0.5], [1.0, 0.9]], dtype=torch.float64)
    x = torch.cat([first, second], 1).requires_grad_()
    hdc_loss(x, torch.arange(4), groups=2, shares=(1.0, 0.2)).backward()
    assert x.grad is not None
    assert x.grad[:, :2].any(1).all()
    assert x.grad[:, 2:].any(1).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "shares", [(1.0, 0.5), (0.5, 0.4, 0.3), (1.0, 0.2, 0.5), (1.0, 0.5, 0.0), 0.5, (1.0, 0.5, None)]
)
def test_wrong_shares_are_named(shares: object) -> None:
    with pytest.raises(ValueError, match=r"^shares: expected"):
        HDC(shares=shares)  # type: ignore[arg-type]
