"""The report: one self-contained HTML page, with its figures and numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from kinspace._core.atomic_files import write_atomically, write_json
from kinspace._core.checks import plural
from kinspace.data.validation import CheckResult, check
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.evaluator import EvaluatedTables, EvaluateOptions, evaluate_tables
from kinspace.evaluation.summary import Status
from kinspace.report.contents import contents
from kinspace.report.figures import Plot
from kinspace.report.map import map_data
from kinspace.report.plots import curves, evaluation_plots, map_plot
from kinspace.run import Run

__all__ = ["render", "save_plots", "write_report"]


def write_report(
    source: str | Path | Run | EmbeddingTable,
    data: Any = None,
    *,
    out: str | Path | None = None,
    checked: bool = True,
    **options: Unpack[EvaluateOptions],
) -> Path:
    """Evaluate a run or a table like `evaluate`, and write index.html; returns its path.

    out: the folder, by default RUN/report, or NAME-report beside a table's file. checked: check
    every picture of the data like `kinspace check`. options: those of `evaluate`.
    """
    folder = _folder(source, out)
    status: Status = options.get("status") or (lambda text: None)
    found = evaluate_tables(source, data, **options)
    seed = found.evaluation.seed
    status("drawing the map")
    drawn_map = map_data(found.test, found.pictures.get("test"), seed=seed)
    status("drawing figures")
    plots = evaluation_plots(found.evaluation)
    plots["map"] = map_plot(drawn_map)
    if found.run is not None:
        plots |= curves({found.evaluation.name: found.run.metrics})
    result = None
    if checked and found.pictures and found.splits is not None:
        status("checking the pictures")
        result = check(found.splits.whole)
    status("writing the page")
    folder.mkdir(parents=True, exist_ok=True)
    save_plots(plots, folder)
    write_json(folder / "evaluation.json", found.evaluation.to_dict())
    return _page(found, plots, drawn_map, result, folder)


def _page(
    found: EvaluatedTables,
    plots: dict[str, Plot],
    drawn_map: dict[str, Any],
    result: CheckResult | None,
    folder: Path,
) -> Path:
    text = render("report.html", contents(found, plots, drawn_map, result))
    page = folder / "index.html"
    write_atomically(page, lambda part: part.write_text(text, encoding="utf-8"))
    return page


def _folder(source: Any, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(source, EmbeddingTable):
        raise ValueError("out: expected a folder for the report of a table, got None")
    if isinstance(source, Run):
        return source.folder / "report"
    path = Path(source)
    return path / "report" if path.is_dir() else path.with_name(f"{path.stem}-report")


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
    return pages.get_template(template).render(values)


def _missing(value: Any) -> bool:
    return value is None or not math.isfinite(value)


def _fixed(value: float | None, times: float, digits: int, *, sign: bool = False) -> str:
    if value is None or _missing(value):
        return "-"
    return f"{times * value:{'+' if sign else ''}.{digits}f}"
