"""kinspace methods [NAME]."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["methods_command"]

WIDE = 140  # terminal columns from which on all table columns are shown
RATIOS = {"about": 3, "paper": 2}


def methods_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Method or recipe file to print. Default: list all."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List methods and paper settings, or print one with all its options.

    The output for one method is a recipe file. Save it (kinspace methods nra > mine.toml), edit it,
    and train with it (kinspace train photos/ --method mine.toml).
    """
    with user_errors():
        from kinspace.recipes import describe, describe_as_dict, list_recipes, read_recipe

        if name is not None:
            recipe = read_recipe(name)
            text = json.dumps(describe_as_dict(recipe), indent=2) if as_json else describe(recipe)
            typer.echo(text)
            return
        methods, papers = list_recipes("defaults"), list_recipes("papers")
    if as_json:
        typer.echo(json.dumps([*methods, *papers], indent=2))
    else:
        print_methods(methods, papers)


def print_methods(*sections: Sequence[dict[str, str]]) -> None:
    """Print the recipes as a table with as many columns as fit."""
    console = Console()
    names = ["method", "about", "paper", *(("loss", "sampler") if console.width >= WIDE else ())]
    table = Table(box=None, padding=(0, 2, 0, 0), caption="kinspace methods NAME: all its options")
    for name in names:
        one_line = name in ("method", "loss", "sampler")
        table.add_column(name, overflow="fold", no_wrap=one_line, ratio=RATIOS.get(name))
    for section in sections:
        for row in section:
            table.add_row(*(row[name] for name in names))
        table.add_section()
    console.print(table)
