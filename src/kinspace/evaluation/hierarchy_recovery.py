"""Hierarchy recovery: train on classes merged in pairs, evaluate on the true classes.

Rippel et al., Magnet loss, ICLR 2016, sec. 4.3. Every class is in the training and in the test
part. Test pictures are classified by the training pictures, with the true classes, which the model
was not trained on. No classes are held out for validation: the last weights are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace._core.atomic_files import write_json
from kinspace.data import Dataset
from kinspace.data.load import load_dataset
from kinspace.data.named_splits import split_names
from kinspace.evaluation.classification import merged_pairs, recovery_error
from kinspace.evaluation.summary import Status, plain
from kinspace.inference.run_embeddings import BASELINES, RunEmbeddings
from kinspace.recipes import Recipe
from kinspace.run import Splits
from kinspace.training import train

__all__ = ["TrainOptions", "recover_hierarchy"]


class TrainOptions(TypedDict, total=False):
    """The options of `kinspace.train` that the experiment passes on."""

    resume: bool
    split: str
    seed: int
    device: str | None
    precision: str | None
    micro_batch: int | None
    cache: str
    workers: int | None
    save_every: int
    log_every: int
    skip_bad: bool
    baselines: bool
    quiet: bool


def recover_hierarchy(
    data: Any,
    *,
    method: str | Recipe = "magnet",
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    status: Status = lambda text: None,
    **options: Unpack[TrainOptions],
) -> dict[str, Any]:
    """Run the experiment; the result is also written to RUN/hierarchy.json.

    Returns the classification errors (5 nearest pictures, nearest class mean) on the true classes
    and, as "merged", on the merged ones: of the model and, unless baselines=False, of the untrained
    backbone and raw pixels. options: see `TrainOptions`; split is "stratified" or, for a set whose
    parts share their classes, "official". No class is held out for validation.

    >>> found = recover_hierarchy("moths", method="magnet")  # doctest: +SKIP
    >>> error = found["errors"]["model"]["true"]["knn"]  # doctest: +SKIP
    """
    if "validation.fraction" in (changes or {}):
        raise ValueError(
            "validation.fraction: expected no value, because no class is held out here; remove it"
        )
    whole = load_dataset(data)
    if whole.num_classes < 4:
        raise ValueError(
            f"{whole.name}: expected at least 4 classes to merge in pairs, got {whole.num_classes}"
        )
    seed = int(options.get("seed", 0))
    coarse = _merged(whole, seed)
    options.setdefault("split", "stratified")
    reference, test = _parts(coarse, options["split"], seed)
    status("training on the merged classes")
    changes = {"search.budget": 0.0, **(changes or {}), "validation.fraction": 0.0}
    run = train(coarse, method=method, changes=changes, out=out, **options)
    splits = Splits(coarse, reference, None, test)
    made = RunEmbeddings(run, splits, device=options.get("device"))
    names = ("model", *(BASELINES if options.get("baselines", True) else ()))
    of_test, of_reference = (
        {by: made.vectors(part, by) for by in names} for part in (test, reference)
    )
    found: dict[str, Any] = {}
    for name in names:
        status(f"evaluating: {name}")
        vectors = of_test[name], of_reference[name]
        found[name] = {
            "true": _error(
                vectors, _labels(test, coarse, whole), _labels(reference, coarse, whole)
            ),
            "merged": _error(vectors, test.labels.numpy(), reference.labels.numpy()),
        }
    result: dict[str, Any] = plain(
        {
            "data": whole.name,
            "method": run.about["recipe"]["name"],
            "seed": seed,
            "classes": whole.num_classes,
            "merged_classes": list(coarse.class_names),
            "train_pictures": len(reference),
            "test_pictures": len(test),
            "errors": found,
            "run": str(run.folder),
        }
    )
    write_json(run.folder / "hierarchy.json", result)
    return result


def _merged(whole: Dataset, seed: int) -> Dataset:
    labels = merged_pairs(whole.labels.numpy(), seed=seed)
    of_class = np.empty(whole.num_classes, np.int64)
    of_class[whole.labels.numpy()] = labels
    names = tuple(
        " + ".join(whole.class_names[c] for c in np.flatnonzero(of_class == merged))
        for merged in range(int(of_class.max()) + 1)
    )
    fields = {"labels": torch.from_numpy(labels), "class_names": names}
    return replace(whole, **fields, parents=None, parent_names=())  # type: ignore[arg-type]


def _parts(coarse: Dataset, split: str, seed: int) -> tuple[Dataset, Dataset]:
    """The training pictures and the test pictures, which must have the same classes."""
    checks.choice("split", split, ("stratified", "official"))
    reference, _, test = split_names(coarse, split, validation=0.0, seed=seed)
    if test is None or not set(test.class_names) <= set(reference.class_names):
        raise ValueError(
            f"split: expected parts that share their classes, got those of {coarse.name}, whose "
            "test classes are others; use stratified"
        )
    return reference, test


def _labels(part: Dataset, coarse: Dataset, whole: Dataset) -> NDArray[np.int64]:
    found: NDArray[np.int64] = whole.labels[part.indices_in(coarse)].numpy()
    return found


def _error(
    vectors: tuple[torch.Tensor, torch.Tensor], truth: NDArray[Any], reference: NDArray[Any]
) -> dict[str, float]:
    return recovery_error(vectors[0], truth, vectors[1], reference)
