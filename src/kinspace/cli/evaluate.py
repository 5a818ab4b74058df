"""kinspace evaluate RUN|TABLE [DATA]."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, EvaluatedData, Json, Seed, Source
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import trusted
from kinspace.cli.tables import print_whole

if TYPE_CHECKING:
    from kinspace.evaluation.summary import Evaluation

__all__ = ["evaluate_command"]

ROWS = {"model": "this model", "pixels": "raw pixels"}
COLUMNS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "map")


def evaluate_command(  # noqa: PLR0913 - every option of the command is a parameter
    source: Source,
    data: EvaluatedData = None,
    metric: Annotated[str, typer.Option(help="cosine or euclidean.")] = "cosine",
    fmr: Annotated[
        float, typer.Option(help="False match rate at which the verification threshold is set.")
    ] = 1e-3,
    seed: Seed = 0,
    allow_outside: AllowOutside = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run on its test part, or a table of vectors.

    The result for a run is also saved as evaluation.json in its folder.
    """
    with user_errors(), progress() as display:
        from kinspace.evaluation import evaluate

        found = evaluate(
            source,
            trusted(data, allow_outside=allow_outside),
            metric=metric,
            seed=seed,
            fmr=fmr,
            device=device,
            status=display.status,
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=1))
    else:
        print_evaluation(found)
        print_next(f"kinspace report {source}")


def print_evaluation(found: Evaluation) -> None:
    """Print the main measures as tables."""
    from kinspace._core.checks import plural
    from kinspace.evaluation.summary import MEASURES
    from kinspace.report.verdict import percent

    console = Console()
    test = found.parts["test"]
    classes = plural(test["classes"], "class", "classes")
    title = f"{found.name}: {plural(test['pictures'], 'picture')} in {classes}"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    table = Table("", box=None, padding=(0, 2, 0, 0))
    names = [name for name in COLUMNS if name in found.retrieval["model"]]
    for name in names:
        table.add_column(MEASURES[name], justify="right")
    for name, row in found.retrieval.items():
        table.add_row(ROWS.get(name, name), *(percent(row[one]) for one in names))
    print_whole(table)
    rows = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _rows(found):
        rows.add_row(name, value)
    print_whole(rows)
    for note in found.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def _rows(found: Evaluation) -> Iterator[tuple[str, str]]:
    from kinspace.report.verdict import percent

    c = found.clustering
    for name, words in (("nmi", "NMI"), ("ami", "AMI"), ("f1", "pairwise F1")):
        spread = f" ± {percent(c[f'{name}_spread'])}" if c["restarts"] > 1 else ""
        yield words, f"{percent(c[name])}{spread}"
    if (k := found.classification) is not None:
        errors = k["errors"]
        yield (
            "classification error",
            f"kNN {percent(errors['knn'])}, soft kNN {percent(errors['soft_knn'])}, "
            f"kNC {percent(errors['knc'])}, nearest mean {percent(errors['nearest_mean'])}",
        )
    if (v := found.verification) is not None:
        yield (
            "verification",
            f"true matches {percent(v['tmr'])} ({percent(v['tmr_low'])} to "
            f"{percent(v['tmr_high'])}) at false matches of {percent(v['fmr'], 3)}; AUC "
            f"{v['auc']:.4f}, EER {percent(v['eer'])}",
        )
    if (d := found.decision) is not None:
        yield "known or unknown", f"{d['text']} (on {d['basis']})"
    if found.gap is not None:
        yield "Recall@1 on training classes", percent(found.gap["train"]["recall@1"])
    t = found.problems
    yield "suspect labels", f"{t['suspect_count']:,}"
    yield "near-duplicates", f"{t['duplicate_count']:,}"
    yield "classes of several groups", f"{t['hidden_count']:,}"
