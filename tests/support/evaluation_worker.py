"""What one process of test_evaluation_distributed.py does.

python evaluation_worker.py RANK WORLD FOLDER
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from kinspace.evaluation import Retrieval, RetrievalMetrics


def problem() -> Retrieval:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 30, (201,), generator=generator)
    vectors = torch.randn(30, 8, generator=generator)[labels]
    vectors += 1.2 * torch.randn(201, 8, generator=generator)
    vectors[50:60] = vectors[:10]
    return Retrieval(vectors, labels)


def batches(*parts: range) -> RetrievalMetrics:
    """The samples of the problem, in batches; those that come twice count once."""
    whole = problem()
    measure = RetrievalMetrics(more=("mrr",))
    for part in parts:
        rows = torch.tensor(part)
        measure.update(whole.vectors[rows], whole.labels[rows], ids=rows)
    return measure


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        scores = problem().shared_scores()
        measures = batches(range(rank, 201, world), range(3)).compute()
    finally:
        dist.destroy_process_group()
    torch.save(
        {"values": scores.values, "matches": scores.matches, "measures": measures},
        folder / f"{rank}.pt",
    )


if __name__ == "__main__":
    main()
