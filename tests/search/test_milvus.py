"""What only the database does, against a real milvus-lite file: versions, moves, wrong requests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kinspace.search import MilvusIndex


@pytest.fixture
def index(tmp_path: Path) -> Iterator[MilvusIndex]:
    made = MilvusIndex(tmp_path / "birds.db", 3, name="birds")
    yield made
    made.close()


def test_another_model_takes_over_without_a_gap(index: MilvusIndex, tmp_path: Path) -> None:
    index.add(np.eye(3), [0, 1, 2])
    other = MilvusIndex(tmp_path / "birds.db", name="birds")  # another holder of the name
    fresh = index.next_version()
    assert index.collection == "birds_v1"
    assert fresh.collection == "birds_v2"
    fresh.add(-np.eye(3), [0, 1, 2])
    fresh.add(np.eye(3), [3, 4, 5])
    # searches go on in the old one while the new one fills
    assert other.search(np.eye(3)[:1], 1)[0].tolist() == [[0]]
    assert len(other) == 3
    fresh.publish()
    for holder in (index, other):
        assert holder.collection == "birds_v2"
        assert holder.search(np.eye(3)[:1], 1)[0].tolist() == [[3]]
        assert len(holder) == 6
    for published in (fresh, index, other):  # once is enough
        published.publish()
        assert len(published) == 6
    assert fresh.next_version().collection == "birds_v3"


def test_the_old_version_can_be_kept_to_go_back_to(index: MilvusIndex) -> None:
    index.add(np.eye(3), [0, 1, 2])
    fresh = index.next_version(dim=5)
    assert (index.dim, fresh.dim) == (3, 5)
    fresh.publish(drop_old=False)
    back = index.next_version()
    assert back.collection == "birds_v3"


def test_many_rows_go_in_by_several_requests(index: MilvusIndex) -> None:
    x = np.random.default_rng(0).standard_normal((2500, 3))
    index.add(x, np.arange(2500))
    assert len(index) == 2500
    assert index.search(x[2400:2402], 1)[0].tolist() == [[2400], [2401]]


def test_a_copied_database_is_found_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    index = MilvusIndex(tmp_path / "here" / "a.db", 2)
    index.add(np.eye(2), [0, 1])
    index.save(tmp_path / "here" / "a.json")
    index.close()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    again = MilvusIndex.load(tmp_path / "there" / "a.json")
    assert len(again) == 2
    again.close()


def test_says_what_is_wrong(index: MilvusIndex, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dim: expected 3, that of 'birds'"):
        MilvusIndex(tmp_path / "birds.db", 4, name="birds")
    with pytest.raises(ValueError, match="dim: expected one, since there is no 'fish'"):
        MilvusIndex(tmp_path / "birds.db", name="fish")
    with pytest.raises(ValueError, match="name: expected letters, digits and _, got 'a b'"):
        MilvusIndex(tmp_path / "birds.db", 3, name="a b")
    with pytest.raises(ValueError, match="uri: expected no password in it"):
        MilvusIndex("http://me:secret@localhost:19530", 3)
    (tmp_path / "text").write_text("[]")
    with pytest.raises(ValueError, match="expected a saved Milvus index"):
        MilvusIndex.load(tmp_path / "text")
    (tmp_path / "gone").write_text('{"milvus": "gone.db", "name": "birds"}')
    with pytest.raises(ValueError, match=r"gone.db: expected the database of .*gone, got no such"):
        MilvusIndex.load(tmp_path / "gone")


def test_a_word_in_a_filter_cannot_become_a_part_of_the_request(index: MilvusIndex) -> None:
    index.add(
        np.eye(3), [0, 1, 2], [0, 1, 2], {"word": ["a", "b", 'x" or label in [0, 1, 2] or "']}
    )
    for word, hits in (('" or true or "', []), ('x" or label in [0, 1, 2] or "', [2])):
        ids = index.search(np.ones((1, 3)), 3, where={"word": word})[0][0]
        assert ids[ids >= 0].tolist() == hits
