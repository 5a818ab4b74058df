"""Tables on a terminal or in a file, as wide as they are: no path is cut or broken."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.measure import Measurement

__all__ = ["print_whole"]

WIDEST = 10_000  # characters


def print_whole(*parts: RenderableType) -> None:
    """Print tables and texts on stdout without folding; a terminal wraps the lines by itself.

    >>> print_whole("runs/" + "a" * 100 + "/model.onnx")  # doctest: +ELLIPSIS
    runs/aaaaaaaa...aaa/model.onnx
    """
    console = Console(markup=False, highlight=False)
    options = console.options.update(max_width=WIDEST)
    for part in parts:
        text = console.render_str(part) if isinstance(part, str) else part
        width = max(console.width, Measurement.get(console, options, text).maximum)
        console.width, before = width, console.width
        console.print(text, crop=False)
        console.width = before
