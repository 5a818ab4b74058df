"""Numbers and lists in words, for messages and pages."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_few", "plural"]


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun; `many` is the plural where it is not `one` with an "s".

    >>> plural(1, "class", "classes"), plural(2000, "picture")
    ('1 class', '2,000 pictures')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def first_few(names: Sequence[str], most: int = 5) -> str:
    """The first names and how many more there are, for an error.

    >>> first_few(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
