"""A part of the centers where there are many: no step needs all pairs of 100,000 classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.rng import StepGenerator

__all__ = ["CenterSample", "sample_centers"]


def sample_centers(
    num_centers: int,
    count: int,
    *,
    generator: torch.Generator | None = None,
    include: Tensor | None = None,
) -> Tensor:
    """Indices of min(count, num_centers) different centers, those in `include` first.

    >>> chosen = sample_centers(100, 3, include=torch.tensor([7, 9, 7]))
    >>> len(chosen), {7, 9} <= set(chosen.tolist())
    (3, True)
    """
    keys = torch.rand(
        num_centers,
        generator=generator,
        device=None if generator is None else generator.device,
    )
    if include is not None:
        keys[_centers("include", include, num_centers).to(keys.device)] += 1
    return keys.topk(min(count, num_centers)).indices


def _centers(name: str, index: Tensor, num_centers: int) -> Tensor:
    if index.is_floating_point() or index.dtype == torch.bool or index.ndim != 1:
        raise ValueError(f"{name}: expected a vector of integers, got {index.dtype} {index.shape}")
    if len(index) and index.is_cpu:
        low, high = torch.stack(index.aminmax()).tolist()
        if low < 0 or high >= num_centers:
            raise ValueError(f"{name}: expected 0 .. {num_centers - 1}, got {low} .. {high}")
    return index.long()


class CenterSample(nn.Module):
    """Passes up to max_centers centers on, those of `labels` first; None passes all.

    The sample depends on the seed and on the number of calls in training, both part of the state.

    >>> CenterSample(2)(torch.zeros(5, 3)).shape
    torch.Size([2, 3])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, max_centers: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        if max_centers is not None:
            max_centers = checks.integer("max_centers", max_centers, at_least=2)
        self.max_centers = max_centers
        self.rng = StepGenerator(seed)

    def forward(self, centers: Tensor, labels: Tensor | None = None) -> Tensor:
        checks.vectors("centers", centers)
        if self.max_centers is None or len(centers) <= self.max_centers:
            return centers
        generator = self.rng(centers.device)
        chosen = sample_centers(len(centers), self.max_centers, generator=generator, include=labels)
        return centers.index_select(0, chosen)

    def extra_repr(self) -> str:
        return f"max_centers={self.max_centers}"
