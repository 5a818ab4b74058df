"""Errors as one line on stderr and an exit code, without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["user_errors"]


@contextmanager
def user_errors(*, interrupted: str = "interrupted") -> Iterator[None]:
    """Exit with code 2 on a ValueError, 1 on an OSError, 130 on Ctrl-C.

    interrupted: the line printed on Ctrl-C.

    >>> try:
    ...     with user_errors():
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
    except KeyboardInterrupt:
        typer.echo(interrupted, err=True)
        raise typer.Exit(130) from None
