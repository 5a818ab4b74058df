"""Time and peak memory of forward + backward, several contenders in turn."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import FrameType

# both read once, when torch is loaded: the profiler reports its own start and stop
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

MEGABYTE = 1e6
TURN = 0.05  # seconds one contender runs before the next has its turn
FAILURES = (
    AssertionError,
    AttributeError,
    IndexError,
    MemoryError,
    RuntimeError,
    TimeoutError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Budget:
    """How long to measure: seconds a contender, calls at most, seconds one call may take.

    clock: of calls on the CPU; `time.process_time` counts only the time of this process.
    """

    seconds: float
    repeat: int
    limit: float
    clock: Callable[[], float] = time.perf_counter


@dataclass
class Measurement:
    """Times of single calls in milliseconds, or the problem that left none."""

    times: list[float] = field(default_factory=list)
    peak: int | None = None  # bytes above those held before the call
    value: float | None = None
    problem: str = ""
    given_up: float | None = None  # milliseconds after which a call was broken off

    @property
    def median(self) -> float | None:
        return statistics.median(self.times) if self.times else None

    def summary(self) -> dict[str, object]:
        quarters = statistics.quantiles(self.times) if len(self.times) > 1 else [self.median] * 3
        return {
            "median_ms": self.median,
            "min_ms": min(self.times, default=None),
            "quartiles_ms": [quarters[0], quarters[2]],
            "calls": len(self.times),
            "peak_bytes": self.peak,
            "value": self.value,
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Step:
    """One forward and backward pass: a loss of embeddings (which require grad) and labels."""

    loss: Callable[[Tensor, Tensor], Tensor]
    embeddings: Tensor
    labels: Tensor

    def __call__(self) -> Tensor:
        value = self.loss(self.embeddings, self.labels)
        value.backward()
        return value.detach()

    def clear(self) -> None:
        self.embeddings.grad = None
        if isinstance(self.loss, nn.Module):
            self.loss.zero_grad(set_to_none=True)


def measure(steps: dict[str, Step], device: torch.device, budget: Budget) -> dict[str, Measurement]:
    """Measure all steps, in turns, so that noise from outside hits each of them alike."""
    results: dict[str, Measurement] = {}
    slowest = 0.0
    for name, step in steps.items():
        results[name], once = _first_look(step, device, budget)
        slowest = max(slowest, once)
    running = {name: step for name, step in steps.items() if not results[name].problem}
    least = 5 if slowest < 1 else 3 if slowest < 5 else 1
    gc.collect()
    end = time.perf_counter() + budget.seconds * len(running)
    while running:
        for name, step in list(running.items()):
            try:
                results[name].times += _turn(step, device, budget.clock)
            except FAILURES as error:  # rare: the first call succeeded
                results[name].problem = _described(error, budget.limit)
                del running[name]
        counts = [len(results[name].times) for name in running]
        late = time.perf_counter() >= end
        if not counts or min(counts) >= budget.repeat or (late and min(counts) >= least):
            break
    for step in steps.values():
        step.clear()
    return results


def _first_look(step: Step, device: torch.device, budget: Budget) -> tuple[Measurement, float]:
    """Warm up, read the value and the peak memory; the seconds one call took."""
    try:
        began = time.perf_counter()
        with at_most(budget.limit):
            value = float(_warm(step))
        once = time.perf_counter() - began
        if once < 5:  # else warm enough
            for _ in range(2):
                _warm(step)
            once = time_once(step, device) / 1e3
        return Measurement(peak=peak_memory(step, device), value=value), once
    except FAILURES as error:
        failed = Measurement(problem=_described(error, budget.limit))
        failed.given_up = budget.limit * 1e3 if isinstance(error, TimeoutError) else None
    # outside of the handler: its traceback holds the tensors of the failed call
    step.clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return failed, 0.0


def _warm(step: Step) -> Tensor:
    step.clear()
    return step()


def _turn(step: Step, device: torch.device, clock: Callable[[], float]) -> list[float]:
    times: list[float] = []
    while sum(times) < TURN * 1e3:
        times.append(time_once(step, device, clock))
    return times


def time_once(
    step: Step, device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Milliseconds of one call: by the clock on the CPU, by events of the stream on a GPU."""
    step.clear()
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end))
    began = clock()
    step()
    return (clock() - began) * 1e3


def peak_memory(step: Step, device: torch.device) -> int:
    """Most bytes of tensors at one time during a call, above those held before it."""
    step.clear()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    return cpu_peak(step)


def cpu_peak(function: Callable[[], object]) -> int:
    """The same on the CPU, added up from the profiler's record of allocations and frees."""
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profiler:
        # allocations alone: a record of millions of small operators would take gigabytes
        torch.autograd._enable_record_function(False)
        try:
            function()
        finally:
            torch.autograd._enable_record_function(True)
    record = profiler.profiler
    assert record is not None
    assert record.kineto_results is not None
    events = [event for event in record.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((int(event.nbytes()) for event in events), initial=0))


def check_cpu_peak() -> None:
    """Raise unless the profiler sees 3 x 8 MB as 24 MB: its record is no public interface."""

    def allocate() -> None:
        first, second = torch.empty(2_000_000), torch.empty(2_000_000)
        del first
        third, fourth = torch.empty(2_000_000), torch.empty(2_000_000)
        del second, third, fourth

    found = cpu_peak(allocate)
    if abs(found - 24e6) > 0.01 * 24e6:
        raise RuntimeError(f"the profiler of torch {torch.__version__} saw {found} bytes, not 24e6")


def limit_memory(gigabytes: float | None) -> float:
    """Let an allocation beyond this many GB above today's fail, not the machine; returns them.

    None: three quarters of what is free. Only for the CPU: CUDA reserves far more than it uses.
    """
    import resource

    if gigabytes is None:
        gigabytes = 0.75 * _kilobytes("/proc/meminfo", "MemAvailable:") / 1e6
    held = _kilobytes("/proc/self/status", "VmSize:") * 1024
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (held + int(gigabytes * 1e9), hard))
    return gigabytes


def _kilobytes(path: str, key: str) -> int:
    lines = Path(path).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so many seconds, at the next return to Python."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _described(error: BaseException, limit: float) -> str:
    text = str(error).strip()
    if isinstance(error, TimeoutError):
        return f"over {limit:g} s"
    if isinstance(error, MemoryError) or "allocate" in text:
        return "out of memory"
    line = text.splitlines()[0] if text else type(error).__name__
    return f"failed: {line[:60]}"
