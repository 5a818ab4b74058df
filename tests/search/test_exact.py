"""The exact index: equal cosines, blocks, and invalid files."""

from pathlib import Path

import numpy as np
import pytest

from kinspace.search import ExactIndex, exact


def test_the_lower_id_is_first_among_equals_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(exact.BLOCK, "cpu", 7)
    rng = np.random.default_rng(0)
    same, others = rng.standard_normal(16), rng.standard_normal((40, 16))
    ids = rng.permutation(100)
    index = ExactIndex(16)
    # one vector in 60 lengths: cosines equal but for rounding
    index.add(np.concatenate([same * np.arange(1, 61)[:, None], others]), ids)
    found, cosines = index.search(same[None], 10)
    copies = sorted(ids[:60].tolist())
    assert found[0].tolist() == copies[:10]
    assert cosines[0] == pytest.approx(np.ones(10), abs=1e-6)
    assert sorted(index.search(same[None], 60)[0][0].tolist()) == copies


@pytest.mark.parametrize("where", [None, {"label": [1, 2]}])
def test_blocks_change_nothing(where: object, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, queries = rng.standard_normal((500, 8)), rng.standard_normal((30, 8))
    index = ExactIndex(8)
    index.add(x, np.arange(500), np.arange(500) % 4)
    whole = index.search(queries, 12, where=where)  # type: ignore[arg-type]
    monkeypatch.setitem(exact.BLOCK, "cpu", 33)
    monkeypatch.setattr(exact, "QUERY_BLOCK", 4)
    parts = index.search(queries, 12, where=where)  # type: ignore[arg-type]
    assert whole[0].tolist() == parts[0].tolist()
    assert (whole[1] == parts[1]).all()


def test_zero_and_huge_vectors_have_cosines() -> None:
    index = ExactIndex(2)
    index.add(np.array([[0.0, 0.0], [1e38, 1e38], [1e-30, 0.0]], np.float32), [0, 1, 2])
    ids, cosines = index.search(np.array([[1e38, 0.0]], np.float32), 3)
    assert ids.tolist() == [[2, 1, 0]]
    assert cosines[0] == pytest.approx([1, 0.5**0.5, 0])


def test_an_unknown_attribute_is_an_error_with_a_suggestion() -> None:
    index = ExactIndex(2)
    index.add(np.eye(2), [0, 1], [0, 1], {"color": ["red", "blue"]})
    with pytest.raises(ValueError, match="unknown attribute 'colour'; did you mean 'color'"):
        index.search(np.eye(2), 1, where={"colour": "red"})
    assert index.search(np.eye(2), 1, where={"color": 3})[0].tolist() == [[-1], [-1]]
    with pytest.raises(ValueError, match=r"attributes: expected \['color'\], as for earlier"):
        index.add(np.eye(2), [2, 3])


def test_an_invalid_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        ExactIndex.load(tmp_path / "none.npz")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="expected a saved index, got another file"):
        ExactIndex.load(tmp_path / "text")
    np.savez(tmp_path / "other.npz", vectors=np.eye(2))
    with pytest.raises(ValueError, match="got one without ids, labels"):
        ExactIndex.load(tmp_path / "other.npz")
    np.savez(tmp_path / "pickled.npz", vectors=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="expected a saved index"):
        ExactIndex.load(tmp_path / "pickled.npz")
