"""The command line: one file a command, imported only when the command is called.

Each command parses its options, calls one public Python function and prints what it returns.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from kinspace import __version__

__all__ = ["COMMANDS", "EVERYDAY", "EXIT_CODES", "app", "main"]

EXIT_CODES = (
    "Exit codes: 0 done, 1 a run or the disk failed, 2 invalid input, 3 an error in kinspace, "
    "130 interrupted."
)

# A command NAME is the function NAME_command in NAME.py, with _ for -; its text is the docstring's
# first line.
COMMANDS = {
    "add": "Add pictures to a gallery, of new classes too, without training.",
    "benchmark": "Compare a loss of yours with those of kinspace, all under the same budget.",
    "check": "Check every picture of a data set and list the problems.",
    "compare": "Compare runs: means over seeds and significance tests.",
    "demo": "Train on built-in drawings of moths, and serve the page to search them.",
    "doctor": "Check the installation: versions, devices, extras, weights and a short training.",
    "duplicates": "List pictures that are copies of each other, as CSV.",
    "embed": "Embed pictures into a table of vectors, classes and names.",
    "evaluate": "Evaluate a run on its test part, or a table of vectors.",
    "export": "Export a model to ONNX or a PyTorch program, and compare it with PyTorch.",
    "gallery": "Write a gallery as a static web page that needs no server.",
    "hierarchy": "Train on randomly merged classes and evaluate on the true classes.",
    "index": "Build the search gallery of a run and set its thresholds.",
    "label-errors": "List pictures whose class looks wrong, with the class they look like, as CSV.",
    "list": "List the classes of a gallery, or its pictures.",
    "methods": "List methods and paper settings, or print one with all its options.",
    "relabel": "Give pictures of a gallery another class, or a class another name.",
    "remove": "Remove pictures or a class from a gallery; the files stay where they are.",
    "report": "Write an HTML report on a run or a table of vectors.",
    "reproduce": "Reproduce a table or figure of a paper.",
    "search": "Search a gallery with a picture, or a folder of them, and classify the pictures.",
    "serve": "Serve a gallery as a web page with a JSON API.",
    "train": "Train a model on labeled pictures and evaluate it on unseen classes.",
    "tune": "Search for the best values of a recipe's options.",
}

# From a folder of pictures to a page; the help lists them first.
EVERYDAY = ("check", "train", "report", "index", "search", "serve", "doctor")


class CommandGroup(TyperGroup):
    """A group that lists its commands by COMMANDS alone and imports the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        more = [name for name in COMMANDS if name not in EVERYDAY]
        self.commands = {
            name: TyperCommand(name, help=COMMANDS[name], rich_help_panel=panel)
            for panel, names in (("Everyday", EVERYDAY), ("More", more))
            for name in names
        }

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command; invalid options are one line on stderr and exit code 2."""
        standalone = options.pop("standalone_mode", True)
        options["standalone_mode"] = False
        try:
            code = super().main(*arguments, **options)
        except Exception as error:
            if standalone and type(error).__name__ == "Abort":  # Ctrl-C, in older Typer
                sys.exit(130)
            if not standalone or not hasattr(error, "format_message"):  # not Typer's own
                raise
            _show(error)
            sys.exit(2)
        if not standalone:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The name, the imported command and the arguments left."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, (load_command(name) if name in COMMANDS else command), rest


def load_command(name: str) -> Any:
    """Import a command.

    >>> load_command("train").name
    'train'
    """
    module = name.replace("-", "_")
    function = getattr(import_module(f"kinspace.cli.{module}"), f"{module}_command")
    single = typer.Typer(add_completion=False)
    single.command(name, help=_paragraphs(function), epilog=EXIT_CODES)(function)
    command = get_command(single)
    everyday = getattr(import_module(f"kinspace.cli.{module}"), "EVERYDAY", ())
    for parameter in command.params:
        if everyday and parameter.name not in everyday:
            parameter.rich_help_panel = "Expert options"  # type: ignore[attr-defined]
    return command


def _paragraphs(function: Any) -> str:
    """The docstring, a line a paragraph: the terminal decides where lines end."""
    paragraphs = inspect.cleandoc(function.__doc__).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _show(error: Any) -> None:
    """An error of the command line's own, with where to read on."""
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if context is None:
        typer.echo(text, err=True)
    elif not text or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        where, text = context.command_path, text.rstrip(".")
        mark = "" if text.endswith("?") else ";"
        typer.echo(f"{where}: {text}{mark} {where} --help lists what there is", err=True)


app = typer.Typer(cls=CommandGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kinspace {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _kinspace(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Train, evaluate, search and explain embedding models."""


def main() -> None:
    """Run the command line."""
    try:
        app()
    except Exception:  # noqa: BLE001 - it is shown whole
        traceback.print_exc()
        sys.exit(3)
