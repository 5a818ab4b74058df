"""MHE: class centers repel each other like charges on the sphere.

    E_s = mean_{i != j} d_ij^-s   (s > 0),   E_0 = mean_{i != j} -log d_ij,   d_ij = ||u_i - u_j||

u are the centers scaled to length 1. Chords below 1e-6 count as 1e-6, without gradient: two centers
in one place have no direction to part in.

Liu et al., Learning towards minimum hyperspherical energy, NeurIPS 2018, Eq. 1 (there a sum). In
power means PM over the n ordered pairs, n E_s = n PM_{-s}(d)^{-s} and n E_0 = -n log PM_0(d). The
skewed-mean paper (Eq. 3) prints the squared distance in place of d.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision, zero_with_grad
from kinspace._core.vectors import euclidean_distances, off_diagonal, unit
from kinspace.regularizers.center_sample import CenterSample

__all__ = ["HypersphericalEnergy", "chords", "hyperspherical_energy"]

SHORTEST = 1e-6


@full_precision
@takes_options(power=checks.at_least(0))
def hyperspherical_energy(centers: Tensor, *, power: float = 1.0) -> Tensor:
    """Hyperspherical energy (module docstring); one center alone: 0.

    Two poles at distance 2:

    >>> import torch
    >>> hyperspherical_energy(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
    tensor(0.5000)
    """
    checks.vectors("centers", centers)
    if len(centers) == 1:
        return zero_with_grad(centers)
    lengths = chords(centers).clamp(min=SHORTEST)
    return (
        -lengths.log().mean()
        if isinstance(power, (int, float)) and power == 0
        else lengths.pow(-power).mean()
    )


def chords(centers: Tensor) -> Tensor:
    """Distances between the unit vectors of different centers, (centers, centers - 1)."""
    return off_diagonal(euclidean_distances(unit(centers)))


class HypersphericalEnergy(nn.Module):
    """`hyperspherical_energy` as a module; max_centers and seed as in `LogExpSpread`.

    >>> HypersphericalEnergy(power=2.0)
    HypersphericalEnergy(
      power=2.0
      (sample): CenterSample(
        max_centers=None
        (rng): StepGenerator(seed=0)
      )
    )
    """

    __call__: Callable[..., Tensor]
    takes = "centers"
    extra_repr = options_repr

    def __init__(
        self, *, power: float = 1.0, max_centers: int | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        keep_options(self, hyperspherical_energy, power=power)
        self.sample = CenterSample(max_centers, seed=seed)

    def forward(self, centers: Tensor, labels: Tensor | None = None) -> Tensor:
        return hyperspherical_energy(self.sample(centers, labels), **kept_options(self))
