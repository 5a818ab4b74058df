"""From a part of a data set to its batches, in training order and in its own order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.cache import PictureCache
from kinspace.data.crops import augmented_views
from kinspace.data.dataloader import Batch, CachedLoader, IndexBatches, PictureLoader, in_order
from kinspace.data.dataset import Dataset
from kinspace.data.transforms import TransformSettings, eval_transform, train_transform
from kinspace.distributed import gather, rank, world_size
from kinspace.models import Embedder

__all__ = ["Feed", "embed_all"]


@dataclass(frozen=True, eq=False)
class Feed:
    """A part of the data and how it is read: from a cache, or from its files by workers.

    settings: None for inputs that are tensors already, which are passed on as they are.
    """

    dataset: Dataset
    settings: TransformSettings | None
    device: torch.device
    cache: PictureCache | None = None
    workers: int = 0
    channels_last: bool = False

    def part(self, dataset: Dataset) -> Feed:
        """The feed of a part of this one's data set, out of the same cache."""
        cache = None if self.cache is None else self.cache.part(dataset, self.dataset)
        return replace(self, dataset=dataset, cache=cache)

    def batches(
        self, batches: IndexBatches, *, train: bool, seed: int = 0
    ) -> CachedLoader | PictureLoader:
        """The loader for these batches of indices."""
        if self.cache is not None and self.settings is not None:
            return CachedLoader(
                self.cache,
                batches,
                self.settings,
                train=train,
                device=self.device,
                channels_last=self.channels_last,
                seed=seed,
            )
        transform: Any = None
        if self.settings is not None:
            transform = (train_transform if train else eval_transform)(self.settings)
        return PictureLoader(
            self.dataset, batches, transform, workers=self.workers, device=self.device, seed=seed
        )

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """This process's share of all samples, a contiguous run of them."""
        yield from self.batches(self._mine(batch_size), train=False)

    def squares(self, batch_size: int) -> Iterator[Tensor]:
        """The same share as whole uint8 squares on the device, out of the cache."""
        assert self.cache is not None  # `Parts.require_views` has said so
        for batch in self._mine(batch_size):
            yield self.cache.squares(batch).to(self.device)

    def _mine(self, batch_size: int) -> list[list[int]]:
        return in_order(len(self.dataset), batch_size, rank=rank(), world_size=world_size())


@torch.no_grad()
def embed_all(
    model: nn.Module, feed: Feed, *, batch_size: int = 128, views: int = 1, what: str = "test"
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
            rows = [embed(batch.images).float() for batch in feed.in_order(batch_size)]
        else:
            rows = [
                _over_views(embed, squares, views, feed) for squares in feed.squares(batch_size)
            ]
    finally:
        model.train(was_training)
    return gather(torch.cat(rows))[0]


def _as_in_training(model: Embedder) -> Callable[[Tensor], Tensor]:
    return lambda inputs: model(inputs, normalize=model.head.normalize)


def _over_views(
    embed: Callable[[Tensor], Tensor], squares: Tensor, views: int, feed: Feed
) -> Tensor:
    assert feed.settings is not None
    each = [embed(view).float() for view in augmented_views(squares, views, feed.settings)]
    return torch.stack(each).mean(0)
