"""Attribute columns of a table: words and numbers as values in 0 .. 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kinspace.data.dataset import Attributes, natural_order

__all__ = ["MOST_WORDS", "parse_attributes"]

MOST_WORDS = 256  # a column with more different words is text, not an attribute


def parse_attributes(columns: Mapping[str, Sequence[str]], *, where: str) -> Attributes | None:
    """The columns as numbers: one for a column of numbers, one per word for a column of words.

    >>> parse_attributes({"size": ["0.5", "1"], "color": ["red", "blue"]}, where="table")
    Attributes(names=('size', 'color=blue', 'color=red'), values=tensor([[0.5000, 0.0000, 1.0000],
            [1.0000, 1.0000, 0.0000]]))
    """
    names: list[str] = []
    values: list[Tensor] = []
    for name, cells in columns.items():
        numbers = _numbers(cells)
        if numbers is not None:
            names.append(name)
            values.append(_in_range(name, numbers, where))
            continue
        for word in _words(name, cells, where):
            names.append(f"{name}={word}")
            values.append(torch.tensor([float(cell == word) for cell in cells]))
    return Attributes(tuple(names), torch.stack(values, dim=1)) if names else None


def _numbers(cells: Sequence[str]) -> list[float] | None:
    """The cells as numbers, if they all are; an empty cell makes them words."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return None


def _in_range(name: str, numbers: list[float], where: str) -> Tensor:
    for row, number in enumerate(numbers):
        if not 0 <= number <= 1:
            raise ValueError(
                f"{where}: column {name!r}: expected numbers from 0 to 1, or words, got "
                f"{number:g} for picture {row + 1}; scale the numbers, or write words for them "
                "(size 3 as 'large')"
            )
    return torch.tensor(numbers, dtype=torch.float32)


def _words(name: str, cells: Sequence[str], where: str) -> list[str]:
    words = sorted(set(cells) - {""}, key=natural_order)
    if len(words) > MOST_WORDS:
        raise ValueError(
            f"{where}: column {name!r}: expected an attribute, numbers from 0 to 1 or at most "
            f"{MOST_WORDS} different words, got {len(words)} words; remove the column, or name "
            "the columns to take: from_table(file, attributes=[...])"
        )
    numeric = [word for word in words if _numbers([word]) is not None]
    if numeric and len(numeric) == len(words) and "" in cells:
        raise ValueError(
            f"{where}: column {name!r}: expected a number from 0 to 1 in every row, got "
            f"{list(cells).count('')} empty cells; fill them, or write words"
        )
    return words
