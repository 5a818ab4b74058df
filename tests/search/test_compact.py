"""Compact vectors: int8 and binary, alone and re-scored in a gallery."""

from pathlib import Path

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.search import CompactIndex, ExactIndex, Gallery, Reranked, recall_against_exact
from kinspace.search.compact import _different_bits


def clustered(count: int, dim: int = 64, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).standard_normal((count // 20, dim))
    x = centers[rng.integers(0, len(centers), count)] + 0.6 * rng.standard_normal((count, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


X, QUERIES = clustered(4000), clustered(4000, seed=1)[:50]


@pytest.fixture(scope="module")
def exact() -> ExactIndex:
    index = ExactIndex(64)
    index.add(X, range(4000))
    return index


@pytest.mark.parametrize(
    ("precision", "alone", "factor", "rescored", "share"),
    [("int8", 0.95, 4, 0.999, 1 / 4), ("binary", 0.4, 20, 0.97, 1 / 32)],
)
def test_finds_most_alone_and_nearly_all_re_scored(
    exact: ExactIndex, precision: str, alone: float, factor: int, rescored: float, share: float
) -> None:
    index = CompactIndex(64, precision)
    index.add(X, range(4000))
    assert index.nbytes == share * X.nbytes
    assert recall_against_exact(index, exact, QUERIES) > alone
    better = Reranked(index, lambda ids: X[ids], factor=factor)
    assert recall_against_exact(better, exact, QUERIES) > rescored
    ids, cosines = better.search(QUERIES, 5)
    assert cosines[0] == pytest.approx(X[ids[0]] @ QUERIES[0], abs=1e-6)


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_replaces_deletes_filters_and_survives_its_file(precision: str, tmp_path: Path) -> None:
    index = CompactIndex(64, precision)
    assert index.search(QUERIES[:1], 2)[0].tolist() == [[-1, -1]]
    index.add(X[:300], range(300), np.arange(300) % 3, {"even": np.arange(300) % 2 == 0})
    index.add(-X[:1], [7], [2], {"even": [False]})
    assert index.delete([5, 6, 999]) == 2
    assert len(index) == 298
    index.save(tmp_path / "index")
    for each in (index, CompactIndex.load(tmp_path / "index")):
        assert each.search(-X[:1], 1)[0].tolist() == [[7]]
        assert each.search(X[8:9], 1)[0].tolist() == [[8]]
        ids = each.search(X[:1], 300, where={"label": 1, "even": True})[0][0]
        assert sorted(ids[ids >= 0]) == list(range(4, 300, 6))
        assert len(each) == 298


def test_the_bits_that_differ_are_counted() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (n, 11)).astype(np.uint8) for n in (3, 40))
    truth = [[sum(bin(x ^ y).count("1") for x, y in zip(p, q, strict=True)) for q in b] for p in a]
    assert _different_bits(a, b).tolist() == truth


def test_invalid_options_are_errors() -> None:
    with pytest.raises(ValueError, match="precision: expected one of"):
        CompactIndex(4, "float32")
    with pytest.raises(ValueError, match="precision: expected one of"):
        Gallery(EmbeddingTable(X[:5])).build(Path(), "exact", precision="int4")
    with pytest.raises(ValueError, match="kind: expected with another index"):
        Gallery(EmbeddingTable(X[:5])).build(Path(), "exact", kind="hnsw")


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_a_gallery_of_compact_vectors_answers_exactly_and_stays_so(
    precision: str, tmp_path: Path
) -> None:
    labels = np.arange(400) % 4
    gallery = Gallery(EmbeddingTable(X[:400], labels, class_names=("a", "b", "c", "d")))
    gallery.build(tmp_path, "exact", precision=precision)
    gallery.save(tmp_path)
    gallery.add(X[400:402], ["e", "e"], [None, None], None)
    gallery.remove(["3"])
    for each in (gallery, Gallery.load(tmp_path)):
        assert each.precision == precision
        assert isinstance(each.index, Reranked)
        near = each.near(X[400], 3)
        assert (near[0].class_name, near[0].similarity) == ("e", pytest.approx(1, abs=1e-6))
        best = np.sort(np.delete(X[:402], 3, 0) @ X[400])[::-1][:3]
        assert [one.similarity for one in near] == pytest.approx(best.tolist(), abs=1e-6)
        assert "3" not in {one.id for one in each.near(X[3], 5)}
