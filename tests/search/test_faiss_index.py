"""The faiss index: training, recall of approximate searches, and re-ranking."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.search import ExactIndex, FaissIndex, Reranked, recall_against_exact
from kinspace.search.gallery import Gallery

RNG = np.random.default_rng(0)
CENTERS = RNG.standard_normal((200, 16))
X = (CENTERS[np.arange(10_000) % 200] + 0.3 * RNG.standard_normal((10_000, 16))).astype(np.float32)
QUERIES = X[:100] + 0.05 * RNG.standard_normal((100, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def exact() -> ExactIndex:
    index = ExactIndex(16)
    index.add(X, np.arange(10_000))
    return index


@pytest.fixture(scope="module")
def compressed() -> FaissIndex:
    index = FaissIndex(16, kind="ivf_pq")
    index.add(X, np.arange(10_000), np.arange(10_000) % 200)
    return index


def test_a_compressed_index_finds_most_and_more_with_more_effort(
    exact: ExactIndex, compressed: FaissIndex
) -> None:
    before = compressed.effort
    recalls = []
    for effort in (1, 32):
        compressed.effort = effort
        recalls.append(recall_against_exact(compressed, exact, QUERIES))
    compressed.effort = before
    assert recalls[0] < recalls[1]
    assert recalls[1] > 0.5


def test_a_compressed_index_is_smaller_filters_and_survives_its_file(
    exact: ExactIndex, compressed: FaissIndex, tmp_path: Path
) -> None:
    compressed.save(tmp_path / "small")
    exact.save(tmp_path / "large")
    sizes = [(tmp_path / name).stat().st_size for name in ("small", "large")]
    assert sizes[0] < sizes[1] * 0.8
    again = FaissIndex.load(tmp_path / "small")
    ids, cosines = again.search(QUERIES, 5, where={"label": [3, 4]})
    assert set((ids % 200).ravel().tolist()) == {3, 4}
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert again.search(QUERIES, 5)[0].tolist() == compressed.search(QUERIES, 5)[0].tolist()
    assert again.delete(np.arange(100)) == 100
    assert (again.search(QUERIES, 5)[0] >= 100).all()


def cosines_by_hand(query: Any, rows: Any) -> Any:
    near, query = X[rows].astype(np.float64), query.astype(np.float64)
    return near @ query / np.linalg.norm(near, axis=1) / np.linalg.norm(query)


def test_re_ranked_with_the_full_vectors_a_compressed_index_finds_nearly_all(
    exact: ExactIndex, compressed: FaissIndex
) -> None:
    index = Reranked(compressed, lambda rows: X[rows])  # X is not of length 1
    codes = recall_against_exact(compressed, exact, QUERIES)
    assert recall_against_exact(index, exact, QUERIES) > max(0.95, codes)
    found, cosines = index.search(QUERIES, 10)
    for row in (0, 60):
        assert cosines[row] == pytest.approx(cosines_by_hand(QUERIES[row], found[row]), abs=1e-6)
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert (len(index), index.dim) == (10_000, 16)
    # in blocks of queries as all at once
    many = np.tile(QUERIES, (11, 1))
    assert index.search(many, 3)[0].tolist() == found[:, :3].tolist() * 11


def test_missing_results_are_minus_one(compressed: FaissIndex) -> None:
    index = Reranked(compressed, lambda rows: X[rows])
    found, cosines = index.search(QUERIES[:2], 60, where={"label": 7})  # there are 50
    assert sorted(found[0, :50].tolist()) == list(range(7, 10_000, 200))
    assert (found[:, 50:] == -1).all()
    assert (cosines[:, 50:] == -np.inf).all()
    assert cosines[1, :50] == pytest.approx(cosines_by_hand(QUERIES[1], found[1, :50]), abs=1e-6)
    none, _ = index.search(QUERIES[:2], 3, where={"label": 777})
    assert none.tolist() == [[-1] * 3] * 2


def test_a_gallery_searched_by_codes_has_exact_cosines_and_survives_its_files(
    exact: ExactIndex, tmp_path: Path
) -> None:
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    names = tuple(map(str, range(200)))
    gallery = Gallery(EmbeddingTable(unit, np.arange(10_000) % 200, class_names=names))
    gallery.build(tmp_path, "faiss", kind="ivf_pq")
    gallery.add(-unit[:1], ["new"], [None], None)
    gallery.save(tmp_path)
    again = Gallery.load(tmp_path)
    truth = exact.search(QUERIES[:1], 5)[1][0]
    for each in (gallery, again):
        near = each.near(QUERIES[0], 5)
        assert [one.similarity for one in near] == pytest.approx(truth.tolist(), abs=1e-6)
        added = each.near(-unit[0], 1)[0]
        assert (added.class_name, added.similarity) == ("new", pytest.approx(1, abs=1e-6))


def test_too_few_vectors_to_train_on_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"at least 9,984 vectors .* got 100; use kind 'hnsw'"):
        FaissIndex(16, kind="ivf_pq").add(X[:100], np.arange(100))


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="kind: expected one of 'hnsw', 'ivf_pq', got 'flat'"):
        FaissIndex(16, kind="flat")


def test_a_graph_finds_nearly_all_also_with_many_rows_deleted(exact: ExactIndex) -> None:
    index = FaissIndex(16)
    index.add(X[:4000], np.arange(4000))
    whole = ExactIndex(16)
    whole.add(X[:4000], np.arange(4000))
    assert recall_against_exact(index, whole, QUERIES) > 0.95
    for each in (index, whole):
        each.delete(np.arange(0, 4000, 2))
    assert recall_against_exact(index, whole, QUERIES) > 0.95
