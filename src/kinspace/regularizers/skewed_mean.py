"""Skewed means of the similarities of class centers: they spread the classes over the sphere.

    R1 = mean_i 1/g log( mean_{j != i} exp(g s_ij) )                  log-exp mean, sharpness g > 0
    R1 = mean_i 1/g log( 1 + sum_{j != i} exp(g (s_ij - margin)) )    with a margin
    R2 = ( mean_{i != j} ((1 + s_ij)/2)^t )^(1/t)                     power mean, power t > 1

s_ij is the cosine of centers i and j. The larger g or t, the more the nearest centers count.

Skewed-mean paper (its file is titled after another paper), Eq. 7-8. Deviations
from print:
- Eq. 8's R1 has a margin inside the exponent, where it only adds a constant; the second form is
  the one in which a margin matters. The mean (Eq. 7) in place of the sum makes R1 the log-exp
  mean it is called, and comparable between numbers of classes.
- A negative cosine has no power mean: hence the map to (1 + s)/2.
- The text says that the farthest pairs are pushed; Eq. 8 weights the nearest. We build Eq. 8.
- Minimizing with g <= 0 or t <= 1 collapses the centers onto one point or two poles: a warning.

MHE and UniformFace are relatives (`hyperspherical_energy`, `uniform`); with d the chords and n the
number of ordered pairs, MHE_s = n PM_{-s}(d)^{-s}, MHE_0 = -n log PM_0(d).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision, log1p_sum_exp, zero_with_grad
from kinspace._core.vectors import off_diagonal, unit
from kinspace.numerics import log_exp_mean, power_mean
from kinspace.regularizers.center_sample import CenterSample

__all__ = ["LogExpSpread", "PowerSpread", "log_exp_spread", "power_spread"]


def _spreading(function: str, most: float) -> checks.Check:
    """The check of a sharpness or power, with a warning where it draws the centers together."""

    def check(name: str, value: Any) -> Any:
        value = checks.number(name, value)
        if not isinstance(value, Tensor) and value <= most:
            warnings.warn(
                f"{function} with {name} {value:g} <= {most:g} collapses the centers onto one or "
                f"two points when minimized; choose a {name} above {most:g}",
                stacklevel=4,
            )
        return value

    return check


@full_precision
@takes_options(sharpness=_spreading("log_exp_spread", 0), margin=checks.or_none(checks.number))
def log_exp_spread(
    centers: Tensor, *, sharpness: float = 8.0, margin: float | None = None
) -> Tensor:
    """R1 (module docstring); one center alone: 0.

    >>> import torch
    >>> log_exp_spread(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor(0.)
    """
    checks.vectors("centers", centers)
    if margin is not None and not isinstance(sharpness, Tensor) and sharpness == 0:
        raise ValueError("sharpness: expected a number other than 0 with a margin, got 0")
    if len(centers) == 1:
        return zero_with_grad(centers)
    if margin is None:
        return log_exp_mean(_cosines(centers), sharpness).mean()
    return log1p_sum_exp((_cosines(centers) - margin) * sharpness).mean() / sharpness


@full_precision
@takes_options(power=_spreading("power_spread", 1))
def power_spread(centers: Tensor, *, power: float = 4.0) -> Tensor:
    """R2 (module docstring); one center alone: 0.

    >>> import torch
    >>> power_spread(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor(0.5000)
    """
    checks.vectors("centers", centers)
    if len(centers) == 1:
        return zero_with_grad(centers)
    # rounding may take a cosine a little below -1
    return power_mean(((1 + _cosines(centers)) / 2).clamp(min=0).flatten(), power)


def _cosines(centers: Tensor) -> Tensor:
    directions = unit(centers)
    return off_diagonal(directions @ directions.T)  # (centers, centers - 1)


class LogExpSpread(nn.Module):
    """`log_exp_spread` as a module.

    max_centers: of more centers than these a sample is taken at each call, the classes of `labels`
    first (`kinspace.regularizers.center_sample`).

    >>> import torch
    >>> LogExpSpread()(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor(0.)
    """

    __call__: Callable[..., Tensor]
    takes = "centers"
    extra_repr = options_repr

    def __init__(
        self,
        *,
        sharpness: float = 8.0,
        margin: float | None = None,
        max_centers: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        keep_options(self, log_exp_spread, sharpness=sharpness, margin=margin)
        self.sample = CenterSample(max_centers, seed=seed)

    def forward(self, centers: Tensor, labels: Tensor | None = None) -> Tensor:
        centers = self.sample(centers, labels)
        return log_exp_spread(centers, **kept_options(self))


class PowerSpread(nn.Module):
    """`power_spread` as a module; max_centers and seed as in `LogExpSpread`.

    >>> import torch
    >>> PowerSpread()(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor(0.5000)
    """

    __call__: Callable[..., Tensor]
    takes = "centers"
    extra_repr = options_repr

    def __init__(
        self, *, power: float = 4.0, max_centers: int | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        keep_options(self, power_spread, power=power)
        self.sample = CenterSample(max_centers, seed=seed)

    def forward(self, centers: Tensor, labels: Tensor | None = None) -> Tensor:
        return power_spread(self.sample(centers, labels), **kept_options(self))
