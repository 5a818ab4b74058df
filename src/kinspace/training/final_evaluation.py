"""The evaluation at the end of a training: retrieval on the test part, beside two baselines.

    pixels      the pictures themselves, averaged down to 32 x 32
    untrained   the features of the same backbone before the first step
    final       the model after the last step
    selected    the model that was best on the validation classes; the one that is kept

Nothing here is chosen by the test part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from kinspace.evaluation.retrieval import retrieval_by_roles
from kinspace.training.data_parts import DataPart
from kinspace.training.embedding import embed_all

__all__ = ["Pixels", "evaluate_weights"]


class Pixels(nn.Module):
    """The picture as its own embedding, at most `side` pixels wide; other inputs unchanged.

    >>> import torch
    >>> Pixels(2)(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 12])
    """

    def __init__(self, side: int = 32) -> None:
        super().__init__()
        self.side = side

    def forward(self, inputs: Tensor) -> Tensor:
        """One vector a picture."""
        if inputs.ndim == 4 and min(inputs.shape[-2:]) > self.side:
            inputs = nn.functional.adaptive_avg_pool2d(inputs, self.side)
        return inputs.float().flatten(1)


def evaluate_weights(
    model: nn.Module,
    weights: Mapping[str, Mapping[str, Tensor]],
    test: DataPart,
    *,
    pixels: bool = True,
    views: int = 1,
    batch_size: int = 128,
) -> tuple[dict[str, Any], Tensor]:
    """Retrieval measures of each set of weights and of pixels; "untrained" by its features.

    Returns the embeddings of the last set of weights as well.
    """
    found: dict[str, Any] = {}
    if pixels:
        found["pixels"] = _measures(embed_all(Pixels(), test), test)
    for name, state in weights.items():
        model.load_state_dict(dict(state))
        what = "features" if name == "untrained" else "test"
        vectors = embed_all(model, test, batch_size=batch_size, views=views, what=what)
        found[name] = _measures(vectors, test)
    return found, vectors


def _measures(vectors: Tensor, test: DataPart) -> dict[str, Any]:
    labels, roles = test.dataset.labels, test.dataset.parts
    return dict(retrieval_by_roles(vectors, labels.to(vectors.device), roles).scores().summary())
