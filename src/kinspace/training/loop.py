"""The training loop, from top to bottom.

Everything it needs has been built (`kinspace.training.components`): it sees no recipe. A step is:
learning rates, gradients of the global batch, the optimizer, and then what is due: a row in the
log, a validation, a refresh of the cluster index, a checkpoint.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from kinspace.distributed import world_size
from kinspace.evaluation import recall_at_k
from kinspace.samplers import clusters_of
from kinspace.training.data_parts import DataPart
from kinspace.training.diagnostics import Watch, statistics
from kinspace.training.embedding import embed_all
from kinspace.training.log import NotFinite, Reporter, Window
from kinspace.training.optimizer import clip, schedule_factor, set_rates
from kinspace.training.state import Best, State
from kinspace.training.step import Outcome, differentiate

__all__ = ["Plan", "Stopped", "fit"]


@dataclass(frozen=True)
class Plan:
    """The numbers of a training: how long, how fast, and what is done how often (in steps)."""

    steps: int
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant"})
    freeze_backbone: int = 0
    clip_norm: float | None = None
    clip_value: float | None = None
    micro_batch: int | None = None
    refresh: int = 0  # the cluster index; 0: once an epoch
    validate: int = 200
    log: int = 10
    save: int = 200
    seed: int = 0
    eval_batch: int = 128


@dataclass(frozen=True)
class Hooks:
    """What the loop calls: it writes no file itself."""

    write_row: Callable[[dict[str, Any]], None]
    save_last: Callable[[State], None]
    save_best: Callable[[State], None]
    reporter: Reporter
    close: Callable[[], None]


class Stopped(KeyboardInterrupt):
    """The user asked to stop; the state is saved."""


def fit(
    state: State, plan: Plan, train: DataPart, validation: DataPart | None, hooks: Hooks
) -> None:
    """Train from `state.step` to the last step."""
    window, watch, clock = Window(), Watch(state.objective.loss), _Clock()
    if state.step == 0:
        _validate(state, plan, validation, hooks, {})
    with _asked_to_stop() as stopping, _first_cause(window):
        while state.step < plan.steps:
            if state.index is not None and state.at_epoch_start:
                _refresh(state, train, plan)
            for batch in state.loader:
                outcome = _step(state, plan, batch)
                window.add(state.step, outcome.parts, outcome.indices)
                _remember(state, outcome)
                clock.count(len(outcome.labels))
                due = _due(state.step, plan)
                stop = _agreed(stopping.is_set(), outcome.total.device, ask=due["log"])
                if due["log"] or stop:  # what is not finite must not be saved: it is read first
                    row = _row(state, plan, window, outcome, clock)
                    if due["validate"] or due["save"] or stop:
                        _require_finite(state, outcome)
                    if due["validate"]:
                        _validate(state, plan, validation, hooks, row)
                        clock.pause()
                    _tell(row, hooks, watch)
                if due["refresh"]:
                    _refresh(state, train, plan)
                if due["save"] or stop:
                    hooks.save_last(state)
                    clock.pause()
                if stop:
                    raise Stopped
                if state.step == plan.steps:
                    break


@contextmanager
def _first_cause(window: Window) -> Iterator[None]:
    """Blame what fails after a step that was not finite on that step."""
    try:
        yield
    except NotFinite:
        raise
    except (RuntimeError, ValueError):
        window.read()
        raise


def _step(state: State, plan: Plan, batch: tuple[Tensor, Tensor, Tensor]) -> Outcome:
    """One step of the optimizer; counts it."""
    model, objective, optimizer = state.model, state.objective, state.optimizer
    resting = ("backbone",) if state.step < plan.freeze_backbone else ()
    set_rates(
        optimizer, schedule_factor(state.step, steps=plan.steps, **plan.schedule), resting=resting
    )
    model.train()
    objective.train()
    optimizer.zero_grad(set_to_none=True)
    index = state.index if objective.takes_clusters else None
    outcome = differentiate(
        model if state.compiled is None else state.compiled,
        objective,
        batch,
        precision=state.precision,
        micro_batch=plan.micro_batch,
        seed=(plan.seed, state.step),
        clusters=None if index is None else (lambda indices: clusters_of(index, indices)),
    )
    scaler = state.precision.scaler
    scaler.unscale_(optimizer)
    clip(model.parameters(), norm=plan.clip_norm, value=plan.clip_value)
    scaler.step(optimizer)
    scaler.update()
    if state.average is not None:
        state.average.follow(model, step=state.step)
    state.sampler.advance()
    state.step += 1
    return outcome


def _remember(state: State, outcome: Outcome) -> None:
    """Tell the cluster index the losses of the batch: the next neighborhoods follow them.

    Losses without clusters tell it nothing, and all clusters are as likely to be a seed.
    """
    if state.index is not None and outcome.sample_losses is not None:
        state.index.remember(outcome.indices, outcome.sample_losses)


def _due(step: int, plan: Plan) -> dict[str, bool]:
    last = step == plan.steps
    validate = last or step % plan.validate == 0
    save = last or step % plan.save == 0
    return {
        "validate": validate,
        "save": save,
        "log": validate or save or step % plan.log == 0 or step == 1,
        "refresh": bool(plan.refresh) and not last and step % plan.refresh == 0,
    }


def _refresh(state: State, train: DataPart, plan: Plan) -> None:
    """Cluster anew, from one pass of the frozen model."""
    assert state.index is not None
    embeddings = embed_all(state.model, train, batch_size=plan.eval_batch, what="training")
    state.index.refresh(embeddings, train.dataset.labels.to(embeddings.device))


def _validate(
    state: State, plan: Plan, validation: DataPart | None, hooks: Hooks, row: dict[str, Any]
) -> None:
    """Recall@1 on the validation classes, into the row; the best model is kept."""
    if validation is None:
        if state.step == plan.steps:
            hooks.save_best(state)
        return
    vectors = embed_all(state.judged, validation, batch_size=plan.eval_batch)
    recall = recall_at_k(vectors, validation.dataset.labels.to(vectors.device), (1,))[1]
    row["recall@1"] = recall
    if recall > state.best.recall:
        state.best = Best(state.step, recall)
        hooks.save_best(state)
    if not state.step:
        hooks.write_row({"step": 0, "recall@1": recall})
        hooks.reporter.say(f"at the start: Recall@1 {recall:.1%} on the validation classes")


def _require_finite(state: State, outcome: Outcome) -> None:
    """Neither judge nor save weights that a finite loss with an infinite gradient has spoilt."""
    weights = [p for module in (state.model, state.objective) for p in module.parameters()]
    if weights and not torch.stack([w.isfinite().all() for w in weights]).all():
        raise NotFinite(state.step, outcome.indices.tolist(), what="weights after")


def _row(
    state: State, plan: Plan, window: Window, outcome: Outcome, clock: _Clock
) -> dict[str, Any]:
    parts = window.read()  # first: it finds what is not finite
    found = statistics(outcome.embeddings, outcome.labels, state.objective.loss)
    numbers = torch.stack([value.float() for value in found.values()]).tolist()
    rate = clock.rate()
    return {
        "step": state.step,
        **parts,
        "lr": max(group["lr"] for group in state.optimizer.param_groups),
        **dict(zip(found, numbers, strict=True)),
        "images/s": rate,
        "left": (plan.steps - state.step) * len(outcome.labels) / rate if rate else 0.0,
    }


def _tell(row: dict[str, Any], hooks: Hooks, watch: Watch) -> None:
    hooks.write_row(row)
    hooks.reporter.row(row)
    for warning in watch.look(row):
        hooks.write_row({"step": row["step"], "warning": warning})
        hooks.reporter.say(f"warning: {warning}")


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
def _asked_to_stop() -> Iterator[threading.Event]:
    """An event that Ctrl-C (or a polite kill) sets; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # signals are the main thread's business
        return

    def ask(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _agreed(stop: bool, device: torch.device, *, ask: bool) -> bool:
    """Whether to stop: several processes ask each other now and then, and stop at the same step."""
    if world_size() == 1:
        return stop
    flag = torch.tensor([float(stop)], device=device)
    if ask:
        dist.all_reduce(flag)
    return ask and bool(flag.item())
