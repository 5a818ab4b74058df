"""kinspace evaluate RUN|TABLE [DATA]."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.cli.options import Device, Json, Seed

if TYPE_CHECKING:
    from kinspace.evaluation.summary import Evaluation

__all__ = ["evaluate_command", "telling"]

SOURCE = "A run folder, or vectors: .npz, .npy with a .csv, .safetensors, .parquet."
WORDS = {"model": "this model", "pixels": "raw pixels", "map": "mAP", "map@r": "MAP@R"}
DATA = "Where the run's data is now, or other data to judge it on."


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows, on a terminal, what is being done and since when."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        task = shown.add_task("", total=None)
        yield lambda text: shown.update(task, description=f"{text} ...")


def evaluate_command(
    source: Annotated[str, typer.Argument(metavar="RUN|TABLE", help=SOURCE)],
    data: Annotated[str | None, typer.Argument(help=DATA)] = None,
    metric: Annotated[str, typer.Option(help="cosine or euclidean.")] = "cosine",
    fmr: Annotated[
        float, typer.Option(help="The false-match rate to choose the threshold for.")
    ] = 1e-3,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Judge a run on its test part, or vectors from anywhere, by every measure.

    Exit code 0: done; 1: a disk fails; 2: it cannot be opened or judged. A run keeps the result as
    evaluation.json.
    """
    with told(), telling() as status:
        from kinspace.evaluation import evaluate

        options = {"fmr": fmr, "device": device, "status": status}
        found = evaluate(source, data, metric=metric, seed=seed, **options)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=1))
    else:
        show(found)


def show(found: Evaluation) -> None:
    """The main measures as tables."""
    from kinspace._core.text import plural
    from kinspace.report.verdict import percent

    console = Console()
    test = found.parts["test"]
    classes = plural(test["classes"], "class", "classes")
    title = f"{found.name}: {plural(test['pictures'], 'picture')} in {classes}"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    wanted = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "map")
    names = [name for name in wanted if name in found.retrieval["model"]]
    for name in names:
        table.add_column(WORDS.get(name, name.replace("recall", "Recall")), justify="right")
    for name, row in found.retrieval.items():
        table.add_row(WORDS.get(name, name), *(percent(row[one]) for one in names))
    console.print(table)
    rows = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _rows(found):
        rows.add_row(name, value)
    console.print(rows)
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
            (
                f"kNN {percent(errors['knn'])}, soft kNN {percent(errors['soft_knn'])}, "
                f"kNC {percent(errors['knc'])}, nearest mean {percent(errors['nearest_mean'])}"
            ),
        )
    if (v := found.verification) is not None:
        yield (
            "verification",
            (
                f"threshold {v['threshold']:.4f} of {v['calibrated_on']}: true matches "
                f"{percent(v['tmr'])} ({percent(v['tmr_low'])} to {percent(v['tmr_high'])}), false "
                f"matches {percent(v['fmr'], 3)}; AUC {v['auc']:.4f}, EER {percent(v['eer'])}"
            ),
        )
    if (o := found.open_set) is not None:
        yield (
            "open set",
            (
                f"known classes named right {percent(o['identified'])}, unknown ones let through "
                f"{percent(o['false_alarms'])}"
            ),
        )
    if found.gap is not None:
        yield "Recall@1 on training classes", percent(found.gap["train"]["recall@1"])
    t = found.problems
    yield "suspect labels", f"{t['suspect_count']:,}"
    yield "near-duplicates", f"{t['duplicate_count']:,}"
    yield "classes of several groups", f"{t['hidden_count']:,}"
