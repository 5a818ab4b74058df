"""The templates of the pages, filled, and the files of their figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinspace._core.checks import plural
from kinspace.report.figures import Plot

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["render", "save_plots"]


def save_plots(plots: Mapping[str, Plot], folder: Path) -> None:
    """Write each figure's SVG, PNG and CSV to FOLDER/figures."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for plot in plots.values():
        plot.save(figures)


def render(template: str, values: Mapping[str, Any]) -> str:
    """A page made from one of the templates of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("kinspace.report", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["plural"] = plural
    pages.filters["hundred"] = lambda value: _fixed(value, 100, 1)
    pages.filters["hundred3"] = lambda value: _fixed(value, 100, 3)
    pages.filters["points"] = lambda value: _fixed(value, 100, 1, sign=True)
    pages.filters["number"] = lambda value: "-" if _missing(value) else f"{value:.3g}"
    pages.filters["small"] = lambda value: "-" if _missing(value) else f"{value:.2g}"
    pages.filters["breakable"] = _breakable
    pages.filters["script"] = _script
    return pages.get_template(template).render(values)


def _breakable(name: str) -> Markup:
    """A name that a line may break after an underscore, a slash or a hyphen."""
    from markupsafe import Markup, escape

    parts = re.split(r"(?<=[_/-])", name)
    return Markup("<wbr>").join(escape(part) for part in parts)


def _script(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), default=str)  # str: of a thumbnail
    return Markup(text.replace("<", "\\u003c"))


def _missing(value: Any) -> bool:
    return value is None or not math.isfinite(value)


def _fixed(value: float | None, times: float, digits: int, *, sign: bool = False) -> str:
    if value is None or _missing(value):
        return "-"
    return f"{times * value:{'+' if sign else ''}.{digits}f}"
