"""The page of pictures without classes: map, nearest neighbors, near-duplicates, structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinspace import __version__
from kinspace._core.atomic_files import write_atomically, write_json
from kinspace._core.checks import plural
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import Pictures
from kinspace.data.validation import check
from kinspace.data.validation_report import check_facts, check_verdict
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.data_problems import duplicate_pairs
from kinspace.evaluation.evaluator import EvaluateOptions, files_of
from kinspace.evaluation.geometry import spectrum, uniformity
from kinspace.evaluation.similarity import nearest
from kinspace.evaluation.summary import Status, plain
from kinspace.inference.run_embeddings import RunEmbeddings
from kinspace.report.contents import duplicate_rows, map_contents, run_facts
from kinspace.report.map import map_data
from kinspace.report.plots import map_plot
from kinspace.report.plots import spectrum as spectrum_plot
from kinspace.report.rendering import render, save_plots
from kinspace.run import Run, Splits
from kinspace.web import Thumbnails

__all__ = ["UnlabeledTable", "unlabeled_table", "write_unlabeled_report"]

EXAMPLES, NEAREST = 10, 6  # pictures drawn, and the neighbors of each


@dataclass(frozen=True, eq=False)
class UnlabeledTable:
    """Vectors without classes, and what is known of them; pictures in the order of the rows."""

    name: str
    table: EmbeddingTable
    pictures: Pictures | None = None
    run: Run | None = None
    splits: Splits | None = None
    notes: list[str] = field(default_factory=list)


def unlabeled_table(
    source: str | Path | Run | EmbeddingTable, data: Any, options: EvaluateOptions
) -> UnlabeledTable | None:
    """The table to report on if its pictures have no classes; None if they have some.

    The arguments are those of `write_report`, and data the splits of a run.
    """
    name = options.get("name")
    if isinstance(source, Run):
        splits = source.splits(data)
        if splits.test.labeled:
            return None
        status: Status = options.get("status") or (lambda text: None)
        device, module = options.get("device"), options.get("model")
        made = RunEmbeddings(source, splits, device=device, module=module, status=status)
        pictures = splits.test.pictures
        return UnlabeledTable(
            name or source.folder.resolve().name,
            made.table("test"),
            None if isinstance(pictures, SampleInputs) else pictures,
            source,
            splits,
            list(splits.notes),
        )
    table = source if isinstance(source, EmbeddingTable) else EmbeddingTable.load(source)
    if table.labels is not None or data is not None:
        return None
    stem = "embeddings" if isinstance(source, EmbeddingTable) else Path(source).stem
    return UnlabeledTable(name or stem, table, files_of(table).get("test"))


def write_unlabeled_report(
    found: UnlabeledTable, folder: Path, *, checked: bool, options: EvaluateOptions
) -> Path:
    """Write index.html, evaluation.json and the figures to a folder; returns the page's path."""
    status: Status = options.get("status") or (lambda text: None)
    seed, table = options.get("seed", 0), found.table
    if len(table) < 2:
        raise ValueError("vectors: expected at least two, to be one another's neighbors")
    vectors = torch.from_numpy(table.vectors)
    status("looking for near-duplicates")
    problems = duplicate_pairs(table, vectors, found.notes)
    geometry: dict[str, Any] = {"uniformity": uniformity(vectors)}
    try:
        geometry |= spectrum(vectors)
    except ValueError:
        found.notes.append("all vectors are the same")
    status("drawing the map")
    drawn_map = map_data(table, found.pictures, seed=seed)
    plots = {"map": map_plot(drawn_map)}
    if "shares" in geometry:
        plots["spectrum"] = spectrum_plot(geometry)
    result = None
    if checked and found.splits is not None and found.pictures is not None:
        status("checking the pictures")
        result = check(found.splits.whole)
    status("writing the page")
    about = {} if found.run is None else found.run.about
    pictures, thumbnails = {"test": found.pictures} if found.pictures else {}, Thumbnails()
    values = {
        "title": found.name,
        "data": about.get("data", "vectors"),
        "backbone": _backbone(about),
        "summary": _summary(found, problems),
        "tiles": list(_tiles(found, problems, geometry)),
        "notes": found.notes,
        "map": map_contents(drawn_map),
        "neighbors": _neighbors(found, seed, thumbnails),
        "problems": problems,
        "duplicates": duplicate_rows(problems, pictures, thumbnails),
        "geometry": geometry,
        "plots": plots,
        "facts": list(_facts(found, seed)),
        "check": None
        if result is None
        else [("result", check_verdict(result)), *check_facts(result)],
        "skipped": about.get("skipped", []),
        "version": __version__,
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_plots(plots, folder)
    measured = {"name": found.name, "pictures": len(table), "notes": found.notes}
    write_json(folder / "evaluation.json", plain(measured | {"geometry": geometry} | problems))
    page = folder / "index.html"
    text = render("unlabeled.html", values)
    write_atomically(page, lambda part: part.write_text(text, encoding="utf-8"))
    return page


def _backbone(about: dict[str, Any]) -> str | None:
    model = about.get("model")
    return None if model is None or isinstance(model, str) else str(model["backbone"]["name"])


def _summary(found: UnlabeledTable, problems: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{plural(len(found.table), 'picture')} without classes: the page shows what is similar; "
        "how often that is right cannot be measured."
    )
    if count := problems["duplicate_count"]:
        yield f"{plural(count, 'pair')} of pictures are almost the same."


def _tiles(
    found: UnlabeledTable, problems: dict[str, Any], geometry: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    yield f"{len(found.table):,}", "pictures"
    yield f"{found.table.dim:,}", "dimensions"
    yield f"{problems['duplicate_count']:,}", "near-duplicates"
    if "effective_rank" in geometry:
        yield f"{geometry['effective_rank']:.0f}", "effective rank"


def _neighbors(
    found: UnlabeledTable, seed: int, thumbnails: Thumbnails
) -> list[list[dict[str, Any]]]:
    """Pictures drawn at random, each followed by its nearest."""
    table = found.table
    rows = np.sort(np.random.default_rng(seed).permutation(len(table))[:EXAMPLES])
    vectors = torch.from_numpy(table.vectors)
    cosines, near = nearest(vectors[rows], min(NEAREST + 1, len(table)), gallery=vectors)
    shown = []
    for row, others, values in zip(rows.tolist(), near.tolist(), cosines.tolist(), strict=True):
        pairs = [(j, v) for j, v in zip(others, values, strict=True) if j != row][:NEAREST]
        shown.append(
            [
                {
                    "id": table.ids[i],
                    "uri": found.pictures and thumbnails.add(found.pictures, i),
                    "similarity": value,
                }
                for i, value in [(row, None), *pairs]
            ]
        )
    return shown


def _facts(found: UnlabeledTable, seed: int) -> Iterator[tuple[str, str]]:
    yield "pictures", f"{len(found.table):,}"
    yield "dimensions", f"{found.table.dim:,}"
    if found.run is None:
        yield "seed", f"{seed} (of the map)"
    else:
        yield from run_facts(found.run)
