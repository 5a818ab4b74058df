"""What whitening, query expansion and k-reciprocal re-ranking are worth, without training.

    python benchmarks/reranking.py train.npz test.npz

The tables are of training classes and of others, as `EmbeddingTable.save` writes them; of a run
`run.embeddings("train").save("train.npz")`. The whitening is learnt on the classes of the first
table, all else has no training. Every test picture is searched among the others. Prints a table in
Markdown.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation import retrieval_metrics
from kinspace.models.projections import whitening_projection
from kinspace.search import expand_queries, k_reciprocal_distances


def of_distances(distances: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Recall@1, MAP@R and MAP of a table of distances, each row without itself."""
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :-1]
    hits = labels[order] == labels[:, None]
    matches = hits.sum(1)
    place = np.arange(1, hits.shape[1] + 1)
    gains = np.where(hits, np.cumsum(hits, 1) / place, 0)
    early = gains * (place <= matches[:, None])
    kept = matches > 0
    return {
        "recall@1": float(hits[:, 0].mean()),
        "map@r": float((early.sum(1) / matches.clip(1))[kept].mean()),
        "map": float((gains.sum(1) / matches.clip(1))[kept].mean()),
    }


def rows_of(x: Tensor, labels: np.ndarray, options: argparse.Namespace) -> dict[str, dict]:
    """The measures of vectors by each way to order them, and the seconds it takes."""
    found = {}

    def add(name: str, make: object) -> None:
        started = time.perf_counter()
        value = make()  # type: ignore[operator]
        seconds = time.perf_counter() - started
        is_table = isinstance(value, np.ndarray)
        scores = of_distances(value, labels) if is_table else retrieval_metrics(value, labels)
        found[name] = {**scores, "seconds": seconds}
        row = " | ".join(f"{100 * scores[key]:.1f}" for key in ("recall@1", "map@r", "map"))
        print(f"| {name} | {row} |", flush=True)

    add("cosine", lambda: x)
    for neighbors in options.neighbors:
        add(f"query expansion, {neighbors}", lambda n=neighbors: expand_queries(x, neighbors=n))
    for k in options.k:
        add(f"k-reciprocal, k {k}", lambda k=k: k_reciprocal_distances(x, k=k))
    return found


def main() -> None:
    """Read the tables and print the measures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("train", help="table to learn the whitening on")
    parser.add_argument("test")
    parser.add_argument("--dim", type=int, default=512, help="of the whitened vectors")
    parser.add_argument("--neighbors", type=int, nargs="*", default=[1, 3, 10])
    parser.add_argument("--k", type=int, nargs="*", default=[20, 40])
    options = parser.parse_args()
    train, test = EmbeddingTable.load(options.train), EmbeddingTable.load(options.test)
    vectors, labels = torch.from_numpy(test.vectors), np.asarray(test.labels)
    known = torch.from_numpy(train.vectors)
    weight, bias = whitening_projection(known, torch.as_tensor(train.labels), options.dim)
    print("| | Recall@1, % | MAP@R, % | MAP, % |\n|---|---|---|---|", flush=True)
    for name, x in (("as they are", vectors), ("whitened", vectors @ weight.T + bias)):
        print(f"| **{name}** | | | |")
        rows_of(x, labels, options)


if __name__ == "__main__":
    main()
