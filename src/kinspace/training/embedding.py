"""The embeddings of a whole part of the data by a frozen model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.crops import augmented_views
from kinspace.data.transforms import TransformSettings
from kinspace.distributed import gather
from kinspace.models import Embedder
from kinspace.training.data_parts import DataPart

__all__ = ["embed_all", "mean_over_views"]


@torch.no_grad()
def embed_all(
    model: nn.Module,
    part: DataPart,
    *,
    batch_size: int = 128,
    views: int = 1,
    what: str = "test",
    progress: Callable[[int, int], object] | None = None,
) -> Tensor:
    """The embeddings of a whole part by the model in eval mode, (samples, dim) in float32.

    Several processes embed a share each; all return the whole. views: the mean over so many random
    crops instead of the center crop. what: "test", normalized; "training", as the loss sees them;
    or "features", before the embedding layer. Models other than Embedder have one kind only.
    progress: called with the number of samples done and of all.
    """
    checks.choice("what", what, ("test", "training", "features"))
    embed: Callable[[Tensor], Tensor] = model
    if isinstance(model, Embedder) and what != "test":
        embed = model.features if what == "features" else _as_in_training(model)
    was_training = model.training
    model.eval()
    try:
        rows: list[Tensor] = []
        for vectors in _embedded(embed, part, batch_size, views):
            rows.append(vectors)
            if progress is not None:
                progress(min(len(rows) * batch_size, len(part.dataset)), len(part.dataset))
    finally:
        model.train(was_training)
    return gather(torch.cat(rows))[0]


def _as_in_training(model: Embedder) -> Callable[[Tensor], Tensor]:
    return lambda inputs: model(inputs, normalize=model.head.normalize)


def _embedded(
    embed: Callable[[Tensor], Tensor], part: DataPart, batch_size: int, views: int
) -> Iterator[Tensor]:
    if views == 1 or part.settings is None:
        for batch in part.in_order(batch_size):
            yield embed(batch.images).float()
    else:
        for squares in part.squares(batch_size):
            yield mean_over_views(embed, squares, views, part.settings)


def mean_over_views(
    embed: Callable[[Tensor], Tensor], squares: Tensor, views: int, settings: TransformSettings
) -> Tensor:
    """The mean embedding over random crops of whole squares; the same crops for every picture.

    >>> squares = torch.zeros(5, 3, 8, 8, dtype=torch.uint8)
    >>> settings = TransformSettings(size=6, resize=8)
    >>> mean_over_views(lambda images: images.mean((2, 3)), squares, 4, settings).shape
    torch.Size([5, 3])
    """
    each = [embed(view).float() for view in augmented_views(squares, views, settings)]
    return torch.stack(each).mean(0)
