"""The k-th largest value: looked up on the CPU, sorted where values cannot be read."""

import math

import pytest
import torch

from kinspace._core.selection import kth_largest

VALUES = torch.tensor([2.0, -math.inf, 5.0, 5.0, -math.inf, 1.0])
DESCENDING = [5.0, 5.0, 2.0, 1.0, -math.inf, -math.inf]


@pytest.mark.parametrize("k", range(1, 7))
def test_counts_from_the_largest(k: int) -> None:
    assert kth_largest(VALUES, torch.tensor(k)) == DESCENDING[k - 1]


def test_beyond_the_end_it_is_the_smallest() -> None:
    assert kth_largest(torch.tensor([2.0, 1.0]), torch.tensor(9)) == 1


def test_is_the_same_where_values_cannot_be_read() -> None:
    asked = torch.arange(1, 10)
    found = torch.func.vmap(kth_largest, in_dims=(None, 0))(VALUES, asked)
    assert found.tolist() == [*DESCENDING, *[-math.inf] * 3]
    compiled = torch.compile(kth_largest, fullgraph=True, backend="aot_eager")
    assert compiled(VALUES, torch.tensor(3)) == 2
