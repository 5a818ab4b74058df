"""kinspace compare RUN RUN ..."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Device, Json
from kinspace.cli.progress import progress
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
    as_json: Json = False,
) -> None:
    """Compare runs: means over seeds and significance tests.

    Runs that differ only in their seed are one group.
    """
    with user_errors(), progress() as display:
        from kinspace.evaluation import compare
        from kinspace.report import write_comparison

        found = compare(runs, data, device=device, status=display.status)
        page = None if out is None else write_comparison(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=1))
        return
    print_comparison(found)
    if page is not None:
        typer.echo(page)


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
    for text in [*map(_test_line, found.tests), *(f"note: {note}" for note in found.notes)]:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _cell(value: dict[str, float]) -> str:
    spread = f" ± {100 * value['spread']:.1f}" if value["count"] > 1 else ""
    return f"{100 * value['mean']:.1f}{spread}"


def _test_line(test: dict[str, Any]) -> str:
    words = [f"{test['first']} - {test['second']}, Recall@1:"]
    if (by := test["by_picture"]) is not None:
        words.append(
            f"{100 * by['difference']:+.1f} points ({100 * by['low']:+.1f} to "
            f"{100 * by['high']:+.1f}), p = {by['p_value']:.2g} by picture"
        )
    else:
        words.append("tested on different pictures")
    if (by := test["by_seed"]) is not None:
        words.append(f"p = {by['p_value']:.2g} by {by['count']} seeds")
    return " ".join(words)
