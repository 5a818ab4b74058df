"""Search: indexes of vectors (exact, faiss, Milvus), the gallery of a run, and thresholds."""

from kinspace.evaluation.thresholds import Thresholds, calibrate
from kinspace.search.compact import CompactIndex
from kinspace.search.exact import ExactIndex
from kinspace.search.faiss_index import FaissIndex
from kinspace.search.gallery import Gallery
from kinspace.search.gallery_index import INDEXES
from kinspace.search.index import Index, Where, recall_against_exact
from kinspace.search.milvus import MilvusIndex
from kinspace.search.query_expansion import expand_queries, k_reciprocal_distances
from kinspace.search.reranked import Reranked
from kinspace.search.run_gallery import open_gallery

__all__ = [
    "INDEXES",
    "CompactIndex",
    "ExactIndex",
    "FaissIndex",
    "Gallery",
    "Index",
    "MilvusIndex",
    "Reranked",
    "Thresholds",
    "Where",
    "calibrate",
    "expand_queries",
    "k_reciprocal_distances",
    "open_gallery",
    "recall_against_exact",
]
