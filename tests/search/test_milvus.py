"""The Milvus index: versions, moved files and invalid requests.

Against a real milvus-lite file, and a real server where KINSPACE_MILVUS_URL names one.
"""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kinspace.search import ExactIndex, MilvusIndex, recall_against_exact
from milvus_servers import Place, milvus_place, server


@pytest.fixture(params=["file", server])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with milvus_place(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def index(place: Place) -> Iterator[MilvusIndex]:
    made = place.open(3)
    yield made
    made.close()


def test_another_model_takes_over_without_a_gap(index: MilvusIndex, place: Place) -> None:
    index.add(np.eye(3), [0, 1, 2])
    other = place.open()  # another index of the same name
    fresh = index.next_version()
    assert index.collection == f"{place.name}_v1"
    assert fresh.collection == f"{place.name}_v2"
    fresh.add(-np.eye(3), [0, 1, 2])
    fresh.add(np.eye(3), [3, 4, 5])
    # searches go on in the old one while the new one fills
    assert other.search(np.eye(3)[:1], 1)[0].tolist() == [[0]]
    assert len(other) == 3
    fresh.publish()
    for holder in (index, other):
        assert holder.collection == f"{place.name}_v2"
        assert holder.search(np.eye(3)[:1], 1)[0].tolist() == [[3]]
        assert len(holder) == 6
    for published in (fresh, index, other):  # once is enough
        published.publish()
        assert len(published) == 6
    assert len(fresh.versions()) == 2  # searches under way may need the first
    third = fresh.next_version()
    third.publish()
    assert sorted(index.versions()) == [f"{place.name}_v2", f"{place.name}_v3"]
    fourth = third.next_version()
    fourth.publish(drop_old=True)
    assert index.versions() == [index.collection] == [f"{place.name}_v4"]
    other.close()


def test_a_server_that_has_built_its_index_finds_nearly_all(place: Place) -> None:
    """The interim index of a server finds about half of these."""
    x = np.random.default_rng(0).standard_normal((4000, 16)).astype(np.float32)
    index, exact = place.open(16), ExactIndex(16)
    for each in (index, exact):
        each.add(x, np.arange(4000))
    index.wait_until_indexed()
    assert recall_against_exact(index, exact, x[:50] + 0.1) > 0.98
    index.close()


def test_searches_go_on_while_another_model_takes_over(index: MilvusIndex, place: Place) -> None:
    """A thread that keeps searching gets the old result or the new one, and no error."""
    index.add(np.eye(3), [0, 1, 2])
    answers: list[int] = []
    errors: list[ValueError] = []
    done = threading.Event()
    other = place.open()

    def search() -> None:
        while not done.is_set():
            try:
                answers.append(int(other.search(np.eye(3)[:1], 1)[0][0, 0]))
            except ValueError as error:
                errors.append(error)

    thread = threading.Thread(target=search)
    thread.start()
    for start in (10, 20, 30):
        fresh = index.next_version()
        fresh.add(np.eye(3), [start, start + 1, start + 2])
        fresh.publish()
    before = len(answers)
    while len(answers) < before + 3 and not errors:
        done.wait(0.01)
    done.set()
    thread.join()
    other.close()
    assert not errors
    assert set(answers) <= {0, 10, 20, 30}
    assert (answers[0], answers[-1]) == (0, 30)
    assert answers == sorted(answers)  # never back to an old one


def test_a_model_of_another_dimension_takes_over_too(index: MilvusIndex, place: Place) -> None:
    index.add(np.eye(3), [0, 1, 2])
    fresh = index.next_version(dim=5)
    assert (index.dim, fresh.dim) == (3, 5)
    fresh.add(np.eye(5), range(5))
    fresh.publish()
    assert sorted(fresh.versions()) == [f"{place.name}_v1", f"{place.name}_v2"]
    assert index.search(np.eye(5)[4:], 1)[0].tolist() == [[4]]
    assert index.dim == 5
    assert index.next_version().collection == f"{place.name}_v3"


def test_many_rows_go_in_by_several_requests(index: MilvusIndex) -> None:
    x = np.random.default_rng(0).standard_normal((2500, 3))
    index.add(x, np.arange(2500))
    assert len(index) == 2500
    assert index.search(x[2400:2402], 1)[0].tolist() == [[2400], [2401]]


def test_all_of_a_name_can_be_dropped(index: MilvusIndex, place: Place) -> None:
    index.next_version()
    index.drop()
    assert index.versions() == []
    with pytest.raises(ValueError, match=f"dim: expected one, since .* has no '{place.name}'"):
        place.open()


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


def test_another_process_searches_what_one_has_saved(tmp_path: Path) -> None:
    steps = {
        "write": "i = MilvusIndex('a.db', 2); i.add(np.eye(2), [4, 5]); i.save('a.json')",
        "read": "i = MilvusIndex.load('a.json'); print(len(i), i.search(np.eye(2), 1)[0].tolist())",
    }
    for name, code in steps.items():
        lines = f"import numpy as np\nfrom kinspace.search import MilvusIndex\n{code}"
        command = [sys.executable, "-c", lines]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stderr)
    assert done.stdout.strip() == "2 [[4], [5]]"


def test_an_invalid_name_or_dim_is_an_error(index: MilvusIndex, place: Place) -> None:
    with pytest.raises(ValueError, match=f"dim: expected 3, the dim of '{place.name}'"):
        place.open(4)
    with pytest.raises(ValueError, match=r"dim: .* has no 'fish_of_kinspace'"):
        MilvusIndex(place.uri, name="fish_of_kinspace")
    with pytest.raises(ValueError, match="name: expected letters, digits and _, got 'a b'"):
        MilvusIndex(place.uri, 3, name="a b")
    with pytest.raises(ValueError, match=f"got '{place.name}_v1', which is another"):
        MilvusIndex(place.uri, 3, name=f"{place.name}_v1")


def test_an_invalid_file_or_address_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="uri: expected an address without a password"):
        MilvusIndex("http://me:secret@localhost:19530", 3)
    with pytest.raises(ValueError, match="name: expected one, since a server may"):
        MilvusIndex("http://localhost:19530", 3)
    (tmp_path / "text").write_text("[]")
    with pytest.raises(ValueError, match="expected a saved Milvus index"):
        MilvusIndex.load(tmp_path / "text")
    (tmp_path / "gone").write_text('{"milvus": "gone.db", "name": "birds"}')
    with pytest.raises(ValueError, match=r"gone.db: expected the database of .*gone, got no such"):
        MilvusIndex.load(tmp_path / "gone")


def test_a_filter_value_cannot_inject_an_expression(index: MilvusIndex) -> None:
    index.add(
        np.eye(3), [0, 1, 2], [0, 1, 2], {"word": ["a", "b", 'x" or label in [0, 1, 2] or "']}
    )
    for word, hits in (('" or true or "', []), ('x" or label in [0, 1, 2] or "', [2])):
        ids = index.search(np.ones((1, 3)), 3, where={"word": word})[0][0]
        assert ids[ids >= 0].tolist() == hits
