"""The page that puts runs beside each other."""

from __future__ import annotations

from pathlib import Path

from kinspace import __version__
from kinspace._core.atomic_files import write_atomically, write_json
from kinspace.evaluation.comparison import Comparison
from kinspace.evaluation.summary import MEASURES
from kinspace.report.plots import curves, recall_by_k
from kinspace.report.rendering import render, save_plots
from kinspace.run import Run

__all__ = ["write_comparison"]


def write_comparison(found: Comparison, out: str | Path) -> Path:
    """Write index.html, comparison.json and the figures to a folder; returns the page's path."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    means = {
        group["group"]: {
            key: value["mean"] for key, value in group.items() if key.startswith("recall@")
        }
        for group in found.groups
    }
    plots = {"recall": recall_by_k(means)}
    named = zip(found.runs, found.folders, strict=True)
    plots |= curves({row["run"]: Run(folder).metrics for row, folder in named})
    save_plots(plots, folder)
    write_json(folder / "comparison.json", found.to_dict())
    values = {
        "c": found,
        "plots": plots,
        "measures": [one for one in MEASURES.items() if one[0] in found.groups[0]],
        "version": __version__,
    }
    text = render("comparison.html", values)
    page = folder / "index.html"
    write_atomically(page, lambda part: part.write_text(text, encoding="utf-8"))
    return page
