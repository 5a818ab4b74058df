"""Laws that hold for every index, against a loop in float64."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kinspace.search import (
    INDEXES,
    ExactIndex,
    FaissIndex,
    Index,
    MilvusIndex,
    recall_against_exact,
)
from milvus_servers import milvus_place, server

Make = Callable[[int], Any]


gpu = pytest.param(
    "gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
)


@pytest.fixture(params=["exact", gpu, "faiss", "file", server])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Each index; the exact one on a GPU too, and Milvus on a server, if available."""
    with ExitStack() as opened:

        def new(dim: int) -> Index:
            if request.param == "gpu":
                return ExactIndex(dim, device="cuda")
            if request.param in INDEXES:
                return INDEXES[request.param](dim)
            index = opened.enter_context(milvus_place(request.param, tmp_path)).open(dim)
            opened.callback(index.close)
            return index

        yield new


def vectors(count: int, dim: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


def nearest(x: Any, query: Any, k: int, ids: Any) -> list[int]:
    """By hand: cosine in float64, the lower id first among equals."""
    x, query = x.astype(np.float64), query.astype(np.float64)
    cosines = [float(row @ query / np.linalg.norm(row) / np.linalg.norm(query)) for row in x]
    return [i for _, i in sorted(zip([-c for c in cosines], ids, strict=True))][:k]


def test_the_registry_has_every_index() -> None:
    assert {"exact": ExactIndex, "faiss": FaissIndex, "milvus": MilvusIndex} == INDEXES


def test_finds_the_nearest_with_their_cosines(make: Make) -> None:
    x, queries, ids = vectors(300, 8), vectors(5, 8, 1), np.arange(300) * 3
    index = make(8)
    index.add(x, ids)
    found, cosines = index.search(queries, 7)
    assert found.shape == cosines.shape == (5, 7)
    assert found.dtype == np.int64
    assert cosines.dtype == np.float32
    for row, query in enumerate(queries):
        assert found[row].tolist() == nearest(x, query, 7, ids)
        near = x[found[row] // 3]
        truth = near @ query / np.linalg.norm(near, axis=1) / np.linalg.norm(query)
        assert cosines[row] == pytest.approx(truth, abs=1e-5)


def test_filters_by_label_and_attribute(make: Make) -> None:
    x, labels = vectors(60, 4), np.arange(60) % 3
    index = make(4)
    colors = ["red" if i % 2 else 'say "ü"' for i in range(60)]
    big = np.arange(60) >= 30
    index.add(x, np.arange(60), labels, {"color": colors, "size=big": big})
    query = vectors(1, 4, 1)

    def expected(fits: Any) -> list[int]:
        return nearest(x[fits], query[0], 60, np.flatnonzero(fits))

    every = np.arange(60)
    for where, fits in (
        ({"label": 1}, labels == 1),
        ({"label": np.int64(1), "size=big": np.True_}, (labels == 1) & big),
        ({"label": [0, 2]}, labels != 1),
        ({"color": 'say "ü"'}, every % 2 == 0),
        ({"color": ["red"], "label": [2], "size=big": True}, (every % 6 == 5) & big),
        ({"label": []}, every < 0),
        ({"color": []}, every < 0),
        ({"label": 77}, every < 0),
    ):
        ids, cosines = index.search(query, 60, where=where)
        hits = expected(fits)
        assert ids[0].tolist() == hits + [-1] * (60 - len(hits)), where
        assert np.isneginf(cosines[0, len(hits) :]).all()


def test_a_vector_added_again_takes_the_place_of_the_first(make: Make) -> None:
    index = make(2)
    index.add(np.array([[1.0, 0.0], [0.0, 1.0]]), [7, 9], [0, 0])
    index.add(np.array([[-1.0, 0.0]]), [7], [1])
    assert len(index) == 2
    ids, cosines = index.search(np.array([[-1.0, 0.1]]), 3)
    assert ids.tolist() == [[7, 9, -1]]
    assert cosines[0, 0] == pytest.approx(1 / np.hypot(1, 0.1))
    assert index.search(np.array([[1.0, 0.0]]), 1, where={"label": 1})[0].tolist() == [[7]]


def test_deletes(make: Make) -> None:
    x = vectors(50, 4)
    index = make(4)
    index.add(x, np.arange(50))
    assert index.delete([3, 4, 99]) == 2
    assert index.delete([3]) == 0
    assert len(index) == 48
    rest = np.delete(np.arange(50), [3, 4])
    assert index.search(x[3:4], 48)[0][0].tolist() == nearest(x[rest], x[3], 48, rest)
    assert index.delete(rest) == 48
    ids, cosines = index.search(x[:2], 2)
    assert (ids == -1).all()
    assert np.isneginf(cosines).all()
    index.add(x[:1], [3])
    assert index.search(x[:1], 1)[0].tolist() == [[3]]


def test_an_empty_index_finds_nothing(make: Make) -> None:
    index = make(3)
    assert len(index) == 0
    assert index.search(np.ones((2, 3)), 4)[0].tolist() == [[-1] * 4] * 2


def test_a_saved_index_finds_the_same(make: Make, tmp_path: Path) -> None:
    x = vectors(40, 4)
    index = make(4)
    index.add(x, np.arange(40), np.arange(40) % 2, {"word": [f"w{i % 5}" for i in range(40)]})
    index.add(-x[:3], [0, 1, 2], [0, 1, 0], {"word": ["w0", "w1", "w2"]})
    index.delete([5])
    where = {"word": ["w1", "w2"], "label": 1}
    before = index.search(x[:6], 9, where=where)
    file = tmp_path / "saved.index"
    index.save(file)
    if isinstance(index, MilvusIndex):
        index.close()
    again = type(index).load(file)
    assert len(again) == 39
    assert again.dim == 4
    after = again.search(x[:6], 9, where=where)
    assert before[0].tolist() == after[0].tolist()
    assert before[1] == pytest.approx(after[1], abs=1e-6)
    if isinstance(again, MilvusIndex):
        again.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 5)), [0, 1]), "vectors: expected 3 columns, the dim of the index, got 5"),
        ((np.ones((2, 3)), [0]), r"ids: expected 2 integers, one per vector, got int64 \(1,\)"),
        ((np.ones((2, 3)), [0, 0]), "ids: expected a different number for each vector, got one"),
        ((np.ones((2, 3)), [0, -1]), "ids: expected 0 or more, got -1"),
        ((np.ones((2, 3)), [0.5, 1]), "ids: expected 2 integers"),
        ((np.full((2, 3), np.nan), [0, 1]), "vectors: expected finite numbers, got NaN"),
        ((np.ones((1, 3)), [0], None, {"label": [1]}), "expected another name than 'label'"),
        (
            (np.ones((1, 3)), [0], None, {"a": [1, 2]}),
            "attribute 'a': expected 1 numbers",
        ),
    ],
)
def test_invalid_input_is_an_error(make: Make, arguments: Any, message: str) -> None:
    index = make(3)
    with pytest.raises(ValueError, match=message):
        index.add(*arguments)
    assert len(index) == 0


def test_refuses_queries_that_cannot_be(make: Make) -> None:
    index = make(3)
    index.add(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match="queries: expected 3 columns"):
        index.search(np.ones((1, 2)), 1)
    with pytest.raises(ValueError, match="k: expected at least 1, got 0"):
        index.search(np.ones((1, 3)), 0)


def test_recall_is_the_share_of_the_true_neighbors_that_were_found() -> None:
    x = vectors(30, 4)
    exact, half = ExactIndex(4), ExactIndex(4)
    exact.add(x, np.arange(30))
    half.add(x[::2], np.arange(0, 30, 2))
    truth = exact.search(x, 5)[0]
    assert recall_against_exact(half, exact, x, 5) == pytest.approx((truth % 2 == 0).mean())
    assert recall_against_exact(exact, exact, x, 50) == 1
    with pytest.raises(ValueError, match="exact: expected an index with vectors in it"):
        recall_against_exact(half, ExactIndex(4), x, 5)
