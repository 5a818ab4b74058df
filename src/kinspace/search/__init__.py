"""Search: which vectors are nearest. Exactly, by faiss, or by a database; one way to ask."""

from collections.abc import Callable

from kinspace.search.exact import ExactIndex
from kinspace.search.faiss_index import FaissIndex
from kinspace.search.index import Index, Where, recall_against_exact
from kinspace.search.milvus import MilvusIndex
from kinspace.search.reranked import Reranked

__all__ = [
    "SEARCHES",
    "ExactIndex",
    "FaissIndex",
    "Index",
    "MilvusIndex",
    "Reranked",
    "Where",
    "recall_against_exact",
]

SEARCHES: dict[str, Callable[..., Index]] = {
    "exact": ExactIndex,
    "faiss": FaissIndex,
    "milvus": MilvusIndex,
}
