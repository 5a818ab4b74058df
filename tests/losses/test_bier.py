"""BIER's boosting: what each learner leaves to the next."""

import torch

from kinspace.losses import bier_loss


def test_boosting_looks_away_from_what_the_learners_before_get_right() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    right = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    wrong = right[[0, 2, 1, 3]]
    second = {}  # what the wrong second learner costs, after each first one
    for name, first in (("right", right), ("wrong", wrong)):
        alone = bier_loss(first, labels, groups=1) / 2
        second[name] = bier_loss(torch.cat([first, wrong], 1), labels, groups=2) - alone
    assert 0 < 10 * second["right"] < second["wrong"]
