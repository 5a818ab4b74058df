"""Locks between threads, and between processes on a folder."""

import errno
import threading
import time
from pathlib import Path

import pytest

from kinspace._core.locks import FolderLock, SharedLock


def test_a_writer_is_alone_and_goes_before_later_readers() -> None:
    lock, told = SharedLock(), list[str]()
    reading, waiting = threading.Event(), threading.Event()

    def first_reader() -> None:
        with lock.reading():
            reading.set()
            waiting.wait(10)
            time.sleep(0.05)
            told.append("reader before")

    def writer() -> None:
        reading.wait(10)
        waiting.set()
        with lock.writing():
            told.append("writer")

    def later_reader() -> None:
        waiting.wait(10)
        while not lock._waiting and "writer" not in told:
            time.sleep(0.001)
        with lock.reading():
            told.append("reader after")

    threads = [threading.Thread(target=each) for each in (first_reader, writer, later_reader)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert told == ["reader before", "writer", "reader after"]


def test_an_error_inside_releases_the_lock(tmp_path: Path) -> None:
    shared, folder = SharedLock(), FolderLock(tmp_path / "a.lock")
    for held in (shared.writing(), shared.reading(), folder.held("a test")):
        with pytest.raises(RuntimeError, match="inside"), held:
            raise RuntimeError("inside")
    with shared.writing(), folder.held("a test"):
        assert "a test" in folder.holder()
    assert folder.holder() == "another process"


def test_threads_take_turns_with_a_folder(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with FolderLock(tmp_path / "a.lock").held("a test"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 1


def test_a_file_system_without_locks_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with FolderLock(tmp_path / "a.lock").held("a test"):
        pass
