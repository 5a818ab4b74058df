import os
from functools import partial
from pathlib import Path

import pytest

from kinspace._core.device import cpu_count
from kinspace.data.process_pool import chunks, process_map


@pytest.mark.parametrize(
    ("begin", "end", "workers"), [(0, 5, 2), (3, 300, 4), (0, 1, 8), (2, 2, 3)]
)
def test_chunks_hold_everything_once_in_order(begin: int, end: int, workers: int) -> None:
    parts = chunks(begin, end, workers)
    assert [number for part in parts for number in part] == list(range(begin, end))
    assert len(parts) >= min(workers, end - begin)


def test_processes_give_their_results_in_order() -> None:
    assert 1 <= cpu_count() <= (os.cpu_count() or 1)
    assert list(process_map(partial(pow, 2), range(5), 2, what="count")) == [1, 2, 4, 8, 16]
    assert list(process_map(partial(pow, 2), [], 2, what="count")) == []


def test_processes_that_die_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"that count ended early; .*pass workers=1"):
        list(process_map(partial(os._exit), [1, 1], 2, what="count"))


def test_parts_that_are_left_are_not_started_when_the_caller_stops(tmp_path: Path) -> None:
    commands = [f"sleep 0.05; touch '{tmp_path}/{number}'" for number in range(200)]
    results = process_map(partial(os.system), commands, 2, what="touch files")
    assert next(results) == 0
    results.close()  # as by Ctrl-C in the loop over them
    assert len(list(tmp_path.iterdir())) < 100
