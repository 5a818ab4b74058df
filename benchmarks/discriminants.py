"""What a start from discriminants is worth before any step, on training pictures alone.

    python benchmarks/discriminants.py pets:FOLDER --weights bvlc_googlenet.safetensors
    python benchmarks/discriminants.py cub200:FOLDER --weights FILE --classes --json cub.json

GoogLeNet's features of the training part. A quarter of the pictures of each class is held
out, and classified by the rest: errors by nearest class mean and by soft kNN. With --classes two
fifths of the classes are, and it is their Recall@1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from setting import setting
from torch import Tensor

from kinspace._core.vectors import unit
from kinspace.data import Dataset, hold_out_classes, stratified
from kinspace.data.load import load_dataset
from kinspace.evaluation.retrieval import recall_at_k
from kinspace.models.projections import lda_projection
from kinspace.recipes import read_recipe, with_changes
from kinspace.reproduce.run_measures import classification_errors
from kinspace.training.components import make_model, transform_settings
from kinspace.training.data_parts import prepare
from kinspace.training.embedding import embed_all
from kinspace.training.settings import RunSettings

SHRINKAGES = (0.1, 0.3, 0.5, 0.8)
RESTS = (0.0, 0.1, 1.0)  # 1: all directions, whitened


def features_of(options: argparse.Namespace) -> tuple[Tensor, Dataset]:
    """Of the training part, and the part."""
    recipe = with_changes(
        read_recipe("softmax"),
        {
            "model.backbone": "googlenet",
            "model.weights": options.weights,
            "model.pool": options.pool,
            "transform.size": options.size,
            "transform.resize": options.resize,
        },
        where="changes",
    )
    model = make_model(recipe, seed=0)
    settings = RunSettings(device=options.device)
    split = "zero_shot" if options.classes else "official"
    transform = transform_settings(recipe, model)
    train = prepare(load_dataset(options.data), split, transform, settings, validation=0).train
    model.to(train.device)
    return embed_all(model, train, batch_size=64, what="features").cpu(), train.dataset


def measures_of(x: Tensor, labels: Tensor, held: Tensor, *, classes: bool) -> dict[str, float]:
    """Percent: Recall@1 of the held-out classes, or errors of the held-out pictures."""
    x = unit(x)
    if classes:
        return {"recall@1": 100 * recall_at_k(x[held], labels[held], (1,))[1]}
    known, queries = ((x[part], labels[part].numpy()) for part in (~held, held))
    errors = classification_errors(known, queries)
    return {name: 100 * errors[name] for name in ("nearest_mean_error", "soft_knn_error")}


def measures_by_start(x: Tensor, part: Dataset, *, classes: bool) -> dict[str, dict[str, float]]:
    """Measures by the projection of the features."""
    split = hold_out_classes(part, 0.4, seed=0) if classes else stratified(part, 0.25, seed=0)
    held, labels = split.assignment > 0, part.labels
    found = {"as they are": measures_of(x, labels, held, classes=classes)}
    for shrinkage in SHRINKAGES:
        for rest in RESTS:
            weight, bias = lda_projection(
                x[~held], labels[~held], x.shape[1], shrinkage=shrinkage, rest=rest
            )
            name = f"shrinkage {shrinkage}, rest {rest}"
            found[name] = measures_of(x @ weight.T + bias, labels, held, classes=classes)
    return found


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("data", help="as for kinspace train")
    add("--weights", required=True, help="GoogLeNet's, a safetensors file")
    add("--classes", action="store_true", help="hold classes out, not pictures")
    add("--pool", default="avg", help="avg, max or both (default: avg)")
    add("--size", type=int, default=224)
    add("--resize", type=int, default=224)
    add("--device", default="cpu")
    add("--threads", type=int, default=2)
    add("--json", type=Path)
    options = parser.parse_args(arguments)
    options.commit, options.skip_pml = None, True
    return options


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    facts = setting(options)
    facts["options"] = {  # files by their names: where they lie is of one machine
        name: Path(str(value)).name if name in ("data", "weights", "json") else value
        for name, value in vars(options).items()
    }
    found = measures_by_start(*features_of(options), classes=options.classes)
    for name, numbers in found.items():
        print(f"{name:28}", "  ".join(f"{key} {value:.1f}" for key, value in numbers.items()))
    if options.json:
        content = {"setting": facts, "results": found}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
