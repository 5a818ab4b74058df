"""kinspace doctor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Json

if TYPE_CHECKING:
    from kinspace.environment import Part

__all__ = ["doctor_command"]

MARKS = {"good": "ok", "missing": "--", "bad": "!!"}


def doctor_command(
    as_json: Json = False,
    self_test: Annotated[
        bool, typer.Option(help="Train and search for some seconds, in a folder of its own.")
    ] = True,
) -> None:
    """Check the installation: versions, devices, extras, weights and a short training.

    Nothing is fetched and nothing stays on the disk. A line begins with ok, -- (missing, not
    needed) or !! (wrong). The exit code is 1 if something is wrong.
    """
    with user_errors():
        from kinspace.environment import inspect_environment

        found = inspect_environment(
            self_test=self_test, status=(lambda part: None) if as_json else _print
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    elif found.ok:
        typer.echo("kinspace works here")
    else:
        typer.echo("something is wrong: see the lines with !!", err=True)
    raise typer.Exit(0 if found.ok else 1)


def _print(part: Part) -> None:
    advice = f"; {part.advice}" if part.advice else ""
    typer.echo(f"{MARKS[part.state]}  {part.group}, {part.name}: {part.found}{advice}")
