"""Figures: SVG for the page, SVG and PNG files, and their numbers as CSV.

They are made without pyplot, so there are no windows and no global state. The same numbers make the
same bytes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["COLORS", "INK", "Plot", "make_plot"]

INK = "#33383f"  # axes and text; replaced by the color of the page's text in the page
GRID = "#9aa3ad"
COLORS = ("#2f7fd1", "#d9730d", "#7c8794", "#2a9d6f", "#a855c8", "#c7447a")


@dataclass(frozen=True)
class Plot:
    """A figure. alt: its content in words, for the caption and for screen readers."""

    name: str
    title: str
    alt: str
    svg: str
    png: bytes
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def inline(self) -> str:
        """The SVG as part of a page: in the color of its text, with ids of its own."""
        body = self.svg[self.svg.index("<svg") :].replace(INK, "currentColor")
        body = re.sub(r'\bid="', f'id="{self.name}-', body)
        body = re.sub(r'href="#', f'href="#{self.name}-', body)
        body = body.replace("url(#", f"url(#{self.name}-")
        body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        size = r'(<svg[^>]*?) width="[^"]*"([^>]*?) height="[^"]*"|(<svg[^>]*?) height="[^"]*"'
        body = re.sub(size + r'([^>]*?) width="[^"]*"', r"\1\2\3\4", body, count=1)
        return body.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)

    def save(self, folder: Path) -> None:
        """NAME.svg, NAME.png and NAME.csv."""
        (folder / f"{self.name}.svg").write_text(self.svg, encoding="utf-8")
        (folder / f"{self.name}.png").write_bytes(self.png)
        with (folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as lines:
            writer = csv.writer(lines)
            writer.writerow(self.columns)
            writer.writerows(self.rows)


def make_plot(
    name: str,
    title: str,
    alt: str,
    draw: Callable[..., None],
    *,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    size: tuple[float, float] = (5.2, 3.2),
) -> Plot:
    """A figure; draw: a function that draws on the axes it is given.

    >>> plot = make_plot("line", "A line", "It rises.", lambda axes: axes.plot([0, 1]),
    ...     columns=("x",), rows=[(0,), (1,)])
    >>> plot.inline[:4], "currentColor" in plot.inline
    ('<svg', True)
    """
    import matplotlib  # takes a while to import
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.alpha": 0.25,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        svg, png = io.StringIO(), io.BytesIO()
        about: dict[str, Any] = {"Title": title, "Date": None, "Creator": None}
        figure.savefig(svg, format="svg", transparent=True, metadata=about)
        figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    text = "\n".join(line.rstrip() for line in svg.getvalue().splitlines()) + "\n"
    table = tuple(tuple(row) for row in rows)
    return Plot(name, title, alt, text, png.getvalue(), tuple(columns), table)
