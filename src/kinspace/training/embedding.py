"""The embeddings of a whole part of the data by a frozen model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.crops import augmented_views
from kinspace.distributed import gather
from kinspace.models import Embedder
from kinspace.training.data_parts import DataPart

__all__ = ["embed_all"]


@torch.no_grad()
def embed_all(
    model: nn.Module, part: DataPart, *, batch_size: int = 128, views: int = 1, what: str = "test"
) -> Tensor:
    """The embeddings of a whole part by the frozen model, (samples, dim) in float32.

    Several processes embed a share each and have all of them in the end. views: the mean over so
    many random crops instead of the middle one. what: "test", of length 1; "training", as the loss
    sees them; or "features", before the embedding layer. Only an Embedder knows the difference.
    """
    checks.choice("what", what, ("test", "training", "features"))
    embed: Callable[[Tensor], Tensor] = model
    if isinstance(model, Embedder) and what != "test":
        embed = model.features if what == "features" else _as_in_training(model)
    was_training = model.training
    model.eval()
    try:
        if views == 1:
            rows = [embed(batch.images).float() for batch in part.in_order(batch_size)]
        else:
            rows = [
                _over_views(embed, squares, views, part) for squares in part.squares(batch_size)
            ]
    finally:
        model.train(was_training)
    return gather(torch.cat(rows))[0]


def _as_in_training(model: Embedder) -> Callable[[Tensor], Tensor]:
    return lambda inputs: model(inputs, normalize=model.head.normalize)


def _over_views(
    embed: Callable[[Tensor], Tensor], squares: Tensor, views: int, part: DataPart
) -> Tensor:
    assert part.settings is not None
    each = [embed(view).float() for view in augmented_views(squares, views, part.settings)]
    return torch.stack(each).mean(0)
