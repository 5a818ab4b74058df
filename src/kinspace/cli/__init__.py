"""The command line. Each command calls one Python function that a user can call too."""

from __future__ import annotations

import typer

from kinspace.cli.check import check_command
from kinspace.cli.compare import compare_command
from kinspace.cli.embed import embed_command
from kinspace.cli.evaluate import evaluate_command
from kinspace.cli.export import export_command
from kinspace.cli.gallery import gallery_command
from kinspace.cli.hierarchy import hierarchy_command
from kinspace.cli.index import index_command
from kinspace.cli.methods import methods_command
from kinspace.cli.report import report_command
from kinspace.cli.reproduce import reproduce_command
from kinspace.cli.search import search_command
from kinspace.cli.serve import serve_command
from kinspace.cli.train import train_command
from kinspace.cli.tune import tune_command

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command("check")(check_command)
app.command("compare")(compare_command)
app.command("embed")(embed_command)
app.command("evaluate")(evaluate_command)
app.command("export")(export_command)
app.command("gallery")(gallery_command)
app.command("hierarchy")(hierarchy_command)
app.command("index")(index_command)
app.command("methods")(methods_command)
app.command("report")(report_command)
app.command("reproduce")(reproduce_command)
app.command("search")(search_command)
app.command("serve")(serve_command)
app.command("train")(train_command)
app.command("tune")(tune_command)


@app.callback()
def _kinspace() -> None:
    """Train, judge, search and explain embedding models."""


def main() -> None:
    """Run the command line."""
    app()
