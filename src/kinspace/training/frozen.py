"""Training on features that a frozen backbone computes once.

With `model.freeze` the backbone does not change, so that each picture has the same features in
every epoch. They are computed before the first step and kept in the run folder; a step then costs
the head and the loss alone. It is the training with a frozen backbone exactly: batch norm in eval
mode, and with one view the center crop of each picture. With `model.freeze_views` above 1 each
picture has further views, random crops, of which a batch takes one.

    RUN/features/train.safetensors   (views, pictures, features), and what they were made of
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinspace.data.dataloader import sequential_batches
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import PictureSubset, fingerprint
from kinspace.distributed import barrier, gather, is_main_process, rank, world_size
from kinspace.models import Embedder
from kinspace.training.data_parts import DataPart, DataParts
from kinspace.training.embedding import embed_all
from kinspace.training.run_folder import read_checkpoint, write_checkpoint

__all__ = ["features_of", "freeze", "kept_features", "with_features"]

Status = Callable[[int, int], object]


def freeze(model: Embedder) -> None:
    """Freeze the backbone: no gradients, batch norm in eval mode."""
    model.freeze_batch_norm()
    model.freeze_backbone()


def with_features(
    parts: DataParts,
    model: Embedder,
    *,
    folder: Path | None = None,
    views: int = 1,
    test_views: int = 1,
    batch_size: int = 128,
    progress: Status | None = None,
) -> DataParts:
    """The parts with the features of the model's backbone in place of their pictures.

    folder: where they are kept, and read if they are there. views: of each training picture.
    test_views: over which the features of the other parts are averaged.
    """

    def found(name: str, part: DataPart) -> DataPart:
        file = None if folder is None else folder / f"{name}.safetensors"
        several = {"views": views} if name == "train" else {"mean_over": test_views}
        features = _kept(part, model, file, batch_size=batch_size, progress=progress, **several)
        return replace(part, features=features)

    validation, test = (
        None if part is None else found(name, part)
        for name, part in (("validation", parts.validation), ("test", parts.test))
    )
    return replace(parts, train=found("train", parts.train), validation=validation, test=test)


def kept_features(parts: DataParts, model: Embedder, folder: Path) -> DataParts | None:
    """The parts with the features in a folder of `with_features`; None where they are not there.

    For one view of each picture.
    """

    def found(name: str, part: DataPart) -> DataPart | None:
        several = {"views": 1, "mean_over": 1}
        stamp, file = _stamp(part, model, **several), folder / f"{name}.safetensors"
        features = None if stamp is None else _read(file, stamp, part.device)
        return None if features is None else replace(part, features=features)

    with_them = {name: found(name, part) for name, part in parts.by_name().items()}
    if None in with_them.values():
        return None
    return replace(parts, **with_them)  # type: ignore[arg-type]


def _read(file: Path, stamp: dict[str, Any], device: torch.device) -> Tensor | None:
    """The features in a file; None where it is not there, damaged, or of something else."""
    if not file.exists():
        return None
    try:
        tensors, made_of = read_checkpoint(file, device)
    except ValueError:
        return None
    return tensors["features"] if made_of == stamp else None


def features_of(
    part: DataPart,
    model: Embedder,
    *,
    views: int = 1,
    mean_over: int = 1,
    batch_size: int = 128,
    progress: Status | None = None,
) -> Tensor:
    """The features of a part, (views, samples, features), on its device.

    The first view is the center crop, or with `mean_over` the mean over so many random crops; the
    others are training crops.
    """
    first = embed_all(
        model, part, batch_size=batch_size, views=mean_over, what="features", progress=progress
    )
    rows = [first.to(part.device)]
    rows += [_view(model, part, batch_size, seed) for seed in range(1, views)]
    return torch.stack(rows)


@torch.no_grad()
def _view(model: Embedder, part: DataPart, batch_size: int, seed: int) -> Tensor:
    """The features of one random training crop of each picture."""
    was_training = model.training
    model.eval()
    batches = sequential_batches(
        len(part.dataset), batch_size, rank=rank(), world_size=world_size()
    )
    try:
        rows = [
            model.features(batch.images).float()
            for batch in part.batches(batches, train=True, seed=seed)
        ]
    finally:
        model.train(was_training)
    return gather(torch.cat(rows))[0]


def _kept(
    part: DataPart,
    model: Embedder,
    file: Path | None,
    *,
    views: int = 1,
    mean_over: int = 1,
    batch_size: int,
    progress: Status | None,
) -> Tensor:
    """`features_of`, read from the file where it has them, else written to it."""
    stamp = None if file is None else _stamp(part, model, views=views, mean_over=mean_over)
    if file is not None and stamp is not None:
        kept = _read(file, stamp, part.device)
        if kept is not None:
            return kept
    features = features_of(
        part, model, views=views, mean_over=mean_over, batch_size=batch_size, progress=progress
    )
    if file is not None and stamp is not None:
        barrier()  # no process reads a file that another one is about to write
        if is_main_process():
            file.parent.mkdir(exist_ok=True)
            write_checkpoint(file, {"features": features}, stamp)
    return features


def _stamp(part: DataPart, model: Embedder, *, views: int, mean_over: int) -> dict[str, Any] | None:
    """All that decides what the features are; None for inputs in which a change is not seen."""
    pictures = part.dataset.pictures
    while isinstance(pictures, PictureSubset):
        pictures = pictures.whole
    if isinstance(pictures, SampleInputs) or part.settings is None:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    stamp = {
        "weights": digest.hexdigest(),
        "pooling": model.head.pooling,
        "test": {"mirror": model.mirror, "scales": list(model.scales)},
        "transform": part.settings.to_dict(),
        "pictures": fingerprint(part.dataset.pictures),
        "views": views,
        "mean_over": mean_over,
    }
    return json.loads(json.dumps(stamp))  # type: ignore[no-any-return]
