"""Evaluate a run, or vectors from any source.

found = evaluate("runs/moths-nra-1")
found = evaluate("vectors.npz")
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, Unpack

from torch import nn

from kinspace._core.atomic_files import write_json
from kinspace._core.device import pick_device
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import FilePictures, Pictures
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.summary import Evaluation, Status, summarize
from kinspace.evaluation.thresholds import Thresholds, calibrate, held_out_rows
from kinspace.inference.model import THRESHOLDS
from kinspace.inference.run_embeddings import BASELINES, RunEmbeddings
from kinspace.run import Run, Splits, open_run

__all__ = [
    "EvaluateOptions",
    "EvaluatedTables",
    "evaluate",
    "evaluate_tables",
    "files_of",
    "names_a_run",
]


class EvaluateOptions(TypedDict, total=False):
    """The options of `evaluate`.

    metric: "cosine" or "euclidean". seed: of what is drawn at random. name: in the result, by
    default that of the folder or file. device: by default a run is embedded on a GPU if there is
    one, and everything is measured on the CPU. fmr: the target false-match rate. model: for a run
    with a module of your own, one like it. status: called with each step.
    """

    metric: str
    seed: int
    name: str
    device: str | None
    fmr: float
    model: nn.Module | None
    status: Status


@dataclass(frozen=True, eq=False)
class EvaluatedTables:
    """An evaluation and all that a report shows with it.

    tables: "test", and of a run "train", "validation" and the baselines. pictures: by part, in the
    order of the tables' rows; none for inputs that are no pictures. splits: the data of a run.
    thresholds: those that decide whether a picture is of a known class: of the run's gallery, or
    calibrated on its data. calibrated: the table of all pictures that they can be shown on.
    """

    evaluation: Evaluation
    tables: dict[str, EmbeddingTable]
    pictures: dict[str, Pictures] = field(default_factory=dict)
    run: Run | None = None
    splits: Splits | None = None
    thresholds: Thresholds | None = None
    calibrated: EmbeddingTable | None = None

    @property
    def test(self) -> EmbeddingTable:
        """The table that was evaluated."""
        return self.tables["test"]


def evaluate(
    source: str | Path | Run | EmbeddingTable,
    data: Any = None,
    **options: Unpack[EvaluateOptions],
) -> Evaluation:
    """Measure everything on a run folder, a file of vectors, or a table.

    source: a run folder, which keeps the result as evaluation.json; or an EmbeddingTable, or its
    file (.npz, .npy + .csv, .safetensors, .parquet). data: for a run, where its data is now, or
    other data to evaluate it on. options: see `EvaluateOptions`.

    >>> import numpy as np
    >>> x, y = np.eye(4).repeat(3, 0), np.arange(12) // 3
    >>> evaluate(EmbeddingTable(x, y)).retrieval["model"]["map@r"]
    1.0
    """
    return evaluate_tables(source, data, **options).evaluation


def evaluate_tables(
    source: str | Path | Run | EmbeddingTable,
    data: Any = None,
    **options: Unpack[EvaluateOptions],
) -> EvaluatedTables:
    """The evaluation with the tables and pictures it was made from, for a report."""
    given: dict[str, Any] = dict(options)
    if given.get("device") is not None:
        given["device"] = pick_device(given["device"])
    module = given.pop("model", None)
    if isinstance(source, Run) or names_a_run(source):
        run = source if isinstance(source, Run) else open_run(source)
        return _evaluate_run(run, data, module, given)
    if data is not None:
        raise ValueError("DATA: expected with a run folder, got it with a table of vectors")
    table = source if isinstance(source, EmbeddingTable) else EmbeddingTable.load(source)
    name = "embeddings" if isinstance(source, EmbeddingTable) else Path(source).stem
    thresholds = calibrate(table)
    found = summarize(table, thresholds=thresholds, **({"name": name} | given))
    return EvaluatedTables(
        found, {"test": table}, files_of(table), thresholds=thresholds, calibrated=table
    )


def names_a_run(source: object) -> TypeGuard[str | Path]:
    """Whether it is a path, and not that of a table."""
    if not isinstance(source, (str, Path)):
        return False
    return Path(source).is_dir() or not Path(source).suffix


def _evaluate_run(
    run: Run, data: Any, module: nn.Module | None, options: dict[str, Any]
) -> EvaluatedTables:
    splits = run.splits(data)
    splits.test.require_labels("evaluate")
    status: Status = options.get("status") or (lambda text: None)
    made = RunEmbeddings(run, splits, device=options.get("device"), module=module, status=status)
    tables = {"test": made.table("test")}
    baselines = BASELINES if run.trained else ("pixels",)
    for by in baselines:  # beside the test part, while its pictures are decoded
        tables[by] = made.table("test", by)
    for name in ("train", "validation"):
        if getattr(splits, name) is not None:
            same = getattr(splits, name) is splits.test
            tables[name] = tables["test"] if same else made.table(name)
    thresholds, calibrated = _thresholds(run, splits, made, tables["test"])
    found = summarize(
        tables["test"],
        thresholds=thresholds,
        train=tables.get("train"),
        validation=tables.get("validation"),
        baselines={by: tables[by] for by in baselines},
        roles=splits.test.parts,
        **({"name": run.folder.resolve().name} | options),
    )
    found = replace(found, notes=[*splits.notes, *_of_training(run), *found.notes])
    write_json(run.folder / "evaluation.json", found.to_dict())
    pictures = {}
    if not isinstance(splits.whole.pictures, SampleInputs):
        shown = splits.parts | {"test": splits.test}
        pictures = {name: part.pictures for name, part in shown.items()}
        pictures["all"] = splits.whole.pictures
    return EvaluatedTables(found, tables, pictures, run, splits, thresholds, calibrated)


def _thresholds(
    run: Run, splits: Splits, made: RunEmbeddings, test: EmbeddingTable
) -> tuple[Thresholds | None, EmbeddingTable]:
    """The thresholds of the run's gallery, or as `kinspace index` would set them on this data."""
    table = made.table("all") if splits.own else test
    if splits.own and (file := run.folder / THRESHOLDS).exists():
        return Thresholds.load(file), table
    return calibrate(table, held_out_rows(table, run.trained_classes)), table


def _of_training(run: Run) -> list[str]:
    """A note if training did not improve the model."""
    results = run.results
    if results and results["selected_step"] == 0 and results["steps"]:
        return [
            "no step of the training was better on the validation classes than its start: the "
            "weights of step 0 are evaluated"
        ]
    return []


def files_of(table: EmbeddingTable) -> dict[str, Pictures]:
    """The pictures of a table of vectors, if its paths lead to all of them."""
    paths = [Path(path) for path in table.paths or ()]
    if not paths or not all(path.is_file() for path in paths):
        return {}
    return {"test": FilePictures(paths)}
