"""What a training writes into its run folder while it runs: metrics and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinspace.distributed import is_main_process
from kinspace.training.checkpoint import write_checkpoint
from kinspace.training.log import MetricsFile, NoProgress, Progress, tensorboard_writer
from kinspace.training.state import State, to_checkpoint

__all__ = ["Hooks", "make_hooks"]


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True)
class Hooks:
    """What the loop calls: it writes no file itself. By default nothing is written.

    save_last: after every `Plan.save_every` steps. save_best: after a validation that is better
    than all before it. keep: after every `Plan.keep_every` steps, with the number of the step.
    """

    write_row: Callable[[dict[str, Any]], None] = _ignore
    save_last: Callable[[State], None] = _ignore
    save_best: Callable[[State], None] = _ignore
    keep: Callable[[State, int], None] = lambda state, step: None
    progress: Progress = field(default_factory=NoProgress)
    close: Callable[[], None] = lambda: None


def make_hooks(
    folder: Path,
    phase: int,
    after: tuple[int, int] | None,
    progress: Progress,
    *,
    tensorboard: bool = False,
) -> Hooks:
    """The hooks of a phase: 0 is the warm start, 1 the method. Only the main process writes.

    after: the phase and step up to which the rows of metrics.jsonl are kept; None: a new file.
    """
    if not is_main_process():
        return Hooks()
    metrics = MetricsFile(folder / "metrics.jsonl", after=after)
    board = tensorboard_writer(folder) if tensorboard else _ignore

    def write_row(row: dict[str, Any]) -> None:
        metrics.write({"phase": phase, **row})
        board(row)

    def save_last(state: State) -> None:
        tensors, rest = to_checkpoint(state)
        write_checkpoint(folder / "last.safetensors", tensors, rest | {"phase": phase})

    def save_best(state: State) -> None:
        chosen = {"step": state.step, "phase": phase}
        write_checkpoint(folder / "model.safetensors", state.eval_model.state_dict(), chosen)

    def keep(state: State, step: int) -> None:
        (folder / "checkpoints").mkdir(exist_ok=True)
        modules = {"model": state.eval_model, "objective": state.objective}
        tensors = {
            f"{name}.{key}": value
            for name, module in modules.items()
            for key, value in module.state_dict().items()
        }
        file = folder / "checkpoints" / f"step-{step:06}.safetensors"
        write_checkpoint(file, tensors, {"step": step, "phase": phase})

    return Hooks(
        write_row,
        save_last,
        save_best if phase else _ignore,  # a model of the warm start is never chosen
        keep,
        progress,
        metrics.close,
    )
