"""Docstrings as Markdown: doctests and lines of code as code, lists of options as lists."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

__all__ = ["MarkdownDocstrings", "as_markdown"]

OPTION = re.compile(r"^(?P<names>[a-z_][\w.]*(?:, [a-z_][\w.]*)*): (?P<text>\S.*)$")

COLUMNS = re.compile(r"^(\S.*\S  +\S|   )")  # a row of a table, or the rest of one


def as_markdown(text: str) -> str:
    """The docstring with its code in fences and a list item for each `option: ...`."""
    done: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = paragraph.splitlines()
        if lines and lines[0].startswith(">>>"):
            done.append("\n".join(["```pycon", *lines, "```"]))
        elif _is_code(paragraph):
            done.append("\n".join(["```python", *lines, "```"]))
        elif len(lines) > 1 and all(COLUMNS.match(line) for line in lines):
            done.append("\n".join(f"    {line}" for line in lines))
        elif lines and OPTION.match(lines[0]):
            done.append("\n".join(OPTION.sub(_item, line) for line in lines))
        else:
            done.append(paragraph)
    return "\n\n".join(done)


def _is_code(paragraph: str) -> bool:
    """Whether these are statements of Python that call or assign; prose hardly ever parses."""
    if paragraph.startswith((" ", "`", "-")):
        return False
    try:
        statements = ast.parse(paragraph).body
    except SyntaxError:
        return False
    calls = [s for s in statements if isinstance(s, ast.Expr)]
    return bool(statements) and all(isinstance(s.value, (ast.Call, ast.Subscript)) for s in calls)


def _item(match: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in match["names"].split(", "))
    return f"- {names}: {match['text']}"


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring when it is read."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for each object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
