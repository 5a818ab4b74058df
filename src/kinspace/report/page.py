"""The report: one self-contained HTML page, with its figures and numbers beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from kinspace._core.atomic_files import write_atomically, write_json
from kinspace.data.validation import CheckResult, check
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.evaluator import (
    EvaluatedTables,
    EvaluateOptions,
    evaluate_tables,
    names_a_run,
)
from kinspace.evaluation.summary import Status
from kinspace.report.contents import contents
from kinspace.report.figures import Plot
from kinspace.report.map import map_data
from kinspace.report.plots import curves, evaluation_plots, map_plot, selection_plot
from kinspace.report.rendering import render, save_plots
from kinspace.report.unlabeled_page import unlabeled_table, write_unlabeled_report
from kinspace.run import Run, open_run

__all__ = ["write_report"]


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
    every picture of the data like `kinspace check`. options: those of `evaluate`. Of pictures
    without classes the page shows the map, neighbors and near-duplicates, and nothing is measured
    that needs classes.
    """
    folder = _folder(source, out)
    if names_a_run(source):
        source = open_run(source)
    if isinstance(source, Run):
        data = source.splits(data)  # opened once
    if (found := unlabeled_table(source, data, options)) is not None:
        return write_unlabeled_report(found, folder, checked=checked, options=options)
    return _labeled_report(source, data, folder, checked, options)


def _labeled_report(
    source: Any, data: Any, folder: Path, checked: bool, options: EvaluateOptions
) -> Path:
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
        if (selection := found.run.selection) is not None and selection["candidates"]:
            plots["selection"] = selection_plot(selection)
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
