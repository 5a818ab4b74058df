"""A whole data set of queries to a gallery, and the results as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kinspace.data.load import load_dataset
from kinspace.inference.dataset_embedding import embed_dataset
from kinspace.inference.model import EmbeddingModel
from kinspace.search.class_votes import Neighbor, Verdict

__all__ = ["QUERY_COLUMNS", "QueryResult", "result_rows", "search_pictures"]

QUERY_COLUMNS = (
    "query",
    "class",
    "confidence",
    "rank",
    "id",
    "neighbor_class",
    "similarity",
    "file",
)


@dataclass(frozen=True)
class QueryResult:
    """A query, its neighbors, and its class; verdict: None in a gallery without classes."""

    query: str
    file: str
    verdict: Verdict | None
    neighbors: tuple[Neighbor, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result in plain values."""
        if self.verdict is not None:
            return {"query": self.query, "file": self.file, **asdict(self.verdict)}
        neighbors = [asdict(near) for near in self.neighbors]
        return {"query": self.query, "file": self.file, "neighbors": neighbors}


def search_pictures(
    model: EmbeddingModel,
    data: Any,
    k: int = 10,
    *,
    strangers: float | None = None,
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[QueryResult]:
    """The neighbors and the class of each picture of a data set, with classes or without.

    data: as for `load_dataset`. strangers: the dial, as for `EmbeddingModel.classify`. progress:
    called with the pictures embedded and all.

    >>> for result in search_pictures(model, "queries/"):  # doctest: +SKIP
    ...     result.query, result.verdict.class_name
    """
    dataset = load_dataset(data)
    labeled = model.table.labels is not None
    table = embed_dataset(model, dataset, batch_size=batch_size, workers=workers, progress=progress)
    for row, vector in enumerate(table.vectors):
        file = table.paths[row] if table.paths else ""
        verdict = model.classify_vector(vector, k, strangers=strangers) if labeled else None
        near = model.near(vector, k) if verdict is None else verdict.neighbors
        yield QueryResult(table.ids[row], file, verdict, tuple(near))


def result_rows(results: Sequence[QueryResult]) -> list[dict[str, Any]]:
    """A row for each neighbor of each query, with the columns QUERY_COLUMNS.

    >>> near = Neighbor(0, "io/1.jpg", None, "io", 0, 0.9, None)
    >>> row = result_rows([QueryResult("a.jpg", "", None, (near,))])[0]
    >>> row["query"], row["rank"], row["id"]
    ('a.jpg', 1, 'io/1.jpg')
    """
    return [
        {
            "query": result.query,
            "class": "" if result.verdict is None else result.verdict.class_name,
            "confidence": _confidence(result.verdict),
            "rank": rank,
            "id": near.id,
            "neighbor_class": near.class_name,
            "similarity": round(near.similarity, 6),
            "file": near.path or "",
        }
        for result in results
        for rank, near in enumerate(result.neighbors, 1)
    ]


def _confidence(verdict: Verdict | None) -> float | str:
    if verdict is None or verdict.confidence is None:
        return ""
    return round(verdict.confidence, 4)
