"""kinspace methods [NAME]."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.recipes import describe, formulas, read_recipe, recipe_names

__all__ = ["methods_command"]

COLUMNS = ("method", "paper", "loss", "sampler", "about")
WIDE = 140  # characters, from which on all columns are shown


def methods_command(
    name: Annotated[
        str | None, typer.Argument(help="A method or a recipe file: all of its options.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods and the papers' settings, or print one with every option and default.

    What is printed for one is a recipe file: kinspace methods nra > mine.toml, change it, and
    kinspace train photos/ --method mine.toml. Exit code 2: there is no such method.
    """
    with told():
        if name is not None:
            _one(name, as_json=as_json)
        elif as_json:
            typer.echo(json.dumps([*_rows("defaults"), *_rows("papers")], indent=2))
        else:
            console = Console()
            console.print(_table(console.width))


def _one(name: str, *, as_json: bool) -> None:
    recipe = read_recipe(name)
    if as_json:
        table = {**recipe.resolved().to_dict(), "formulas": formulas(recipe)}
        typer.echo(json.dumps(table, indent=2))
    else:
        typer.echo(describe(recipe))


def _rows(folder: str) -> list[dict[str, str]]:
    recipes = [read_recipe(name) for name in recipe_names(folder)]
    values = ((r.name, r.source, r.loss.name, r.sampler.name, r.about) for r in recipes)
    return [dict(zip(COLUMNS, row, strict=True)) for row in values]


def _table(width: int) -> Table:
    """As many columns as fit; a narrow window would have one word a line."""
    shown = ["method", "about", "paper", *(("loss", "sampler") if width >= WIDE else ())]
    table = Table(box=None, padding=(0, 2, 0, 0), caption="kinspace methods NAME: all its options")
    for column in shown:
        table.add_column(
            column,
            overflow="fold",
            no_wrap=column in ("method", "loss", "sampler"),
            ratio={"about": 3, "paper": 2}.get(column),
        )
    for folder in ("defaults", "papers"):
        for row in _rows(folder):
            table.add_row(*(row[column] for column in shown))
        table.add_section()
    return table
