"""Batches with a reference, and losses called on both."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import kinspace.losses
from batches import NUM_CLASSES, Batch, random_batch


def reference_of(batch: Batch, seed: int) -> Batch:
    """Others in the batch's dimension, at its scale; some classes only here, some only there."""
    scale = float(batch.embeddings.abs().max()) or 1.0
    other = random_batch(
        seed + 50, classes=5, per_class=2 + seed % 2, dim=batch.embeddings.shape[1]
    )
    return Batch(other.embeddings * scale, (other.labels + seed) % NUM_CLASSES)


def arguments(batch: Batch, seed: int, *, includes_batch: bool) -> dict[str, Tensor]:
    other = reference_of(batch, seed)
    given = {"reference": other.embeddings, "reference_labels": other.labels}
    if includes_batch:
        given = {
            "reference": torch.cat([batch.embeddings, other.embeddings]),
            "reference_labels": torch.cat([batch.labels, other.labels]),
        }
    return {"embeddings": batch.embeddings, "labels": batch.labels, **given}


def function_of(name: str, includes_batch: bool, options: dict[str, Any]) -> Callable[..., Tensor]:
    def call(x: Tensor, labels: Tensor, reference: Tensor, reference_labels: Tensor) -> Tensor:
        return getattr(kinspace.losses, name)(  # type: ignore[no-any-return]
            x,
            labels,
            reference=reference,
            reference_labels=reference_labels,
            includes_batch=includes_batch,
            **options,
        )

    return call
