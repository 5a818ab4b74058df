"""Two real processes give the retrieval scores of one, to the last digit."""

from pathlib import Path

import pytest
import torch

import evaluation_worker
from processes import run_processes


@pytest.mark.parametrize("world", [2])
def test_processes_that_share_the_queries_get_the_scores_of_one(world: int, tmp_path: Path) -> None:
    expected = evaluation_worker.problem().scores()
    measures = evaluation_worker.batches(range(201)).compute()
    for left in run_processes(evaluation_worker.__file__, world, tmp_path):
        assert torch.equal(left["matches"], expected.matches)
        assert left["measures"] == pytest.approx(measures, rel=1e-12)
        assert left["values"].keys() == expected.values.keys()
        for name, values in expected.values.items():
            assert torch.equal(left["values"][name].nan_to_num(-1), values.nan_to_num(-1)), name


def test_one_process_alone_shares_with_nobody() -> None:
    retrieval = evaluation_worker.problem()
    found, expected = retrieval.shared_scores().summary(), retrieval.scores().summary()
    assert found == expected
