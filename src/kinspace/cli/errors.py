"""Errors of the user's making, told in a line or two and without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["told"]


@contextmanager
def told() -> Iterator[None]:
    """Turn a ValueError into its text and exit code 2, a failing disk into exit code 1.

    >>> try:
    ...     with told():
    ...         raise ValueError("expected a folder")
    ... except typer.Exit as error:
    ...     error.exit_code
    2
    """
    try:
        yield
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(where + str(error.strerror or error), err=True)
        raise typer.Exit(1) from None
