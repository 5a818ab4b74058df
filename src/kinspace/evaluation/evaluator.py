"""Judge a run, or vectors from anywhere: the way in of `kinspace evaluate`.

found = evaluate("runs/moths-nra-1")
found = evaluate("vectors.npz")
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from kinspace._core.device import pick_device
from kinspace._core.json_files import write_json
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import FilePictures, Pictures
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.summary import Evaluation, Status, summarize
from kinspace.run import Run, open_run
from kinspace.run_tables import RunTables, embed_run

__all__ = ["Gathered", "evaluate", "gather"]


@dataclass(frozen=True, eq=False)
class Gathered:
    """An evaluation and all that a report shows with it.

    pictures: by part, in the order of the tables' rows; none for inputs that are no pictures.
    """

    evaluation: Evaluation
    tables: dict[str, EmbeddingTable]
    pictures: dict[str, Pictures] = field(default_factory=dict)
    run: Run | None = None
    made: RunTables | None = None

    @property
    def test(self) -> EmbeddingTable:
        """The table that was judged."""
        return self.tables["test"]


def evaluate(
    source: str | Path | Run | EmbeddingTable,
    data: Any = None,
    *,
    metric: str = "cosine",
    seed: int = 0,
    **options: Any,
) -> Evaluation:
    """Every measure of a run folder, of a file of vectors, or of a table.

    source: a run folder, which keeps the result as evaluation.json; or an EmbeddingTable, or its
    file (.npz, .npy + .csv, .safetensors, .parquet). data: for a run, where its data is now, or
    other data to judge it on. options: device (by default a run is embedded on a GPU if any,
    and measured on the CPU), fmr, status (called with each step), and model, for a run with
    a model of your own.

    >>> import numpy as np
    >>> x, y = np.eye(4).repeat(3, 0), np.arange(12) // 3
    >>> evaluate(EmbeddingTable(x, y)).retrieval["model"]["map@r"]
    1.0
    """
    return gather(source, data, metric=metric, seed=seed, **options).evaluation


def gather(
    source: str | Path | Run | EmbeddingTable,
    data: Any = None,
    *,
    metric: str = "cosine",
    seed: int = 0,
    model: nn.Module | None = None,
    **options: Any,
) -> Gathered:
    """The same with the tables and pictures it was made from."""
    device = pick_device(options.get("device"))
    status: Status = options.get("status") or (lambda text: None)
    options |= {"device": None if options.get("device") is None else device, "status": status}
    if isinstance(source, EmbeddingTable) or (
        not isinstance(source, Run) and not Path(source).is_dir() and Path(source).suffix
    ):
        if data is not None:
            raise ValueError("DATA: expected with a run folder, got it with a table of vectors")
        table = source if isinstance(source, EmbeddingTable) else EmbeddingTable.load(source)
        name = "embeddings" if isinstance(source, EmbeddingTable) else Path(source).stem
        found = summarize(table, metric=metric, seed=seed, **({"name": name} | options))
        return Gathered(found, {"test": table}, _of_paths(table))
    run = source if isinstance(source, Run) else open_run(source)
    made = embed_run(run, data, model=model, device=str(device), status=status)
    found = summarize(
        made.tables["test"],
        train=made.tables.get("train") if "train" in made.parts else None,
        validation=made.tables.get("validation"),
        baselines=made.baselines,
        metric=metric,
        seed=seed,
        roles=made.parts["test"].parts,
        **({"name": run.folder.resolve().name} | options),
    )
    notes = [*made.notes, *_of_training(run), *found.notes]
    found = replace(found, notes=notes)
    write_json(run.folder / "evaluation.json", found.to_dict())
    pictures = {
        name: part.pictures
        for name, part in made.parts.items()
        if not isinstance(made.whole.pictures, SampleInputs)
    }
    return Gathered(found, made.tables, pictures, run, made)


def _of_training(run: Run) -> list[str]:
    """What the reader of an evaluation should know of how its weights were chosen."""
    results = run.results
    if results and results["selected_step"] == 0 and results["steps"]:
        return [
            "no step of the training was better on the validation classes than its start: the "
            "weights of step 0 are judged"
        ]
    return []


def _of_paths(table: EmbeddingTable) -> dict[str, Pictures]:
    """The pictures of a table of vectors, if its paths lead to all of them."""
    paths = [Path(path) for path in table.paths or ()]
    if not paths or not all(path.is_file() for path in paths):
        return {}
    return {"test": FilePictures(paths)}
