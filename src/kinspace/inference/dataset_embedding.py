"""The embeddings of a whole data set: a table, or a file written shard by shard."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from kinspace import distributed
from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically, write_json
from kinspace._table_writers import require_writable
from kinspace.data.dataloader import PictureLoader
from kinspace.data.dataset import Dataset
from kinspace.data.pictures import UnreadablePicture, fingerprint
from kinspace.embeddings import EmbeddingTable
from kinspace.inference.model import EmbeddingModel

__all__ = ["embed_dataset", "embed_to_file"]

Progress = Callable[[int, int], object]


def embed_dataset(
    model: EmbeddingModel,
    dataset: Dataset,
    *,
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> EmbeddingTable:
    """The embeddings of all pictures, with their classes, names and attributes.

    progress: called with the number of pictures done and of all.
    """
    vectors = _embedded(model, dataset, range(len(dataset)), batch_size, workers, progress)
    return EmbeddingTable.from_dataset(dataset, vectors)


def embed_to_file(
    model: EmbeddingModel,
    dataset: Dataset,
    out: str | Path,
    *,
    shard: int = 8192,
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> EmbeddingTable | None:
    """Write the embeddings to a file, shard by shard in the folder OUT.parts.

    out: a new file; its ending is the format, .npz, .npy, .parquet or .tsv (`EmbeddingTable.save`).

    An interrupted call resumes with the missing shards. Under torchrun each process
    makes its share of them and the first puts them together; the others return None.
    """
    out = Path(out)
    checks.integer("shard", shard, at_least=1)
    require_writable(out)
    if out.exists() or not out.parent.is_dir():
        raise ValueError(f"{out}: expected a new file, in a folder that is there")
    began = distributed.init_process_group(model.device)
    try:
        rank, world = distributed.rank(), distributed.world_size()
        parts = out.with_name(f"{out.name}.parts")
        # every process checks, so that all of them stop where the plan is another
        _planned(parts, _plan(model, dataset, shard), write=rank == 0)
        starts = range(0, len(dataset), shard)
        todo = [at for at in starts if not _file(parts, at).exists()]
        distributed.barrier()  # all have looked before the first shard is written
        for number, at in enumerate(todo[rank::world]):
            rows = range(at, min(at + shard, len(dataset)))
            vectors = _embedded(model, dataset, rows, batch_size, workers)
            write_atomically(_file(parts, at), partial(_write, vectors))
            if progress is not None:
                done = len(starts) - len(todo) + (number + 1) * world
                progress(min(done * shard, len(dataset)), len(dataset))
        distributed.barrier()
        if rank:
            return None
        vectors = np.concatenate([np.load(_file(parts, at)) for at in starts])
        table = EmbeddingTable.from_dataset(dataset, vectors)
        table.save(out)
        shutil.rmtree(parts)
        return table
    finally:
        if began:
            dist.destroy_process_group()


def _file(parts: Path, start: int) -> Path:
    return parts / f"{start:012}.npy"


def _write(vectors: NDArray[np.float32], file: Path) -> None:
    with file.open("wb") as out:  # np.save would add .npy to the name
        np.save(out, vectors)


def _plan(model: EmbeddingModel, dataset: Dataset, shard: int) -> dict[str, Any]:
    """What shards have to have in common to be of one table."""
    weights = hashlib.blake2b(digest_size=16)
    for name, value in sorted(model.module.state_dict().items()):
        weights.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return {
        "weights": weights.hexdigest(),
        "transform": None if model.settings is None else model.settings.to_dict(),
        "views": model.views,
        "pictures": fingerprint(dataset.pictures),
        "shard": shard,
    }


def _planned(parts: Path, plan: dict[str, Any], *, write: bool) -> None:
    path = parts / "plan.json"
    if not path.exists():
        if write:
            parts.mkdir(exist_ok=True)
            write_json(path, plan)
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    different = [name for name in plan if found.get(name) != plan[name]]
    if different:
        raise ValueError(
            f"{parts}: expected shards of this table, got some of other {', '.join(different)}; "
            "remove the folder to start again"
        )


def _embedded(
    model: EmbeddingModel,
    dataset: Dataset,
    rows: Sequence[int],
    batch_size: int,
    workers: int,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """The vectors of these rows; the pictures are read batch by batch, and none is kept."""
    checks.integer("batch_size", batch_size, at_least=1)
    places = [list(rows[at : at + batch_size]) for at in range(0, len(rows), batch_size)]
    transform = model.transform or torch.as_tensor
    loader = PictureLoader(dataset, places, transform, workers=workers, device=model.device)
    batches = (batch.images for batch in loader)
    found: list[NDArray[np.float32]] = []
    try:
        for vectors in model.embed_batches(batches, pictures=len(rows)):
            found.append(vectors)
            if progress is not None:
                progress(min(len(found) * batch_size, len(rows)), len(rows))
    except UnreadablePicture as error:
        raise ValueError(f"{error}; `kinspace check` lists all that cannot be read") from None
    return np.concatenate(found)
