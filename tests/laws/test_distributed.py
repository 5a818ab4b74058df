"""Several real processes give what one process gives on the whole batch."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import distributed_worker
from distributed_worker import SIZES, everything
from kinspace.distributed import gather
from processes import run_processes

SUM_OF_ROWS = {"embeddings", "embeddings 0", "embeddings 1"}  # each rank has its own rows of these


def rows_of(rank: int, sizes: list[int]) -> slice:
    start = sum(sizes[:rank])
    return slice(start, start + sizes[rank])


def differs(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return True
    if not found.is_floating_point():
        return not torch.equal(found, expected)
    return not torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("world", [2, 3])
def test_every_method_gives_on_several_processes_what_it_gives_on_one(
    world: int, tmp_path: Path
) -> None:
    ranks = run_processes(distributed_worker.__file__, world, tmp_path)
    expected = everything(None, world)
    problems = []
    for rank, left in enumerate(ranks):
        assert left["found"].keys() == expected.keys()
        for name, results in left["found"].items():
            assert results.keys() == expected[name].keys()
            sizes = [4, 0, 3] if name == "an empty rank" else SIZES
            for key, value in results.items():
                wanted = expected[name][key]
                if key in SUM_OF_ROWS:
                    wanted = wanted[rows_of(rank, sizes)]
                if differs(value, wanted):
                    problems.append(f"rank {rank}, {name}, {key}: {value}, expected {wanted}")
        assert left["errors"] == distributed_worker.errors()
    assert not problems, "\n".join(problems)


def test_a_process_that_fails_is_shown_with_its_traceback(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nif sys.argv[1] == '1': raise RuntimeError('rank one is ill')\n")
    with pytest.raises(AssertionError, match="RuntimeError: rank one is ill"):
        run_processes(str(broken), 2, tmp_path)


# --- without several processes -------------------------------------------------------------------


def test_without_a_process_group_the_tensors_come_back_as_they_are() -> None:
    x, labels = torch.randn(3, 2, requires_grad=True), torch.arange(3)
    for averaged in (False, True):
        found = gather(x, labels, averaged=averaged)
        assert found[0] is x
        assert found[1] is labels


@pytest.fixture
def _group_of_one(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_group_of_one")
def test_in_a_group_of_one_the_tensors_come_back_as_they_are() -> None:
    x = torch.randn(3, 2, requires_grad=True)
    assert gather(x, averaged=True)[0] is x


@pytest.mark.parametrize(
    "tensors", [(torch.zeros(2, 3), torch.zeros(3)), ()], ids=["unequal", "none"]
)
def test_tensors_of_one_process_have_the_same_number_of_rows(tensors: tuple[Tensor, ...]) -> None:
    with pytest.raises(ValueError, match="expected one or more tensors of the same number of rows"):
        gather(*tensors)
