"""A gallery that lives: changed by threads and processes, in a run folder."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.search import ExactIndex, FaissIndex, Gallery, Index
from kinspace.search.gallery_files import GalleryFiles

BACKENDS = ("exact", "faiss", "milvus")


def vectors(count: int, seed: int = 0, dim: int = 8) -> Any:
    x = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def made(folder: Path, backend: str = "exact", count: int = 30) -> Gallery:
    table = EmbeddingTable(
        vectors(count),
        np.arange(count) % 3,
        tuple(f"{row}.png" for row in range(count)),
        class_names=("io", "luna", "atlas"),
    )
    gallery = Gallery(table)
    if backend != "exact":
        gallery.build(folder, backend)
    gallery.save(folder)
    return gallery


def close(gallery: Gallery) -> None:
    if hasattr(gallery.index, "close"):
        gallery.index.close()


def add(gallery: Gallery, count: int, seed: int, name: str = "vega") -> None:
    gallery.add(vectors(count, seed), [name] * count, [None] * count, None)


def finds_its_own(gallery: Gallery) -> bool:
    near = [gallery.near(vector, 1)[0] for vector in gallery.table.vectors]
    return [each.row for each in near] == list(range(len(gallery.table)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_change_is_lasting_when_it_returns(backend: str, tmp_path: Path) -> None:
    gallery = made(tmp_path, backend)
    add(gallery, 4, seed=1)
    assert gallery.remove(["3.png", 5]) == 2
    assert gallery.relabel(["6.png", "7.png"], "luna") == 1  # 7.png was of luna already
    assert gallery.relabel(["8.png"], "new") == 1
    close(gallery)
    for saved in (False, True):
        again = Gallery.load(tmp_path)
        table = again.table
        assert len(table) == len(again.index) == 32
        assert "3.png" not in table.ids
        assert table.ids[-4:] == ("added", "added #2", "added #3", "added #4")
        names = {name: table.class_name(int(label)) for name, label in zip(table.ids, table.labels)}  # type: ignore[arg-type]  # noqa: B905
        assert (names["6.png"], names["8.png"], names["added"]) == ("luna", "new", "vega")
        assert finds_its_own(again)
        found = again.near(table.vectors[0], 32, {"class": ["new", "vega"]})
        assert sorted(near.id for near in found) == sorted([*table.ids[-4:], "8.png"])
        assert again.row_of("added #4") == 31
        if not saved:
            assert list(tmp_path.glob("*.journal"))
            again.save(tmp_path)
            assert not list(tmp_path.glob("*.journal"))
        close(again)


def test_a_change_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    gallery = made(tmp_path)
    with pytest.raises(ValueError, match=r"unknown picture 'x\.png'"):
        gallery.remove(["1.png", "x.png"])
    with pytest.raises(ValueError, match="remove: expected at least one picture to stay"):
        gallery.remove(range(30))
    with pytest.raises(ValueError, match="labels: expected a class name for each picture"):
        gallery.add(vectors(1), None, [None], None)
    with pytest.raises(ValueError, match=r"expected shape \(pictures, 8\), got \(1, 5\)"):
        gallery.add(vectors(1, dim=5), ["io"], [None], None)
    assert len(Gallery.load(tmp_path).table) == len(gallery.table) == 30
    plain = Gallery(EmbeddingTable(vectors(3)))
    with pytest.raises(ValueError, match="relabel: expected a gallery with class names"):
        plain.relabel([0], "io")
    plain.add(vectors(1, 1), None, [None], None)
    assert len(plain.table) == 4


class _Failing(ExactIndex):
    def add(self, *arguments: Any, **options: Any) -> None:
        if len(self) >= 30:
            raise ValueError("the database is gone")
        super().add(*arguments, **options)


def test_a_change_that_the_index_refuses_is_taken_back(tmp_path: Path) -> None:
    made(tmp_path)
    gallery = Gallery.load(tmp_path)
    index = _Failing(8)
    index.add(gallery.table.vectors, gallery.keys, gallery.table.labels)
    gallery._index = index
    with pytest.raises(ValueError, match="the database is gone"):
        add(gallery, 2, seed=3)
    assert len(gallery.table) == len(Gallery.load(tmp_path).table) == 30
    gallery._index = None
    add(gallery, 1, seed=4)
    assert len(Gallery.load(tmp_path).table) == 31


def test_a_damaged_journal_is_an_error_and_a_cut_one_is_not(tmp_path: Path) -> None:
    gallery = made(tmp_path)
    add(gallery, 2, seed=1)
    add(gallery, 2, seed=2)
    [journal] = tmp_path.glob("*.journal")
    whole = journal.read_bytes()
    for cut in (1, 300, len(whole) // 2 - 1):
        journal.write_bytes(whole[:-cut])
        assert len(Gallery.load(tmp_path).table) == 32
    journal.write_bytes(whole[:3])
    again = Gallery.load(tmp_path)
    assert len(again.table) == 30
    add(again, 1, seed=3)
    assert len(Gallery.load(tmp_path).table) == 31
    for at in (0, 9, 60, len(whole) // 2 + 40):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(
            ValueError, match=r"journal: expected a record at byte [\d,]+, got damaged"
        ):
            Gallery.load(tmp_path)


def test_a_gallery_without_a_generation_is_read_and_written_anew(tmp_path: Path) -> None:
    """As they were written before: compared by its number of rows alone."""
    gallery = made(tmp_path, "faiss")
    name = GalleryFiles(tmp_path).read().address["file"]
    (tmp_path / name).rename(tmp_path / "search-faiss.npz")
    gallery.table.save(tmp_path / "gallery.npz")
    about = tmp_path / "search.json"
    for text, said in (
        ('{"search": "fais", "rows": 30}', "unknown index 'fais'; did you mean"),
        ("{}", r"search\.json: expected the kind of an index"),
        ('{"search": "faiss", "rows": 9}', "an index of the 30 pictures .* got one of 9"),
    ):
        about.write_text(text)
        with pytest.raises(ValueError, match=said):
            Gallery.load(tmp_path)
    about.write_text('{"search": "faiss", "rows": 30}')
    old = Gallery.load(tmp_path)
    assert finds_its_own(old)
    add(old, 1, seed=1)
    old.save(tmp_path)
    again = Gallery.load(tmp_path)
    assert isinstance(again.index, FaissIndex)
    assert finds_its_own(again)
    assert len(again.table) == 31
    assert not about.exists()


def test_two_galleries_of_one_folder_have_the_changes_of_both(tmp_path: Path) -> None:
    made(tmp_path)
    one, other = Gallery.load(tmp_path), Gallery.load(tmp_path)
    add(one, 2, seed=1)
    assert len(other.table) == 30
    add(other, 2, seed=2)
    assert len(other.table) == 34
    assert one.refresh()
    assert not one.refresh()
    one.save(tmp_path)  # and a new generation for the other
    other.remove(["0.png"])
    assert len(other.table) == len(Gallery.load(tmp_path).table) == 33
    assert finds_its_own(other)


def test_a_long_journal_is_taken_into_the_gallery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinspace.search.gallery.JOURNAL", 5000)
    gallery = made(tmp_path)
    sizes = []
    for seed in range(20):
        add(gallery, 2, seed=seed)
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("*.journal")))
    assert 0 in sizes[1:]
    assert len(Gallery.load(tmp_path).table) == 70


def together(*work: Callable[[], None]) -> None:
    """All at one time, in a thread each; the first error that one of them has."""
    errors: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("make", [ExactIndex, FaissIndex])
def test_an_index_is_searched_while_it_is_added_to_and_deleted_from(
    make: Callable[[int], Index],
) -> None:
    """Every search finds what was there before; in the end every vector finds itself."""
    x = vectors(4000, dim=16)
    index = make(16)
    index.add(x[:1000], range(1000))
    done = threading.Event()

    def change() -> None:
        for at in range(1000, 4000, 50):
            index.add(x[at : at + 50], range(at, at + 50))
            index.delete([at])
        done.set()

    def search() -> None:
        rng = np.random.default_rng(threading.get_ident())
        while not done.is_set():
            rows = rng.integers(0, 1000, 8)
            ids, cosines = index.search(x[rows], 1)
            assert ids[:, 0].tolist() == rows.tolist()
            assert cosines.min() > 0.999

    together(change, search, search, search)
    kept = [row for row in range(4000) if row < 1000 or row % 50]
    assert len(index) == len(kept)
    assert index.search(x[kept], 1)[0][:, 0].tolist() == kept


@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_threads_add_remove_and_search_one_gallery(backend: str, tmp_path: Path) -> None:
    gallery = made(tmp_path, backend, count=60)
    table, done = gallery.table, threading.Event()
    added = [vectors(2, 100 + number) for number in range(60)]

    def adding(part: int) -> Callable[[], None]:
        def work() -> None:
            for number in range(part, 60, 3):
                pair = added[number]
                gallery.add(pair, ["vega"] * 2, [f"/{number}/a.png", f"/{number}/b.png"], None)

        return work

    def removing() -> None:
        for row in range(0, 30, 2):
            gallery.remove([f"{row}.png"])
        done.set()

    def searching() -> None:
        while not done.is_set():
            for row in range(30, 60):
                [near] = gallery.near(table.vectors[row], 1)
                assert (near.id, near.similarity) == (f"{row}.png", pytest.approx(1, abs=1e-5))

    together(adding(0), adding(1), adding(2), removing, searching, searching)
    assert len(gallery.table) == 60 + 120 - 15
    paths = [path for path in gallery.table.paths or () if path]
    assert sorted(paths) == sorted(f"/{n}/{name}.png" for n in range(60) for name in "ab")
    for each in (gallery, Gallery.load(tmp_path)):
        assert finds_its_own(each)
        assert each.table.ids == gallery.table.ids


PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, {tests!r})
from kinspace.search import Gallery
from kinspace.search.gallery_files import GalleryFiles
folder = Path({folder!r})
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    started = []

    def start(code: str) -> Any:
        head = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
        command = [sys.executable, "-c", head + code]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


def test_a_second_process_is_told_who_changes_the_gallery(
    tmp_path: Path, process: Callable[[str], Any]
) -> None:
    gallery = made(tmp_path)
    other = process(
        "with GalleryFiles(folder).lock('kinspace index'):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    assert other.stdout.readline() == "held\n"
    holder = rf"in use by process {other.pid} on .* \(kinspace index\), since 2"
    lock = GalleryFiles(tmp_path).lock("a test", wait=0.2)
    with pytest.raises(BlockingIOError, match=holder), lock:
        pass
    assert finds_its_own(Gallery.load(tmp_path))  # reading needs no lock
    other.kill()  # and a killed process holds none
    add(gallery, 1, seed=1)
    assert json.loads((tmp_path / "gallery.lock").read_text() or "{}") == {}


def test_a_file_of_milvus_lite_that_is_open_elsewhere_says_so(
    tmp_path: Path, process: Callable[[str], Any]
) -> None:
    gallery = made(tmp_path, "milvus")
    other = process(
        "try:\n    Gallery.load(folder)\nexcept ValueError as error:\n    print(error)\n"
    )
    assert "one process at a time can open such a file" in other.stdout.read()
    close(gallery)


@pytest.mark.slow
def test_processes_add_to_one_gallery_at_one_time(
    tmp_path: Path, process: Callable[[str], Any]
) -> None:
    made(tmp_path)
    started = [
        process(
            "gallery = Gallery.load(folder)\n"
            "for number in range(20):\n"
            f"    x = np.random.default_rng([{part} + 7, number]).standard_normal((2, 8))\n"
            f"    gallery.add(x, ['c{part}'] * 2, [None] * 2, None)\n"
        )
        for part in range(3)
    ]
    for each in started:
        assert each.wait(100) == 0
    again = Gallery.load(tmp_path)
    assert len(again.table) == 30 + 120
    assert finds_its_own(again)


def test_a_collection_that_milvus_lite_cannot_load_any_more_is_made_anew(
    tmp_path: Path, process: Callable[[str], Any]
) -> None:
    """A kill in the middle of a write leaves an empty file of an index."""
    made = process(
        "from kinspace.embeddings import EmbeddingTable\n"
        "x = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)\n"
        "gallery = Gallery(EmbeddingTable(x, np.arange(30) % 3, class_names=('a', 'b', 'c')))\n"
        "gallery.build(folder, 'milvus'); gallery.save(folder)\n"
        "gallery.add(x[:1] + 1, ['d'], [None], None)\n"
    )
    assert made.wait(100) == 0
    files = [path for path in (tmp_path / "milvus.db").rglob("*") if path.suffix == ".idx"]
    assert files
    for file in files:
        file.write_bytes(b"")
    again = Gallery.load(tmp_path)
    assert len(again.index) == len(again.table) == 31
    assert finds_its_own(again)
    close(again)
