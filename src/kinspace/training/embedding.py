"""The embeddings of a whole part of the data by a frozen model, and their evaluation.

`evaluate_weights` is the evaluation at the end of a training: retrieval on the test part, beside
two baselines.

    pixels      the pictures themselves, averaged down to 32 x 32
    untrained   the features of the same backbone before the first step
    final       the model after the last step
    selected    the model that was best on the validation classes; the one that is kept

Nothing here is chosen by the test part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.transforms import TransformSettings, augmented_views
from kinspace.distributed import gather
from kinspace.evaluation.retrieval import retrieval_by_roles
from kinspace.models import Embedder
from kinspace.models.inference_network import InferenceNetwork, inference_network
from kinspace.training.data_parts import DataPart

__all__ = ["Pixels", "embed_all", "evaluate_weights", "mean_over_views"]


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

    Several processes embed a share each; all return the whole. views: the mean over this number of
    random crops instead of the center crop. what: "test", normalized; "training", as the loss sees
    them; or "features", before the embedding layer. Models other than Embedder have one kind only.
    progress: called with the number of samples done and of all. On a CPU many pictures go through a
    faster network of the same numbers (`kinspace.models.inference_network`).
    """
    checks.choice("what", what, ("test", "training", "features"))
    embed = _CALLS[what] if isinstance(model, Embedder) else None
    count = len(part.dataset)
    if part.device.type == "cpu" and part.settings is not None:
        batch_size = min(batch_size, _CPU_BATCH)
    was_training = model.training
    model.eval()
    try:
        with inference_network(model, pictures=count * views, embed=embed) as network:
            rows: list[Tensor] = []
            for vectors in _embedded(network, part, batch_size, views):
                rows.append(vectors)
                if progress is not None:
                    progress(min(len(rows) * batch_size, count), count)
    finally:
        model.train(was_training)
    return gather(torch.cat(rows))[0]


_CPU_BATCH = 32  # pictures; the memory of larger batches is asked of the system for every batch
_CALLS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "test": lambda model, inputs: model(inputs),
    "training": lambda model, inputs: model(inputs, normalize=model.head.normalize),
    "features": lambda model, inputs: model.features(inputs),
}


def _embedded(
    network: InferenceNetwork, part: DataPart, batch_size: int, views: int
) -> Iterator[Tensor]:
    if views == 1 or part.settings is None:
        for vectors in network.map(batch.images for batch in part.in_order(batch_size)):
            yield vectors.float()
    else:
        for squares in part.squares(batch_size):
            yield mean_over_views(network, squares, views, part.settings)


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
        pictures = replace(test, features=None)
        found["pixels"] = _measures(embed_all(Pixels(), pictures), test)
    for name, state in weights.items():
        model.load_state_dict(dict(state))
        what = "features" if name == "untrained" else "test"
        vectors = embed_all(model, test, batch_size=batch_size, views=views, what=what)
        found[name] = _measures(vectors, test)
    return found, vectors


def _measures(vectors: Tensor, test: DataPart) -> dict[str, Any]:
    labels, roles = test.dataset.labels, test.dataset.parts
    return dict(retrieval_by_roles(vectors, labels.to(vectors.device), roles).scores().summary())
