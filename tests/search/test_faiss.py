"""What only the faiss search does: learning, approximate answers, and how good they are."""

from pathlib import Path

import numpy as np
import pytest

from kinspace.search import ExactIndex, FaissIndex, recall_against_exact

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


def test_too_few_vectors_to_learn_from_are_an_error_that_says_what_to_do() -> None:
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
