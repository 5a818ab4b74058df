"""A loss with weighted regularizers: what each of them is shown."""

from __future__ import annotations

import pytest
import torch

from kinspace.losses import Contrastive, ProxyAnchor
from kinspace.objective import Objective, Term, make_regularizer
from kinspace.regularizers import REGULARIZERS

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def parts(name: str, scale: float) -> torch.Tensor:
    """A regularizer's value beside a loss, for embeddings of another length."""
    embeddings = scale * torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)  # the same regressors
    module = make_regularizer(name, {}, num_classes=3, dim=4)
    term = Term(name, module, centers="batch")
    return Objective(Contrastive(), [term])(embeddings, LABELS)[1][name]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", REGULARIZERS)
def test_no_regularizer_depends_on_the_length_of_the_embeddings(name: str) -> None:
    torch.testing.assert_close(parts(name, 1.0), parts(name, 36.0))


def test_a_total_is_the_loss_and_the_weighted_regularizers() -> None:
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(4))
    terms = [
        Term("log_exp_spread", make_regularizer("log_exp_spread", {}, num_classes=3), 2.0),
        Term("orthogonal", make_regularizer("orthogonal", {}, num_classes=3), 0.5),
    ]
    total, found = Objective(ProxyAnchor(3, 4), terms)(embeddings, LABELS)
    want = found["loss"] + 2.0 * found["log_exp_spread"] + 0.5 * found["orthogonal"]
    torch.testing.assert_close(total.detach(), want)
