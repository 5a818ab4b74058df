"""kinspace search RUN PICTURE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Device, IndexedRun, Json, Strangers

if TYPE_CHECKING:
    from kinspace.inference import Neighbor

__all__ = ["search_command"]


def search_command(
    run: IndexedRun,
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="Query picture.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of neighbors.")] = 10,
    strangers: Strangers = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Search a gallery with a picture and classify the picture.

    The class is that whose nearest pictures are the most similar, or unknown if they are not
    similar enough. In a gallery without classes the neighbors alone are printed.
    """
    with user_errors():
        from kinspace.inference import load

        model = load(run, device)
        labeled = model.table.labels is not None
        found = (
            model.classify(picture, k, strangers=strangers) if labeled else model.search(picture, k)
        )
    if as_json and isinstance(found, list):
        typer.echo(json.dumps({"neighbors": [asdict(near) for near in found]}, indent=2))
    elif isinstance(found, list):
        print_neighbors(found)
    elif as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        print_neighbors(found.neighbors)
        Console(markup=False, highlight=False).print(str(found), soft_wrap=True)


def print_neighbors(neighbors: Sequence[Neighbor]) -> None:
    """Print the neighbors as a table; columns that say nothing of this gallery are left out."""
    shown = {
        "similarity": [f"{near.similarity:.3f}" for near in neighbors],
        "class": [near.class_name for near in neighbors],
        "picture": [near.id for near in neighbors],
    }
    shown = {name: cells for name, cells in shown.items() if any(cells)}
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", justify="right")
    for name in shown:
        table.add_column(name, justify="right" if name == "similarity" else "left")
    for place, cells in enumerate(zip(*shown.values(), strict=True), 1):
        table.add_row(str(place), *cells)
    Console(markup=False, highlight=False).print(table)
