"""Milvus with a byte or a bit of each number: alone, re-scored in a gallery, and from its files.

Against a real milvus-lite file, and a real server where KINSPACE_MILVUS_URL names one; only a
server has binary vectors.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.search import ExactIndex, Gallery, MilvusIndex, Reranked, recall_against_exact
from kinspace.search.gallery_index import check_index, without_reranking
from milvus_servers import Place, milvus_place, needs_server

CASES = [
    pytest.param("file", "int8", id="int8 in a file"),
    pytest.param("server", "int8", id="int8 on a server", marks=needs_server),
    pytest.param("server", "binary", id="binary on a server", marks=needs_server),
]
DIM = 60  # not a multiple of eight, as bits are stored


def clustered(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = 0.5 + np.random.default_rng(99).standard_normal((50, DIM))
    x = centers[rng.integers(0, len(centers), count)] + 0.6 * rng.standard_normal((count, DIM))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


X, QUERIES = clustered(1500, 0), clustered(40, 1)
LABELS = np.arange(1500) % 4


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with milvus_place(request.param, tmp_path) as found:
        yield found


def options(place: Place, precision: str) -> dict[str, str]:
    return {"uri": place.uri, "name": place.name, "precision": precision}


@pytest.mark.parametrize(("place", "precision"), CASES, indirect=["place"])
def test_finds_nearly_all_re_scored_also_from_another_connection(
    place: Place, precision: str, tmp_path: Path
) -> None:
    index, exact = MilvusIndex(dim=DIM, **options(place, precision)), ExactIndex(DIM)
    assert index.search(QUERIES, 2)[0].tolist() == [[-1, -1]] * 40
    for each in (index, exact):
        each.add(X, np.arange(1500), LABELS, {"even": np.arange(1500) % 2 == 0})
    index.save(tmp_path / "index.json")
    index.wait_until_indexed()
    for each in (index, MilvusIndex.load(tmp_path / "index.json")):
        assert (each.precision, each.dim, len(each)) == (precision, DIM, 1500)
        better = Reranked(each, lambda ids: X[ids], factor=20)
        assert recall_against_exact(better, exact, QUERIES) > 0.97
        ids, cosines = better.search(QUERIES, 5)
        assert cosines[0] == pytest.approx(X[ids[0]] @ QUERIES[0], abs=1e-6)
        found = each.search(X[:1], 1500, where={"label": 1, "even": False})[0][0]
        assert set(found[found >= 0].tolist()) <= set(range(1, 1500, 4))
        assert each.search(X[9:10], 1)[0].tolist() == [[9]]


@pytest.mark.parametrize(("place", "precision"), CASES, indirect=["place"])
def test_a_gallery_answers_exactly_and_stays_so_through_changes(
    place: Place, precision: str, tmp_path: Path
) -> None:
    rows = X[:400]
    gallery = Gallery(EmbeddingTable(rows, LABELS[:400], class_names=("a", "b", "c", "d")))
    gallery.build(tmp_path, "milvus", **options(place, precision))
    gallery.save(tmp_path)
    gallery.add(X[400:402], ["e", "e"], [None, None], None)
    gallery.remove(["3"])
    for each in (gallery, Gallery.load(tmp_path)):
        assert each.precision == precision
        below = without_reranking(each.index)
        assert isinstance(below, MilvusIndex)
        assert below.precision == precision
        near = each.near(X[400], 3)
        assert (near[0].class_name, near[0].similarity) == ("e", pytest.approx(1, abs=1e-6))
        best = np.sort(np.delete(X[:402], 3, 0) @ X[400])[::-1][:3]
        assert [one.similarity for one in near] == pytest.approx(best.tolist(), abs=1e-6)
        assert "3" not in {one.id for one in each.near(X[3], 5)}


@pytest.mark.parametrize(("place", "precision"), CASES, indirect=["place"])
def test_another_precision_and_dim_take_over(place: Place, precision: str) -> None:
    index = MilvusIndex(place.uri, 3, name=place.name)
    index.add(np.eye(3), [0, 1, 2])
    fresh = index.next_version(DIM, precision=precision)
    fresh.add(X[:200], range(200))
    fresh.publish()
    for each in (index, place.open()):  # the first was opened before
        assert (each.precision, each.dim) == (precision, DIM)
        assert each.search(X[7:8], 1)[0].tolist() == [[7]]
    with pytest.raises(ValueError, match=f"precision: expected {precision}, the precision of"):
        MilvusIndex(place.uri, name=place.name, precision="float32")


def test_a_file_refuses_binary_vectors_before_anything_is_embedded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="milvus-lite has no binary vectors"):
        check_index("milvus", {"precision": "binary"}, 1000)
    with pytest.raises(ValueError, match="milvus-lite has no binary vectors"):
        MilvusIndex(tmp_path / "a.db", 4, precision="binary")
    with pytest.raises(ValueError, match="precision: expected one of"):
        MilvusIndex(tmp_path / "a.db", 4, precision="int4")


def test_a_truncated_gallery_in_milvus_keeps_its_length(tmp_path: Path) -> None:
    table = EmbeddingTable(X[:300], LABELS[:300], class_names=("a", "b", "c", "d")).truncated(16)
    gallery = Gallery(table)
    gallery.build(tmp_path, "milvus", precision="int8")
    gallery.save(tmp_path)
    query = X[5, :16] / np.linalg.norm(X[5, :16])
    near = Gallery.load(tmp_path).near(query, 1)[0]
    assert (near.id, near.similarity) == ("5", pytest.approx(1, abs=1e-6))
