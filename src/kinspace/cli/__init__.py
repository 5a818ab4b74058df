"""The command line. Each command calls one Python function that a user can call too."""

from __future__ import annotations

import typer

from kinspace.cli.check import check_command
from kinspace.cli.methods import methods_command
from kinspace.cli.train import train_command

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command("check")(check_command)
app.command("methods")(methods_command)
app.command("train")(train_command)


@app.callback()
def _kinspace() -> None:
    """Train, judge, search and explain embedding models."""


def main() -> None:
    """Run the command line."""
    app()
