"""Where the time of a training goes: data, model, loss, index, validation, checkpoints.

    python benchmarks/steps.py                                  # the moths, the papers' methods
    python benchmarks/steps.py moths --methods nra magnet --steps 30
    PYTHONPATH=src python3 benchmarks/steps.py cub200:FOLDER --device cuda --json steps.json

Each method is trained twice by `kinspace.train` in a folder that is thrown away: as it is, for the
images a second that the loop itself tells (without validations and checkpoints), and once more
with a clock at the border of each phase:

    data         waiting for the next batch
    forward      the model in training
    loss         forward and backward of the objective, down to the gradient of the embeddings
    backward     the model's backward pass and the optimizer
    index        Magnet: clustering anew, and the losses that the next neighborhoods follow
    validation   embedding and ranking the validation classes
    checkpoints  writing the last and the best weights
    other        all else: rates, the log, the average of the weights

On a GPU the clock waits for the device at each border, so that no work counts in the next phase;
that takes away the overlap of host and device, and both speeds are given. Shares are of the loop's
time. Before it lie decoding and building, after it the verdict on the test part: in seconds. How
often there is a validation and a checkpoint is the recipe's and `kinspace.train`'s; a short run has
them at its ends only. No warm start, which is the same loop with softmax.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from setting import setting
from torch import Tensor, nn

import kinspace
from kinspace.recipes import parse_set
from kinspace.training import loop, trainer
from kinspace.training.data_parts import DataPart
from kinspace.training.loop import Hooks, Plan, fit
from kinspace.training.state import Loader, State

METHODS = ["almn", "skewed_mean", "density", "nra", "magnet"]
PHASES = "data", "forward", "loss", "backward", "index", "validation", "checkpoints", "other"


@dataclass
class Row:
    method: str
    images_per_second: float  # without the clock
    clocked_images_per_second: float
    seconds: dict[str, float]  # of each phase, and before and after the loop
    times: dict[str, int]  # that each phase was entered


class Clock:
    """The time of each phase; of a phase within another, that of the inner one alone."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.times: Counter[str] = Counter()
        self._cuda = device.type == "cuda"
        self._open = ["other"]
        self._since = self._now()

    def begin(self, phase: str) -> None:
        self.mark()
        self._open.append(phase)
        self.times[phase] += 1

    def end(self) -> None:
        self.mark()
        self._open.pop()

    def mark(self) -> None:
        now = self._now()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*arguments: Any) -> Any:
            with self.phase(name):
                return call(*arguments)

        return clocked


class ClockedLoader:
    """A loader whose batches are waited for by the clock."""

    def __init__(self, inner: Loader, clock: Clock) -> None:
        self._inner, self._clock = inner, clock

    def __iter__(self) -> Iterator[Any]:
        batches, end = iter(self._inner), object()
        while True:
            with self._clock.phase("data"):
                batch = next(batches, end)
            if batch is end:
                return
            yield batch

    def state_dict(self) -> dict[str, int]:
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._inner.load_state_dict(state)


class ClockedModel(nn.Module):
    """The model in training. The gradient that arrives at its output ends the loss's part."""

    def __init__(self, inner: nn.Module, clock: Clock) -> None:
        super().__init__()
        self.inner, self._clock = inner, clock

    def forward(self, inputs: Tensor) -> Tensor:
        with self._clock.phase("forward"):
            embeddings: Tensor = self.inner(inputs)
        embeddings.register_hook(self._arrived)
        return embeddings

    def _arrived(self, gradient: Tensor) -> None:
        self._clock.end()
        self._clock.begin("backward")


def clocked_fit(
    found: list[Clock],
) -> Callable[[State, Plan, DataPart, DataPart | None, Hooks], None]:
    """`fit` of a state whose phases are timed."""

    def fit_by_clock(
        state: State, plan: Plan, train: DataPart, validation: DataPart | None, hooks: Hooks
    ) -> None:
        clock = Clock(train.device)
        found.append(clock)
        state.loader = ClockedLoader(state.loader, clock)
        state.compiled = ClockedModel(state.compiled or state.model, clock)
        state.objective.register_forward_pre_hook(lambda *_: clock.begin("loss"))
        state.optimizer.register_step_post_hook(lambda *_: clock.end())  # of "backward"
        saving = {
            name: clock.around("checkpoints", getattr(hooks, name))
            for name in ("save_last", "save_best")
        }
        inside = {
            "_refresh_index": "index",
            "_remember_losses": "index",
            "_validate": "validation",
        }
        watched = {name: clock.around(to, getattr(loop, name)) for name, to in inside.items()}
        if state.index is None:
            del watched["_remember_losses"]  # which has nothing to do then
        with patch.multiple(loop, **watched):
            fit(state, plan, train, validation, replace(hooks, **saving))
        clock.mark()

    return fit_by_clock


def trained(method: str, options: argparse.Namespace) -> float:
    """Train in a folder that is thrown away; the images a second that its last row tells."""
    changes = dict(parse_set(text) for text in options.change)
    changes |= {"schedule.steps": options.steps, "warm_start.steps": 0}
    with tempfile.TemporaryDirectory() as folder:
        run = kinspace.train(
            options.data,
            method=method,
            changes=changes,
            out=Path(folder) / "run",
            device=options.device,
            cache=options.cache,
            workers=options.workers,
            precision=options.precision,
            quiet=True,
        )
        return float([row["images/s"] for row in run.metrics if "images/s" in row][-1])


def measured(method: str, options: argparse.Namespace) -> Row:
    own = trained(method, options)
    clocks: list[Clock] = []
    edges: list[float] = []
    with_clock = clocked_fit(clocks)

    def between(*arguments: Any) -> None:
        edges.append(time.perf_counter())
        with_clock(*arguments)
        edges.append(time.perf_counter())

    edges.append(time.perf_counter())
    with patch.object(trainer, "fit", between):
        clocked = trained(method, options)
    edges.append(time.perf_counter())
    began, first, last, ended = edges
    around = {"before": first - began, "after": ended - last}
    return Row(method, own, clocked, clocks[0].seconds | around, dict(clocks[0].times))


def to_markdown(rows: list[Row]) -> str:
    heads = ["method", "images/s", "with clock", *PHASES, "loop s", "before s", "after s"]
    table = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for row in rows:
        whole = sum(row.seconds[phase] for phase in PHASES)
        shares = [
            f"{row.seconds[phase] / whole:.1%}" if row.times.get(phase) or phase == "other" else ""
            for phase in PHASES
        ]
        speeds = [f"{row.images_per_second:,.0f}", f"{row.clocked_images_per_second:,.0f}"]
        ends = [f"{row.seconds[end]:.1f}" for end in ("before", "after")]
        table.append([row.method, *speeds, *shares, f"{whole:.1f}", *ends])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", default="moths")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--set", dest="change", action="append", default=[], help="KEY=VALUE of each recipe"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", choices=("float32", "bf16"))
    parser.add_argument("--cache", default="auto")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--commit", help="the commit to name, where git is absent")
    parser.set_defaults(skip_pml=True)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    facts = setting(options)
    rows = []
    for method in options.methods:
        rows.append(measured(method, options))
        print(f"{method}: {rows[-1].images_per_second:,.0f} images/s", flush=True)
    print(
        f"\n{facts['hardware']}; torch {facts['torch']}, kinspace at {facts['commit']}. "
        f"{options.data}, {options.steps} steps. Load {os.getloadavg()[0]:.1f} in the last "
        "minute.\n"
    )
    print(to_markdown(rows))
    if options.json:
        found = {"setting": facts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
