"""kinspace demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.progress import progress

if TYPE_CHECKING:
    from kinspace.server.demo import Demo

__all__ = ["demo_command"]


def demo_command(
    out: Annotated[
        Path, typer.Option("--out", "-o", file_okay=False, help="Run folder of the demonstration.")
    ] = Path("runs/demo"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report too.")] = True,
) -> None:
    """Train on built-in drawings of moths, and serve the page to search them.

    A few minutes on two cores; what is in the folder already is not made again. New drawings to
    drop on the page are in the folder try of the run.
    """
    with user_errors(interrupted="stopped"):
        from kinspace.server import ServerSettings, serve
        from kinspace.server.demo import prepare_demo
        from kinspace.server.launcher import require_server

        require_server("127.0.0.1", port)  # before minutes of work
        with progress() as display:
            demo = prepare_demo(out, with_report=report, status=display.status)
        print_demo(demo)
        serve(
            demo.model,
            address=("127.0.0.1", port),
            settings=ServerSettings(editable=True),
            open_browser=open_browser,
            status=lambda text: typer.echo(text, err=True),
        )


def print_demo(demo: Demo) -> None:
    """Print the result of the training, and the pictures to try with the answers to come."""
    model = demo.model
    for sentence in model.run.verdict:
        typer.echo(sentence)
    if model.thresholds is not None:
        typer.echo(f"known or unknown: {model.thresholds.at()}")
    typer.echo("new drawings to drop on the page, of species in the gallery:")
    for file, verdict in demo.known.items():
        typer.echo(f"  {file}: {verdict.headline}")
    typer.echo("and of species that it does not have:")
    for file, verdict in demo.strangers.items():
        typer.echo(f"  {file}: {verdict.headline}")
    typer.echo(f"on the command line: kinspace search {model.folder} {next(iter(demo.known))}")
