"""The reporter that fits: a line in a terminal, lines in a log, nothing where none is wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kinspace.data import Dataset
from kinspace.distributed import is_main_process
from kinspace.training.log import Lines, NotFinite, ProgressLine, Reporter

__all__ = ["Silent", "blamed", "reporter_for", "tensorboard_for", "tensorboard_writer"]


class Silent:
    """Says nothing."""

    def begin(self, steps: int) -> None:
        """Nothing."""

    def row(self, row: Mapping[str, Any]) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def reporter_for(*, quiet: bool = False) -> Reporter:
    """The reporter for this process and where its words go.

    >>> type(reporter_for(quiet=True)).__name__
    'Silent'
    """
    if quiet or not is_main_process():
        return Silent()
    return ProgressLine() if sys.stderr.isatty() else Lines()


def blamed(error: NotFinite, train: Dataset, folder: Path) -> str:
    """The batch by the names of its pictures, what is left of the run, and what to do."""
    names = ", ".join(train.pictures.name(index) for index in error.indices[:5])
    more = f" and {len(error.indices) - 5} more" if len(error.indices) > 5 else ""
    last = folder / "last.safetensors"
    kept = f"the last good checkpoint is kept: {last}"
    return (
        f"{error}, on the batch of {names}{more}; "
        f"{kept if last.exists() else 'there was no checkpoint yet'}. Lower the learning rate, "
        "clip the gradients (optimizer.clip_norm), or use precision bf16 or float32"
    )


def tensorboard_writer() -> Any:
    """PyTorch's writer for TensorBoard; a ValueError where that is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "tensorboard is not installed; pip install 'kinspace[tensorboard]', or leave the "
            "option out: metrics.jsonl has the same numbers"
        ) from None
    return SummaryWriter


def tensorboard_for(folder: Path) -> Callable[[Mapping[str, Any]], None]:
    """A function that writes rows of numbers for TensorBoard."""
    writer = tensorboard_writer()(str(folder / "tensorboard"))

    def write(row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if name != "step" and isinstance(value, (int, float)):
                writer.add_scalar(name, value, row["step"])
        writer.flush()

    return write
