"""The Python of a page of documentation or of a notebook, run as a reader would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_page(page: Path, names: dict[str, Any]) -> None:
    """Execute the page's Python blocks from top to bottom in one namespace."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"no Python in {page}"
    for block in blocks:
        # Empty lines in front: an error then names the line of the page.
        above = text.count("\n", 0, block.start(1))
        exec(compile("\n" * above + block[1], str(page), "exec"), names)


def run_notebook(notebook: Path, names: dict[str, Any]) -> None:
    """Execute the notebook's cells of Python from top to bottom in one namespace."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook}, cell {number}", "exec"), names)
