"""The result of a check as text: tables for a terminal, and facts for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinspace._core.checks import plural
from kinspace.data.validation import CheckResult

__all__ = ["check_facts", "check_table", "check_verdict"]

LISTED = 20  # rows of a table; of the others only the number


def check_table(result: CheckResult) -> RenderableType:
    """The result for a terminal: the numbers, then tables of all problems.

    >>> from rich.console import Console
    >>> from kinspace.data.validation import check
    >>> from kinspace.data.in_memory import digits_dataset
    >>> Console().print(check_table(check(digits_dataset(), workers=1)))  # doctest: +ELLIPSIS
    digits: 1,797 pictures in 10 classes
    ...
    nothing is wrong
    """
    size = plural(result.pictures, "picture")
    if result.classes:
        size += f" in {plural(result.classes, 'class', 'classes')}"
    else:
        size += " without classes"
    parts: list[RenderableType] = [
        Text(f"{result.name}: {size}"),
        _numbers(result),
    ]
    if result.bad:
        rows = [(file.name, file.label, file.reason) for file in result.bad]
        parts.append(_listing(plural(len(rows), "bad file"), ("file", "class", "reason"), rows))
    if result.duplicates:
        parts.append(_duplicates(result))
    for names, title in (
        (result.singletons, "one good picture only"),
        (result.emptied, "no good picture"),
    ):
        if names:
            what = plural(len(names), "class", "classes")
            parts.append(_listing(f"{what} with {title}", ("class",), [[n] for n in names]))
    if result.training:
        parts += ["", Text(result.training)]
    else:
        parts += ["", Text(check_verdict(result))]
    return Group(*parts)


def _numbers(result: CheckResult) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in check_facts(result):
        table.add_row(name, Text(value))
    return table


def check_facts(result: CheckResult) -> Iterator[tuple[str, str]]:
    """The numbers of a check as pairs of name and value.

    >>> from kinspace.data.validation import check
    >>> from kinspace.data.in_memory import digits_dataset
    >>> dict(check_facts(check(digits_dataset(), workers=1)))["pictures a class"]
    '174 to 183, median 181'
    """
    if result.class_sizes is not None:
        smallest, median, largest = result.class_sizes
        yield "pictures a class", f"{smallest:,} to {largest:,}, median {median:,}"
        ratio = f"largest / smallest {largest / smallest:.3g}, " if smallest else ""
        yield "imbalance", f"{ratio}Gini {result.gini:.2f}"
    if result.nested is not None:
        name = result.nested.split("/")[-2]
        yield "nested folders", f"{result.nested} counts to the class {name}, others likewise"
    if result.sizes is not None:
        sizes = result.sizes
        small, middle, large = (
            f"{w} x {h}" for w, h in (sizes.smallest, sizes.median, sizes.largest)
        )
        yield "sizes", f"{small} to {large}, median {middle}"
        yield "width / height", f"{sizes.narrowest:.2f} to {sizes.widest:.2f}"
    yield "stored as", ", ".join(f"{mode} {count:,}" for mode, count in result.modes.items())
    if result.animated:
        yield (
            "several frames",
            f"{plural(result.animated, 'picture')}; only the first frame counts",
        )
    if result.repeats is None:
        yield "duplicates", "not searched for"
    elif result.repeats:
        yield (
            "repeats",
            f"{plural(result.repeats, 'picture')} nearly like another"
            + (" of the same class" if result.classes else ""),
        )


def _duplicates(result: CheckResult) -> RenderableType:
    assert result.duplicates is not None
    rows = [
        (
            "same" if group.exact else "nearly same",
            "\n".join(_first(group.names)),
            "\n".join(_first(group.labels)),
        )
        for group in result.duplicates
    ]
    title = f"{plural(len(rows), 'picture')} in several classes"
    return _listing(title, ("content", "files", "class"), rows)


def _first(words: Sequence[str], most: int = 6) -> list[str]:
    more = [f"and {len(words) - most} more"] if len(words) > most else []
    return [*words[:most], *more]


def _listing(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    table = Table()
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows[:LISTED]:
        table.add_row(*(Text(cell) for cell in row))  # Text: a [name] is no markup
    hidden = len(rows) - LISTED
    more = [Text(f"and {hidden:,} more; --json lists all")] if hidden > 0 else []
    return Group("", Text(title), table, *more)


def check_verdict(result: CheckResult) -> str:
    """The number of problems of each kind in one line.

    >>> from kinspace.data.validation import check
    >>> from kinspace.data.in_memory import digits_dataset
    >>> check_verdict(check(digits_dataset(), workers=1))
    'nothing is wrong'
    """
    wrong = [
        plural(count, one, many)
        for count, one, many in (
            (len(result.bad), "bad file", None),
            (
                len(result.duplicates or ()),
                "picture in several classes",
                "pictures in several classes",
            ),
            (len(result.singletons), "class with one picture", "classes with one picture"),
            (len(result.emptied), "class with none", "classes with none"),
        )
        if count
    ]
    wrong += ["too little to train on"] if result.training else []
    return ", ".join(wrong) if wrong else "nothing is wrong"
