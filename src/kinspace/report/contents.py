"""The values that the template of a report shows: texts, rows and small pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import numpy as np

from kinspace import __version__
from kinspace._core.checks import plural
from kinspace.data.pictures import Pictures
from kinspace.data.validation import CheckResult
from kinspace.data.validation_report import check_facts, check_verdict
from kinspace.evaluation.evaluator import EvaluatedTables
from kinspace.evaluation.summary import MEASURES, Evaluation
from kinspace.report.advice import advise, tiles
from kinspace.report.boundary import boundary
from kinspace.report.figures import Plot
from kinspace.report.plots import LABELS
from kinspace.report.retrieval_examples import RetrievalExample, retrieval_examples
from kinspace.report.verdict import verdict
from kinspace.run import Run
from kinspace.search.gallery_tables import csv_text
from kinspace.web import Thumbnail, Thumbnails, map_script

__all__ = ["contents", "duplicate_rows", "map_contents", "run_facts"]

SHOWN = 12  # suspects, duplicates and hidden groups, each with pictures
NEIGHBORS = 8  # of a query in an example
SUSPECT_COLUMNS = ("id", "class", "suggested", "own", "other")
ROWS = 200  # classes in the table; the files beside the page have all
EXAMPLES = {"best": "Best", "typical": "Typical", "worst": "Worst"}


def contents(
    found: EvaluatedTables,
    plots: dict[str, Plot],
    drawn_map: dict[str, Any],
    check: CheckResult | None,
) -> dict[str, Any]:
    """The names that the template uses."""
    thumbnails = Thumbnails()
    evaluation, about = found.evaluation, found.run.about if found.run else {}
    classes = about.get("classes", {})
    unseen = (
        found.splits is not None
        and found.splits.train is not None
        and not set(classes["train"]) & set(classes.get("test", classes["train"]))
    )
    rows, facts = _classes(evaluation), _training_facts(found.run)
    whole = found.pictures.get("all", found.pictures.get("test"))
    limits = boundary(
        found.thresholds,
        found.calibrated,
        whole,
        thumbnails,
        found.run.trained_classes if found.run else (),
    )
    shown = _shown(found, thumbnails, kept=facts.get("kept", False))
    return shown | {
        "e": evaluation,
        "title": evaluation.name,
        "data": about.get("data", "vectors"),
        "method": about.get("recipe", {}).get("name"),
        "verdict": verdict(
            evaluation,
            unseen=unseen,
            trained=facts.get("trained", True),
            kept=facts.get("kept", False),
        ),
        "advice": advise(evaluation, facts),
        "tiles": list(tiles(evaluation, kept=facts.get("kept", False))),
        "boundary": limits,
        "measures": [one for one in MEASURES.items() if one[0] in evaluation.retrieval["model"]],
        "labels": LABELS,
        "plots": plots,
        "map": map_contents(drawn_map),
        "confused": evaluation.problems["confused"][:SHOWN],
        "classes": rows[:ROWS],
        "classes_title": _classes_title(len(rows)),
        "by_attribute": sorted(
            evaluation.by_attribute.items(), key=lambda item: item[1]["recall@1"]
        )[:ROWS],
        "suspects_csv": _suspects_csv(found),
        "of_run": found.run is not None,
        "warnings": [row for row in (found.run.metrics if found.run else []) if "warning" in row],
        "selection": found.run.selection if found.run else None,
        "facts": list(_facts(found)),
        "check": None if check is None else [("result", check_verdict(check)), *check_facts(check)],
        "skipped": about.get("skipped", []),
        "recipe": _recipe(found),
        "version": __version__,
    }


def _shown(found: EvaluatedTables, thumbnails: Thumbnails, *, kept: bool) -> dict[str, Any]:
    """The parts with pictures."""
    return {
        "examples": _examples(found, thumbnails, kept=kept),
        "suspects": _suspects(found, thumbnails),
        "duplicates": duplicate_rows(found.evaluation.problems, found.pictures, thumbnails),
        "hidden": _hidden(found, thumbnails),
    }


def map_contents(drawn_map: dict[str, Any]) -> dict[str, Any]:
    """What the template of the map shows."""
    return {"data": drawn_map, "note": _map_note(drawn_map), "script": map_script()}


def _map_note(data: dict[str, Any]) -> str:
    if len(data["ids"]) < data["of"]:
        return f"A random {len(data['ids']):,} of {data['of']:,} pictures, placed by t-SNE."
    pictures = plural(data["of"], "picture")
    colors = " Colors show the class." if data["names"] else ""
    return f"All {pictures}, placed by t-SNE.{colors}"


def _classes_title(count: int) -> str:
    if count > ROWS:
        return f"The {ROWS} weakest of {count:,} classes"
    return f"{plural(count, 'class', 'classes')}, weakest first"


def _training_facts(run: Run | None) -> dict[str, Any]:
    """What the advice has to know of a run."""
    if run is None:
        return {}
    results = run.results
    kept = run.trained and bool(results) and results["selected_step"] == 0
    last = bool(results) and results["steps"] > 0 and results["selected_step"] == results["steps"]
    chosen = any("recall@1" in row for row in run.metrics)  # else the last step is no choice
    return {"trained": run.trained, "kept": kept, "unfinished": run.trained and last and chosen}


def _classes(e: Evaluation) -> list[dict[str, Any]]:
    rows = [row | e.by_class[row["class"]] for row in e.geometry["classes"]]
    return sorted(rows, key=lambda row: (row["recall@1"], -row["count"], row["class"]))


def _added(thumbnails: Thumbnails, pictures: Pictures | None, index: int) -> Thumbnail | None:
    """A small picture as a part of the page; None where there are no pictures."""
    return None if pictures is None else thumbnails.add(pictures, index)


def _examples(
    found: EvaluatedTables, thumbnails: Thumbnails, *, kept: bool
) -> list[dict[str, Any]]:
    before = None if kept else found.tables.get("untrained")
    examples = retrieval_examples(found.test, before, seed=found.evaluation.seed)
    groups = []
    for kind, title in EXAMPLES.items():
        some = [_example(found, thumbnails, one) for one in examples if one.kind == kind]
        if some:
            groups.append({"title": title, "examples": some})
    return groups


def _example(
    found: EvaluatedTables, thumbnails: Thumbnails, example: RetrievalExample
) -> dict[str, Any]:
    table, before = found.test, example.before or (None, None)
    assert table.labels is not None
    pictures = []
    for role, mark, row, earlier, after in (
        ("query", "", example.query, None, None),
        ("same class", "yes", example.positive, before[0], example.after[0]),
        ("other class", "no", example.negative, before[1], example.after[1]),
    ):
        label = table.class_name(int(table.labels[row]))
        words = {"role": role, "mark": mark, "id": table.ids[row], "class": label}
        uri = _added(thumbnails, found.pictures.get("test"), row)
        pictures.append({**words, "uri": uri, "before": earlier, "after": after})
    margin = example.after[0] - example.after[1]
    return {
        "pictures": pictures,
        "right": margin > 0,
        "near": _near(found, thumbnails, example.query),
        "margin": margin,
        "before": example.before,
        "margin_before": None if example.before is None else example.before[0] - example.before[1],
    }


def _near(found: EvaluatedTables, thumbnails: Thumbnails, query: int) -> list[dict[str, Any]]:
    """The most similar pictures of a query, nearest first; none without pictures."""
    table = found.test
    assert table.labels is not None
    if "test" not in found.pictures:
        return []
    lengths = np.maximum(np.linalg.norm(table.vectors, axis=1), 1e-30)
    cosines = table.vectors @ table.vectors[query] / lengths
    cosines[query] = -np.inf
    nearest = np.argsort(-cosines, kind="stable")[: min(NEIGHBORS, len(table) - 1)]
    return [
        {
            "uri": thumbnails.add(found.pictures["test"], row, side=96),
            "class": table.class_name(int(table.labels[row])),
            "same": bool(table.labels[row] == table.labels[query]),
        }
        for row in nearest.tolist()
    ]


def _suspects(found: EvaluatedTables, thumbnails: Thumbnails) -> list[dict[str, Any]]:
    """Each with the nearest picture of the class that is suggested."""
    table, pictures = found.test, found.pictures.get("test")
    assert table.labels is not None
    lengths = np.linalg.norm(table.vectors, axis=1)
    listed = []
    for one in found.evaluation.problems["suspects"][:SHOWN]:
        names = [table.class_name(label) == one["suggested"] for label in table.labels.tolist()]
        places = np.flatnonzero(names)
        dots = table.vectors[places] @ table.vectors[one["index"]]
        near = int(places[np.argmax(dots / np.maximum(lengths[places], 1e-30))])
        uris = [_added(thumbnails, pictures, row) for row in (one["index"], near)]
        listed.append(one | {"uri": uris[0], "example": uris[1]})
    return listed


def _suspects_csv(found: EvaluatedTables) -> str:
    """All suspect labels as an address: a table as `kinspace label-errors` writes it."""
    rows = found.evaluation.problems["suspects"]
    text = csv_text(
        [{name: row[name] for name in SUSPECT_COLUMNS} for row in rows], SUSPECT_COLUMNS
    )
    return "data:text/csv;charset=utf-8," + quote(text)


def duplicate_rows(
    problems: Mapping[str, Any], pictures: Mapping[str, Pictures], thumbnails: Thumbnails
) -> list[dict[str, Any]]:
    """The near-duplicates, each with its two pictures."""
    first, second = pictures.get("test"), pictures.get(problems["duplicates_within"])
    return [
        one
        | {
            "first_uri": _added(thumbnails, first, one["first"]),
            "second_uri": _added(thumbnails, second, one["second"]),
        }
        for one in problems["duplicates"][:SHOWN]
    ]


def _hidden(found: EvaluatedTables, thumbnails: Thumbnails) -> list[dict[str, Any]]:
    listed = found.evaluation.problems["hidden"][:SHOWN]
    if (pictures := found.pictures.get("test")) is None:
        return [one | {"rows": []} for one in listed]

    def strip(group: list[int]) -> list[Thumbnail]:
        return [thumbnails.add(pictures, i, side=64) for i in group]

    return [one | {"rows": [strip(group) for group in one["indices"][:4]]} for one in listed]


def _recipe(found: EvaluatedTables) -> str | None:
    file = None if found.run is None else found.run.folder / "recipe.toml"
    return file.read_text(encoding="utf-8") if file is not None and file.exists() else None


def _facts(found: EvaluatedTables) -> Iterator[tuple[str, str]]:
    for name, part in found.evaluation.parts.items():
        pictures, classes = part["pictures"], plural(part["classes"], "class", "classes")
        yield f"{name} part", f"{plural(pictures, 'picture')} in {classes}"
    yield "dimensions", f"{found.test.dim:,}"
    if found.run is None:
        yield "seed", f"{found.evaluation.seed} (of the evaluation)"
    else:
        yield from run_facts(found.run)


def run_facts(run: Run) -> Iterator[tuple[str, str]]:
    """Split, model, training and versions of a run."""
    about, results = run.about, run.results
    model = about["model"]
    name = model if isinstance(model, str) else str(model["backbone"]["name"])
    if not run.trained:
        yield "model", f"{name}, pretrained, without training"
    else:
        yield "split", str(about["split"])
        yield "model", name
    if results and run.trained:
        yield (
            "steps",
            f"{results['steps']:,}; the weights of step {results['selected_step']:,} are used",
        )
        minutes, seconds = divmod(round(results["seconds"]), 60)
        yield "training time", f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    yield "seed", str(about["seed"])
    yield "hardware", str(about["hardware"]["device"])
    versions = {"kinspace": about["kinspace"], **about["hardware"]}
    yield "versions", ", ".join(f"{k} {v}" for k, v in versions.items() if k != "device")
    for note in about.get("notes", []):
        yield "note", str(note)
