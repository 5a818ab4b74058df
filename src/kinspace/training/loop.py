"""The training loop, from top to bottom.

`kinspace.training.components` builds all that it needs; it sees no recipe. A step sets the learning
rates, computes the gradients of the global batch, and updates the weights. Then follows what is
due: a row of metrics, a validation, a refresh of the cluster index, a checkpoint.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from kinspace.distributed import is_main_process, world_size
from kinspace.evaluation.retrieval import QueryScores, Retrieval
from kinspace.samplers import clusters_of
from kinspace.training.callbacks import Callback
from kinspace.training.data_parts import DataPart
from kinspace.training.diagnostics import Diagnostics, batch_statistics, mined_by_loss
from kinspace.training.embedding import embed_all
from kinspace.training.log import (
    LossWindow,
    MetricsFile,
    NoProgress,
    NotFinite,
    Progress,
)
from kinspace.training.optimizer import clip_gradients, schedule_factor, set_learning_rates
from kinspace.training.run_folder import write_checkpoint
from kinspace.training.state import Best, State, to_checkpoint
from kinspace.training.step import StepResult, compute_gradients

__all__ = ["Hooks", "Plan", "Stopped", "fit", "make_hooks"]


@dataclass(frozen=True)
class Plan:
    """The numbers of a training: its length, its rates, and the steps between two events.

    refresh_every: of the cluster index; 0: once an epoch. disagreement: as in `IndexConfig`.
    keep_every: 0: keep no checkpoints.
    validate_at: the steps to validate at, in place of every `validate_every`.
    steps_before: those of the warm start, which the names of kept checkpoints count too.
    """

    steps: int
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant"})
    freeze_backbone: int = 0
    clip_norm: float | None = None
    clip_value: float | None = None
    micro_batch: int | None = None
    refresh_every: int = 0
    disagreement: float | None = None
    validate_every: int = 200
    validate_at: tuple[int, ...] = ()
    log_every: int = 10
    save_every: int = 200
    keep_every: int = 0
    steps_before: int = 0
    seed: int = 0
    eval_batch: int = 128


class Stopped(KeyboardInterrupt):
    """The user stopped the training; its state is saved."""


def fit(
    state: State, plan: Plan, train: DataPart, validation: DataPart | None, hooks: Hooks
) -> None:
    """Train from `state.step` to the last step, or until a validation ends it (`Hooks`)."""
    window, clock = state.window, _Clock()
    diagnostics = Diagnostics(state.objective.loss, state.memory)
    if state.step == 0:
        _validate(state, plan, validation, hooks, {})
    with _stop_signal() as stopping, _first_not_finite(window):
        while state.step < plan.steps:
            if state.index is not None and state.at_epoch_start:
                _refresh_index(state, train, plan)
            for batch in state.loader:
                result = _step(state, plan, batch)
                window.add(state.step, result.parts, result.indices)
                _remember_losses(state, result)
                clock.count(len(result.labels))
                due, enough = _due(state.step, plan), False
                stop = _any_process_stops(stopping.is_set(), result.total.device, ask=due["log"])
                if stop or due["validate"] or due["save"]:  # a checkpoint must not hold NaN
                    window.require_finite()
                    _require_finite_weights(state, result)
                if due["log"]:  # a stop writes no row of its own: its losses are in the checkpoint
                    row = _metrics(state, plan, window, result, clock)
                    if due["validate"]:
                        enough = _validate(state, plan, validation, hooks, row)
                        clock.pause()
                    _log(row, hooks, diagnostics)
                if due["refresh"] or _disagrees(state, plan, result):
                    _refresh_index(state, train, plan)
                if due["keep"]:
                    window.require_finite()
                    _require_finite_weights(state, result)
                    hooks.keep(state, plan.steps_before + state.step)
                    clock.pause()
                if due["save"] or stop:
                    hooks.save_last(state)
                    clock.pause()
                if stop:
                    raise Stopped
                if enough:
                    return
                if state.step == plan.steps:
                    break


@contextmanager
def _first_not_finite(window: LossWindow) -> Iterator[None]:
    """Raise `NotFinite` in place of an error that follows from an earlier loss that was not."""
    try:
        yield
    except NotFinite:
        raise
    except (RuntimeError, ValueError):
        window.require_finite()
        raise


def _step(state: State, plan: Plan, batch: tuple[Tensor, Tensor, Tensor]) -> StepResult:
    """One step of the optimizer."""
    model, objective, optimizer = state.model, state.objective, state.optimizer
    frozen = ("backbone",) if state.step < plan.freeze_backbone else ()
    factor = schedule_factor(state.step, steps=plan.steps, **plan.schedule)
    set_learning_rates(optimizer, factor, frozen=frozen)
    model.train()
    objective.train()
    optimizer.zero_grad(set_to_none=True)
    index = state.index if objective.takes_clusters else None
    result = compute_gradients(
        model if state.compiled is None else state.compiled,
        objective,
        batch,
        precision=state.precision,
        micro_batch=plan.micro_batch,
        seed=(plan.seed, state.step),
        clusters=None if index is None else (lambda indices: clusters_of(index, indices)),
        samples=state.samples,
    )
    scaler = state.precision.scaler
    scaler.unscale_(optimizer)
    clip_gradients(model.parameters(), norm=plan.clip_norm, value=plan.clip_value)
    scaler.step(optimizer)
    scaler.update()
    if state.average is not None:
        state.average.update(model, step=state.step)
    state.sampler.advance()
    state.step += 1
    return result


def _remember_losses(state: State, result: StepResult) -> None:
    """Pass the losses of the batch to the cluster index, which draws neighborhoods by them.

    With a loss that takes no clusters there are none, and every cluster is equally likely.
    """
    if state.index is not None and result.sample_losses is not None:
        state.index.remember(result.indices, result.sample_losses)


def _due(step: int, plan: Plan) -> dict[str, bool]:
    """What is due after a step: a row of metrics, a validation, a checkpoint."""
    last = step == plan.steps
    every = plan.validate_every
    validate = last or (step in plan.validate_at if plan.validate_at else step % every == 0)
    save = last or step % plan.save_every == 0
    keep = last or (plan.steps_before + step) % (plan.keep_every or 1) == 0
    return {
        "validate": validate,
        "save": save,
        "keep": bool(plan.keep_every) and keep,
        "log": validate or save or step % plan.log_every == 0 or step == 1,
        "refresh": bool(plan.refresh_every) and not last and step % plan.refresh_every == 0,
    }


def _refresh_index(state: State, train: DataPart, plan: Plan) -> None:
    """Cluster the training part by the embeddings of the model as it is now."""
    assert state.index is not None
    embeddings = embed_all(state.model, train, batch_size=plan.eval_batch, what="training")
    state.index.refresh(embeddings, train.dataset.labels.to(embeddings.device))


def _disagrees(state: State, plan: Plan, result: StepResult) -> bool:
    """Whether the clusters are no longer those of the embeddings (`IndexConfig.disagreement`)."""
    if state.index is None or plan.disagreement is None or state.step == plan.steps:
        return False
    return state.index.compare(result.indices, result.embeddings) > plan.disagreement


def _validate(
    state: State, plan: Plan, validation: DataPart | None, hooks: Hooks, row: dict[str, Any]
) -> bool:
    """Add Recall@1 on the validation classes to the row; save the model if it is the best.

    Returns whether the training has come to its end with this validation.
    """
    if validation is None:
        if state.step == plan.steps:
            hooks.save_best(state)
        return False
    vectors = embed_all(state.eval_model, validation, batch_size=plan.eval_batch)
    scores = Retrieval(vectors, validation.dataset.labels).scores((1,))
    row["recall@1"] = recall = scores.summary()["recall@1"]
    if recall > state.best.recall:
        state.best = Best(state.step, recall)
        hooks.save_best(state)
    if not state.step:
        hooks.write_row({"step": 0, "recall@1": recall})
        hooks.progress.message(
            f"before the first step: Recall@1 {recall:.1%} on the validation classes"
        )
    return hooks.validated(state.step, scores)


def _require_finite_weights(state: State, result: StepResult) -> None:
    """A finite loss may have an infinite gradient: such weights are neither validated nor saved."""
    weights = [p for module in (state.model, state.objective) for p in module.parameters()]
    if weights and not torch.stack([w.isfinite().all() for w in weights]).all():
        raise NotFinite(state.step, result.indices.tolist(), what="weights after")


def _metrics(
    state: State, plan: Plan, window: LossWindow, result: StepResult, clock: _Clock
) -> dict[str, Any]:
    """A row of metrics: the losses since the last row, statistics of this batch, the speed."""
    losses = window.read()
    statistics = batch_statistics(result.embeddings, result.labels, state.objective.loss)
    numbers = torch.stack([value.float() for value in statistics.values()]).tolist()
    rate = clock.rate()
    return {
        "step": state.step,
        **losses,
        "lr": max(group["lr"] for group in state.optimizer.param_groups),
        **dict(zip(statistics, numbers, strict=True)),
        **_mined(state, result),
        "images/s": rate,
        "left": (plan.steps - state.step) * len(result.labels) / rate if rate else 0.0,
    }


def _mined(state: State, result: StepResult) -> dict[str, int]:
    """How much the loss mined in this batch, where it mines."""
    ignored = None if state.samples is None else state.samples.ignore_label
    loss = state.objective.loss
    return mined_by_loss(result.embeddings, result.labels, loss, ignore_label=ignored)


def _log(row: dict[str, Any], hooks: Hooks, diagnostics: Diagnostics) -> None:
    hooks.write_row(row)
    hooks.progress.update(row)
    for warning in diagnostics.check(row):
        hooks.write_row({"step": row["step"], "warning": warning})
        hooks.progress.message(f"warning: {warning}")


class _Clock:
    """Samples a second since the last pause, without the time of validations and checkpoints."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._samples = 0
        self._rate = 0.0

    def count(self, samples: int) -> None:
        if self._since is None:  # the first step after a pause also waits for its data
            self._since = time.perf_counter()
        else:
            self._samples += samples

    def rate(self) -> float:
        if self._since is not None and self._samples:
            self._rate = self._samples / (time.perf_counter() - self._since)
        return self._rate

    def pause(self) -> None:
        self._since, self._samples = None, 0


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second one interrupts at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # only the main thread receives signals
        return

    def set_event(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, set_event) for number in signals}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _any_process_stops(stop: bool, device: torch.device, *, ask: bool) -> bool:
    """Whether to stop. Several processes exchange it, if `ask`, and stop at the same step."""
    if world_size() == 1:
        return stop
    flag = torch.tensor([float(stop)], device=device)
    if ask:
        dist.all_reduce(flag)
    return ask and bool(flag.item())


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True)
class Hooks:
    """Functions that the loop calls: it writes no file itself. By default nothing is written.

    save_last: after every `Plan.save_every` steps. save_best: after a validation that is better
    than all before it. keep: after every `Plan.keep_every` steps, with the number of the step.
    validated: after a validation, with its step and the scores of each query; True ends the
    training.
    """

    write_row: Callable[[dict[str, Any]], None] = _ignore
    save_last: Callable[[State], None] = _ignore
    save_best: Callable[[State], None] = _ignore
    keep: Callable[[State, int], None] = lambda state, step: None
    validated: Callable[[int, QueryScores], bool] = lambda step, scores: False
    progress: Progress = field(default_factory=NoProgress)
    close: Callable[[], None] = lambda: None


def make_hooks(
    folder: Path,
    phase: int,
    after: tuple[int, int] | None,
    progress: Progress,
    *,
    callbacks: Sequence[Callback] = (),
) -> Hooks:
    """The hooks of a phase: 0 is the warm start, 1 the method. Only the main process writes.

    after: the phase and step up to which the rows of metrics.jsonl are kept; None: a new file.
    callbacks: called with each row.
    """
    if not is_main_process():
        return Hooks()
    metrics = MetricsFile(folder / "metrics.jsonl", after=after)

    def write_row(row: dict[str, Any]) -> None:
        metrics.write({"phase": phase, **row})
        for callback in callbacks:
            callback.logged({"phase": phase, **row})

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
        progress=progress,
        close=metrics.close,
    )
