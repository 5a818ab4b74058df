"""kinspace search RUN PICTURE."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Device, IndexedRun, Json

if TYPE_CHECKING:
    from kinspace.inference import Verdict

__all__ = ["search_command"]


def search_command(
    run: IndexedRun,
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="Query picture.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of neighbors.")] = 10,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Search a gallery with a picture and classify the picture.

    The class is decided by the votes of the neighbors, or unknown if none is similar enough.
    """
    with user_errors():
        from kinspace.inference import load

        verdict = load(run, device).classify(picture, k)
    if as_json:
        typer.echo(json.dumps(asdict(verdict), indent=2))
    else:
        print_verdict(verdict)


def print_verdict(verdict: Verdict) -> None:
    """Print the neighbors as a table and the class."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "similarity", "class", "picture", "same kind"):
        table.add_column(column, justify="right" if column in ("", "similarity") else "left")
    words = {True: "yes", False: "no", None: ""}
    for place, near in enumerate(verdict.neighbors, 1):
        cells = (str(place), f"{near.similarity:.3f}", near.class_name, near.id, words[near.same])
        table.add_row(*cells)
    console = Console(markup=False, highlight=False)
    console.print(table)
    if verdict.class_name == verdict.best:
        console.print(f"{verdict.class_name}, {verdict.confidence:.0%} of the votes")
    else:
        console.print(f"unknown; the most similar known class is {verdict.best}")
