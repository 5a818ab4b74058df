"""The input format of a backbone."""

from __future__ import annotations

from dataclasses import dataclass

from kinspace.data.transforms import Normalization

__all__ = ["Preprocessing"]


@dataclass(frozen=True)
class Preprocessing:
    """Mean and standard deviation of each channel in 0 .. 1, and the side of the square.

    >>> Preprocessing.of(Normalization((0.4, 0.5, 0.6), (0.2, 0.2, 0.2)), 224).size
    224
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int

    @classmethod
    def of(cls, colors: Normalization, size: int, *, in_channels: int = 3) -> Preprocessing:
        """For red, green and blue as given; for another number of channels their average each.

        >>> Preprocessing.of(Normalization((0.4, 0.5, 0.6), (0.2, 0.2, 0.2)), 28, in_channels=1)
        Preprocessing(mean=(0.5,), std=(0.2,), size=28)
        """
        if in_channels == 3:
            return cls(tuple(colors.mean), tuple(colors.std), size)
        # six digits: an average of decimals, not of their binary neighbors
        mean, std = (round(sum(values) / 3, 6) for values in (colors.mean, colors.std))
        return cls((mean,) * in_channels, (std,) * in_channels, size)
