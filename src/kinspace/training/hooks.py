"""What the loop leaves in the run folder on its way: metrics, checkpoints, the best model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kinspace.distributed import is_main_process
from kinspace.training.checkpoint import write_checkpoint
from kinspace.training.log import MetricsFile, Reporter
from kinspace.training.log_output import Silent, tensorboard_for
from kinspace.training.loop import Hooks
from kinspace.training.state import State, to_checkpoint

__all__ = ["run_hooks"]


def run_hooks(
    folder: Path,
    phase: int,
    after: tuple[int, int] | None,
    reporter: Reporter,
    *,
    tensorboard: bool = False,
) -> Hooks:
    """The hooks of a phase, 0 a warm start and 1 the method. Only the main process writes.

    after: phase and step that the rows of metrics.jsonl are kept up to; None: it is new.
    """
    if not is_main_process():
        return Hooks(_nothing, _nothing, _nothing, Silent(), lambda: None)
    metrics = MetricsFile(folder / "metrics.jsonl", after=after)
    board = tensorboard_for(folder) if tensorboard else None

    def write_row(row: dict[str, Any]) -> None:
        metrics.write({"phase": phase, **row})
        if board is not None:
            board(row)

    def save_last(state: State) -> None:
        tensors, rest = to_checkpoint(state)
        write_checkpoint(folder / "last.safetensors", tensors, rest | {"phase": phase})

    def save_best(state: State) -> None:
        chosen = {"step": state.step, "phase": phase}
        write_checkpoint(folder / "model.safetensors", state.judged.state_dict(), chosen)

    # a warm start is not chosen from
    return Hooks(write_row, save_last, save_best if phase else _nothing, reporter, metrics.close)


def _nothing(_: object) -> None:
    pass
