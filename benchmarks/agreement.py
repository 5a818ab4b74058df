"""Values of other libraries on one batch, beside ours where the formulas agree.

    python benchmarks/agreement.py            # prints every value of what is installed
    python benchmarks/agreement.py --write    # all three, to tests/fixtures/other_libraries.json

The libraries: pytorch-metric-learning, sentence-transformers, torchmetrics. Values are in float64,
on vectors made without random numbers, so that any version of any library sees the same. The suite
(tests/losses/test_other_libraries.py) compares ours with the file, without the libraries.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinspace import losses as ours
from kinspace.compat import pml as bridge
from kinspace.evaluation.retrieval import Retrieval

FILE = Path(__file__).parents[1] / "tests/fixtures/other_libraries.json"
CLASSES, EACH, DIM = 4, 3, 6
LIBRARIES = ("pytorch-metric-learning", "sentence-transformers", "torchmetrics")
Values = dict[str, float]

# Of pytorch-metric-learning, by class: its options here and there.
PLAIN: dict[str, dict[str, Any]] = {
    "CircleLoss": {},
    "ContrastiveLoss": {},
    "FastAPLoss": {},
    "HistogramLoss": {"n_bins": 20},
    "LiftedStructureLoss": {},
    "MarginLoss": {},
    "MultiSimilarityLoss": {},
    "NCALoss": {"softmax_scale": 3},
    "NPairsLoss": {},
    "NTXentLoss": {},
    "SupConLoss": {},
    "TripletMarginLoss": {"margin": 0.2},
    "TupletMarginLoss": {},
}
# The parameter here and there, each a row a class here.
WITH_CLASSES = {
    "ArcFaceLoss": ("weight", "W"),
    "CosFaceLoss": ("weight", "W"),
    "NormalizedSoftmaxLoss": ("weight", "W"),
    "ProxyAnchorLoss": ("proxies", "proxies"),
    "ProxyNCALoss": ("proxies", "proxies"),
    "SphereFaceLoss": ("weight", "W"),
}
SMALL = 1.5  # the margin of triplets, of which some are active then
KS, MORE = (5,), ("mrr", "ndcg@k")


def waves(rows: int, phase: float) -> Tensor:
    """Vectors that look random: sines of growing frequency."""
    steps = torch.arange(1, rows * DIM + 1, dtype=torch.float64)
    return torch.sin(steps * steps * 0.37 + phase).view(rows, DIM)


def batch() -> tuple[Tensor, Tensor]:
    """Twelve vectors, three of a class."""
    return waves(CLASSES * EACH, 0.0), torch.arange(CLASSES).repeat_interleave(EACH)


def triplets_of_rows() -> Tensor:
    """Row i of each of three tables of eight, as triplets of one table of 24 rows."""
    return torch.arange(24).view(3, 8).T


# --- pytorch-metric-learning ---------------------------------------------------------------------


def _metric_losses(losses: Any, parameter: Callable[[str], str]) -> Values:
    """Of a package of losses with the names there; parameter: the class table of one of them."""
    x, labels = batch()
    found = {name: losses.__dict__[name](**given)(x, labels) for name, given in PLAIN.items()}
    for name in WITH_CLASSES:
        criterion = losses.__dict__[name](CLASSES, DIM).double()
        table = dict(criterion.named_parameters())[parameter(name)]
        with torch.no_grad():
            values = waves(CLASSES, 1.0)
            table.copy_(values if table.shape == values.shape else values.T)
        found[name] = criterion(x, labels)
    other = waves(len(x), 2.0)
    found["VICRegLoss"] = losses.VICRegLoss()(x, ref_emb=other)
    views = losses.SelfSupervisedLoss(losses.NTXentLoss())
    found["SelfSupervisedLoss(NTXentLoss)"] = views(x, other)
    return _named(LIBRARIES[0], found)


def theirs_metric() -> Values:
    """The values there."""
    from pytorch_metric_learning import losses

    return _metric_losses(losses, lambda name: WITH_CLASSES[name][1])


def ours_metric() -> Values:
    """The same through `kinspace.compat.pml`."""
    return _metric_losses(bridge.losses, lambda name: f"loss.{WITH_CLASSES[name][0]}")


# --- sentence-transformers -----------------------------------------------------------------------


def theirs_sentence() -> Values:
    """The values of embeddings: the model, which a loss there has, makes nothing of them."""
    from sentence_transformers.sentence_transformer import losses

    x, labels = batch()
    model, columns = nn.Identity(), [waves(8, phase) for phase in (0.0, 2.0, 4.0)]
    rank = losses.MultipleNegativesRankingLoss(model)
    symmetric = losses.MultipleNegativesSymmetricRankingLoss(model)
    found = {
        "MultipleNegativesRankingLoss": rank.compute_loss_from_embeddings(columns[:2], labels),
        "MultipleNegativesRankingLoss(negatives)": rank.compute_loss_from_embeddings(
            columns, labels
        ),
        "MultipleNegativesSymmetricRankingLoss": symmetric.compute_loss_from_embeddings(
            columns[:2], labels
        ),
        "BatchAllTripletLoss": losses.BatchAllTripletLoss(
            model, margin=SMALL
        ).batch_all_triplet_loss(labels, x),
        "BatchHardTripletLoss": losses.BatchHardTripletLoss(
            model, margin=SMALL
        ).batch_hard_triplet_loss(labels, x),
        "BatchSemiHardTripletLoss": losses.BatchSemiHardTripletLoss(
            model, margin=SMALL
        ).batch_semi_hard_triplet_loss(labels, x),
        "TripletLoss": losses.TripletLoss(model, triplet_margin=SMALL).compute_loss_from_embeddings(
            columns, labels
        ),
    }
    return _named(LIBRARIES[1], found)


def ours_sentence() -> Values:
    """What to write here."""
    x, labels = batch()
    queries, keys, negatives = (waves(8, phase) for phase in (0.0, 2.0, 4.0))
    ranking = {"temperature": 0.05}
    triplet = {"margin": SMALL, "squared": False}
    found = {
        "MultipleNegativesRankingLoss": ours.info_nce_loss(queries, keys, **ranking),
        "MultipleNegativesRankingLoss(negatives)": ours.info_nce_loss(
            queries, keys, negatives=negatives, **ranking
        ),
        "MultipleNegativesSymmetricRankingLoss": ours.info_nce_loss(
            queries, keys, symmetric=True, **ranking
        ),
        "BatchAllTripletLoss": ours.Triplet(reduction="mean_active", **triplet)(x, labels),
        "BatchHardTripletLoss": ours.Triplet(mining="batch_hard", **triplet)(x, labels),
        "BatchSemiHardTripletLoss": ours.Triplet(mining="semi_hard", **triplet)(x, labels),
        "TripletLoss": ours.Triplet(**triplet)(
            torch.cat([queries, keys, negatives]),
            torch.arange(8).repeat(3),
            triplets=triplets_of_rows(),
        ),
    }
    return _named(LIBRARIES[1], found)


# --- torchmetrics --------------------------------------------------------------------------------


def theirs_retrieval() -> Values:
    """The means over queries, each in all others."""
    from torchmetrics.functional import retrieval

    x, labels = batch()
    unit = x / x.norm(dim=1, keepdim=True)
    table = 2 + unit @ unit.T  # there a match of similarity 0 or less is none
    found: dict[str, list[float]] = {"mrr": [], "map": [], "ndcg@5": [], "precision@5": []}
    for row, similarities in enumerate(table):
        others = torch.arange(len(x)) != row
        given = similarities[others], (labels == labels[row])[others]
        found["mrr"].append(float(retrieval.retrieval_reciprocal_rank(*given)))
        found["map"].append(float(retrieval.retrieval_average_precision(*given)))
        found["ndcg@5"].append(float(retrieval.retrieval_normalized_dcg(*given, top_k=5)))
        found["precision@5"].append(float(retrieval.retrieval_precision(*given, top_k=5)))
    return _named(LIBRARIES[2], {name: np.mean(values) for name, values in found.items()})


def ours_retrieval() -> Values:
    """The same measures of `kinspace.evaluation`."""
    x, labels = batch()
    summary = Retrieval(x, labels).scores(KS, more=MORE).summary()
    names = ("mrr", "map", "ndcg@5", "precision@5")
    return _named(LIBRARIES[2], {name: summary[name] for name in names})


def _named(library: str, values: dict[str, Any]) -> Values:
    return {f"{library} {name}": torch.as_tensor(v).item() for name, v in values.items()}


PAIRS = {
    LIBRARIES[0]: (theirs_metric, ours_metric),
    LIBRARIES[1]: (theirs_sentence, ours_sentence),
    LIBRARIES[2]: (theirs_retrieval, ours_retrieval),
}


def difference(one: float, other: float) -> float:
    """Relative, of values above 1e-12."""
    return abs(one - other) / max(abs(other), 1e-12)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args(arguments)
    found: Values = {}
    for library, (theirs, mine) in PAIRS.items():
        try:
            values = theirs()
        except ImportError as error:
            if options.write:
                raise
            print(f"{library}: not installed ({error})")
            continue
        print(f"{library} {metadata.version(library)}")
        here = mine()
        for name, value in values.items():
            apart = difference(here[name], value)
            print(f"  {name.split(' ', 1)[1]:42} {value:<22.15g} {here[name]:<22.15g} {apart:.0e}")
        found |= values
    if options.write:
        assert all(math.isfinite(value) for value in found.values())
        versions = {library: metadata.version(library) for library in LIBRARIES}
        FILE.write_text(json.dumps({"versions": versions, "values": found}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
