"""Pages that are read off the code: the public names, the recipes, the examples."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from docstrings import as_markdown
from repository import ROOT

import kinspace

__all__ = ["api_pages", "example_pages", "recipe_tables"]

NOT_PYTHON = ("cli", "web", "__main__")  # the command line has pages of its own; no public names


def api_pages(documented: Iterable[str] = ()) -> dict[str, str]:
    """A page for each public package; names in `documented` have their place on another page."""
    documented = set(documented)
    pages = {"reference/kinspace.md": _top_page()}
    for name in _public_modules():
        module = import_module(name)
        lines = [f"# {name}", "", _docstring(module), ""]
        for public in sorted(module.__all__, key=str.lower):
            path = f"{name}.{public}"
            if path in documented:
                lines.append(f"- [`{public}`][{path}]")
        lines.append("")
        lines += [
            f"::: {name}.{public}\n"
            for public in module.__all__
            if f"{name}.{public}" not in documented
        ]
        pages[f"reference/{name}.md"] = "\n".join(lines)
    return pages


def _public_modules() -> list[str]:
    """Public modules and packages right below kinspace that list their names."""
    found = []
    for module in pkgutil.iter_modules(kinspace.__path__, "kinspace."):
        short = module.name.rpartition(".")[2]
        if not short.startswith("_") and short not in NOT_PYTHON:
            found.append(module.name)
    found.append("kinspace.compat.pml")
    return sorted(name for name in found if getattr(import_module(name), "__all__", None))


def _top_page() -> str:
    lines = ["# kinspace", "", _docstring(kinspace), "", "| name | |", "| --- | --- |"]
    for name in sorted(kinspace.__all__, key=str.lower):
        value = getattr(kinspace, name)
        if inspect.ismodule(value):
            link, text = f"[`{name}`]({value.__name__}.md)", _docstring(value)
        else:
            link, text = f"`{name}`", _docstring(value) if callable(value) else ""
        lines.append(f"| {link} | {text.splitlines()[0] if text else ''} |")
    lines += ["", "::: kinspace.use_kernels", ""]  # every other name has its page
    return "\n".join(lines)


def _docstring(value: Any) -> str:
    return as_markdown(inspect.getdoc(value) or "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def recipe_tables() -> str:
    """Tables of all recipes: those of methods, and those of settings in print."""
    from kinspace.recipes import list_recipes

    lines = []
    for title, folder in (("The methods", "defaults"), ("Settings in print", "papers")):
        lines += ["", f"## {title}", "", "| recipe | | paper |", "| --- | --- | --- |"]
        for row in list_recipes(folder):
            lines.append(f"| `{row['method']}` | {_cell(row['about'])} | {_cell(row['paper'])} |")
    return "\n".join(lines) + "\n"


def example_pages() -> dict[str, str]:
    """A page for each program in examples/: its text, and the program."""
    listing = ["# Examples", "", "Programs that run as they are, and run in the test suite.", ""]
    pages: dict[str, str] = {}
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix == ".py":
            title, text, code = _program(path)
        elif path.suffix == ".ipynb":
            title, text, code = _notebook(path)
        else:
            continue
        place = f"examples/{path.stem}.md"
        listing.append(f"- [{title.rstrip('.')}]({path.stem}.md): `examples/{path.name}`")
        pages[place] = f"# {title.rstrip('.')}\n\n`examples/{path.name}`\n\n{text}\n\n{code}\n"
    return {"examples/index.md": "\n".join(listing) + "\n", **pages}


def _program(path: Path) -> tuple[str, str, str]:
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or path.stem
    title, _, text = docstring.partition("\n\n")
    code = source.split('"""', 2)[2].strip()
    return " ".join(title.split()), text, f"```python\n{code}\n```"


def _notebook(path: Path) -> tuple[str, str, str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = "".join(cells[0]["source"])
    title, _, text = first.partition("\n")
    body = []
    for cell in cells[1:]:
        source = "".join(cell["source"])
        body.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return title.lstrip("# "), text.strip(), "\n\n".join(body)
