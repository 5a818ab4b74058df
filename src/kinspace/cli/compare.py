"""kinspace compare RUN RUN ..."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, Json
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import trusted
from kinspace.cli.tables import print_whole

if TYPE_CHECKING:
    from kinspace.evaluation.comparison import Comparison

__all__ = ["compare_command"]


def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="Run folders.")],
    data: Annotated[str | None, typer.Option(help="The runs' data, if it has moved.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", file_okay=False, help="Folder for a page with figures."),
    ] = None,
    device: Device = None,
    allow_outside: AllowOutside = False,
    as_json: Json = False,
) -> None:
    """Compare runs: means over seeds and significance tests.

    Runs that differ only in their seed are one group.
    """
    with user_errors(), progress() as display:
        from kinspace.evaluation import compare
        from kinspace.report import write_comparison

        found = compare(
            runs, trusted(data, allow_outside=allow_outside), device=device, status=display.status
        )
        page = None if out is None else write_comparison(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=1))
        return
    print_comparison(found)
    if page is not None:
        typer.echo(page)
        print_next(f"open {page} in a browser")
    else:
        print_next(f"kinspace compare {' '.join(map(str, runs))} -o FOLDER, a page with the curves")


def print_comparison(found: Comparison) -> None:
    """Print the groups as a table and the tests as lines."""
    from kinspace.evaluation.summary import MEASURES

    console = Console()
    names = [name for name in ("recall@1", "recall@8", "map@r") if name in found.groups[0]]
    table = Table("recipe", "seeds", box=None, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(f"{MEASURES[name]}, %", justify="right")
    for group in found.groups:
        seeds = ", ".join(str(seed) for seed in group["seeds"])
        table.add_row(group["group"], seeds, *(_cell(group[name]) for name in names))
    print_whole(table)
    if found.differences:
        console.print("what differs:", markup=False)
    lines = [*map(_difference_line, found.differences), *map(_test_line, found.tests)]
    for text in [*lines, *(f"note: {note}" for note in found.notes)]:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _difference_line(found: dict[str, Any]) -> str:
    values = "; ".join(
        f"{group}: {', '.join(map(str, values))}" for group, values in found["values"].items()
    )
    return f"  {found['setting']}  {values}"


def _cell(value: dict[str, float]) -> str:
    spread = f" ± {100 * value['spread']:.1f}" if value["count"] > 1 else ""
    return f"{100 * value['mean']:.1f}{spread}"


def _test_line(test: dict[str, Any]) -> str:
    text = str(test["conclusion"])
    if (by := test["by_seed"]) is not None:
        text += f" By {by['count']} seeds p = {by['p_value']:.2g}."
    return text
