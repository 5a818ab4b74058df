"""A page for each command of the command line, read off the annotations of its function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo

from kinspace.cli import COMMANDS, EXIT_CODES

__all__ = ["command_pages"]

WORDS = {str: "TEXT", int: "INTEGER", float: "FLOAT", Path: "PATH", bool: ""}


@dataclass(frozen=True)
class Parameter:
    """An argument or an option of a command."""

    argument: bool
    names: str  # "--out, -o PATH"
    help: str
    default: str
    panel: str


def command_pages() -> dict[str, str]:
    """A page for each command, and one that lists them."""
    listing = ["# Commands", "", "`kinspace NAME --help` prints what these pages say.", ""]
    listing += ["| command | |", "| --- | --- |"]
    listing += [f"| [`kinspace {name}`]({name}.md) | {text} |" for name, text in COMMANDS.items()]
    listing += ["", EXIT_CODES, ""]
    pages = {"commands/index.md": "\n".join(listing)}
    for name in COMMANDS:
        pages[f"commands/{name}.md"] = _page(name)
    return pages


def _page(name: str) -> str:
    module = name.replace("-", "_")
    function = getattr(import_module(f"kinspace.cli.{module}"), f"{module}_command")
    parameters = _parameters(function)
    arguments = [p for p in parameters if p.argument]
    options = [p for p in parameters if not p.argument]
    usage = " ".join(["kinspace", name, "[OPTIONS]", *(a.names for a in arguments)])
    lines = [f"# kinspace {name}", "", f"    {usage}", "", inspect.getdoc(function) or "", ""]
    if arguments:
        lines += ["| argument | |", "| --- | --- |"]
        lines += [f"| `{a.names}` | {_cell(a.help)} |" for a in arguments] + [""]
    for panel in dict.fromkeys(option.panel for option in options):
        lines += [f"## {panel}", ""] if panel else []
        lines += ["| option | | default |", "| --- | --- | --- |"]
        rows = (option for option in options if option.panel == panel)
        lines += [f"| `{o.names}` | {_cell(o.help)} | {o.default} |" for o in rows] + [""]
    return "\n".join(lines)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if not hasattr(hint, "__metadata__") or getattr(hint.__metadata__[0], "hidden", False):
            continue  # typer's own context, or an option that help does not show
        info, value = hint.__metadata__[0], parameter.default
        argument = isinstance(info, ArgumentInfo)
        names = _argument(parameter, info) if argument else _option(parameter, hint, info)
        plain = value is parameter.empty or value is None or isinstance(value, bool)
        default = "" if plain else f"`{value}`"
        panel = info.rich_help_panel or ""
        found.append(Parameter(argument, names, info.help or "", default, panel))
    return found


def _argument(parameter: inspect.Parameter, info: Any) -> str:
    name = info.metavar or parameter.name.upper()
    return name if parameter.default is parameter.empty else f"[{name}]"


def _option(parameter: inspect.Parameter, hint: Any, info: Any) -> str:
    """Names and kind of value; without names of its own an option is called as its parameter."""
    given = (info.default, *(info.param_decls or ()))
    names = [name for name in given if isinstance(name, str) and name.startswith("-")]
    kinds = _kinds(hint.__origin__)
    if not names:
        own = parameter.name.replace("_", "-")
        names = [f"--{own}", f"--no-{own}"] if kinds == [bool] else [f"--{own}"]
    metavar = info.metavar or next((WORDS[kind] for kind in kinds if kind in WORDS), "VALUE")
    return f"{', '.join(names)} {metavar}".rstrip()


def _kinds(hint: Any) -> list[Any]:
    """The types in a hint, str of list[str] | None."""
    inner = typing.get_args(hint)
    return [kind for part in inner for kind in _kinds(part)] if inner else [hint]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
