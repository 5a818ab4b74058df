"""The order in which a gallery shows neighbors: re-ranking changes it, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.search import Gallery, expand_queries, k_reciprocal_distances
from kinspace.search.neighbor_order import RERANKINGS, neighbor_order


def two_crowds(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    centers = rng.standard_normal((3, 12))
    labels = np.arange(count) % 3
    x = centers[labels] + 0.9 * rng.standard_normal((count, 12))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


X, LABELS = two_crowds()


def gallery_of(rerank: str) -> Gallery:
    gallery = Gallery(EmbeddingTable(X[1:], LABELS[1:], class_names=("a", "b", "c")))
    gallery.rerank = rerank
    return gallery


def test_the_orders_are_those_of_the_functions() -> None:
    assert neighbor_order("none", X[0], X[1:]).tolist() == list(range(59))
    expanded = expand_queries(X[:1], X[1:])[0].numpy()
    by_expansion = np.argsort(-(X[1:] @ expanded), kind="stable")
    assert neighbor_order("query_expansion", X[0], X[1:]).tolist() == by_expansion.tolist()
    shared = np.argsort(k_reciprocal_distances(X[:1], X[1:])[0], kind="stable")
    assert neighbor_order("k_reciprocal", X[0], X[1:]).tolist() == shared.tolist()
    for rerank in RERANKINGS:
        assert neighbor_order(rerank, X[0], X[1:2]).tolist() == [0]
    with pytest.raises(ValueError, match="rerank: expected one of"):
        neighbor_order("best", X[0], X[1:])


@pytest.mark.parametrize("rerank", ["query_expansion", "k_reciprocal"])
def test_a_gallery_shows_another_order_of_the_same_cosines(rerank: str) -> None:
    gallery, plain = gallery_of(rerank), gallery_of("none")
    found, near = gallery.ranked(X[0], 59), plain.ranked(X[0], 59)
    assert near == gallery.near(X[0], 59)
    assert [one.id for one in found] != [one.id for one in near]
    assert sorted(found, key=lambda one: (-one.similarity, one.row)) == near
    right = [sum(each.class_name == "a" for each in one[:19]) for one in (found, near)]
    assert right[0] >= right[1]
    only = gallery.ranked(X[0], 5, {"class": "b"})
    assert {one.class_name for one in only} == {"b"}
    assert len(only) == 5


def test_the_order_stays_in_the_folder(tmp_path: Path) -> None:
    gallery = gallery_of("k_reciprocal")
    gallery.build(tmp_path, "exact", precision="int8")
    gallery.save(tmp_path)
    opened = Gallery.load(tmp_path)
    assert (opened.rerank, opened.precision) == ("k_reciprocal", "int8")
    other = gallery_of("query_expansion")
    other.save(tmp_path)
    opened.refresh()
    assert (opened.rerank, opened.precision) == ("query_expansion", "float32")
