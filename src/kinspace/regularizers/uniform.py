"""UniformFace's regularizer: the mean of one over the distance of class centers plus one.

    U = mean_{i != j} 1 / (d_ij + 1),   d_ij = ||u_i - u_j||

u are the centers scaled to length 1. The +1 keeps it finite where centers meet.

Duan et al., UniformFace: learning deep equidistributed representation for face recognition, CVPR
2019, Eq. 5. Without the +1 it would be 1/PM_{-1}(d), one over the harmonic mean of the chords.
(The skewed-mean paper says that lambda = -1 gives UniformFace; the sign is wrong and the +1 left
out.)
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.tensor_ops import full_precision, zero_with_grad
from kinspace.regularizers.center_sample import CenterSample
from kinspace.regularizers.hyperspherical_energy import chords

__all__ = ["UniformSpread", "uniform_spread"]


@full_precision
def uniform_spread(centers: Tensor) -> Tensor:
    """UniformFace's mean inverse distance (module docstring); one center alone: 0.

    >>> import torch
    >>> uniform_spread(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
    tensor(0.3333)
    """
    checks.vectors("centers", centers)
    if len(centers) == 1:
        return zero_with_grad(centers)
    return (chords(centers) + 1).reciprocal().mean()


class UniformSpread(nn.Module):
    """`uniform_spread` as a module; max_centers and seed as in `LogExpSpread`.

    >>> import torch
    >>> UniformSpread()(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
    tensor(0.3333)
    """

    __call__: Callable[..., Tensor]
    takes = "centers"

    def __init__(self, *, max_centers: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.sample = CenterSample(max_centers, seed=seed)

    def forward(self, centers: Tensor, labels: Tensor | None = None) -> Tensor:
        return uniform_spread(self.sample(centers, labels))
