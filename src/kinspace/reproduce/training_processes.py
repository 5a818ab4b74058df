"""Runs of `kinspace train` as processes, several at a time. A finished run is not repeated.

    OUT/NAME/         the run folder
    OUT/NAME.log      the output of the process
    OUT/NAME.pid      its process id; locked while it runs
    OUT/NAME.command  its command, which detects a folder with other settings

A killed run resumes from its last checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kinspace._core.locks import try_lock
from kinspace.reproduce.jobs import Job

__all__ = [
    "CACHE_MODES",
    "FailedRun",
    "StoppedRuns",
    "TrainingProcesses",
    "finished",
    "require_same_command",
    "stop_on_sigterm",
]

CACHE_MODES = ("auto", "memory", "gpu", "none")  # values of `cache` other than a folder
FILES = {"train": "results.json", "hierarchy": "hierarchy.json"}
TAIL = 12  # lines of the log that an error shows
GRACE_AFTER_SIGTERM = 2.0  # seconds before the processes are terminated
POLL = 0.2  # seconds between two looks at a process


class FailedRun(Exception):
    """A run exited with an error; the message has the end of its log."""


class StoppedRuns(KeyboardInterrupt):
    """The user interrupted the runs; each has saved a checkpoint."""


@dataclass
class TrainingProcesses:
    """Starts and watches the processes; its options do not change what a run computes.

    Args:
        out: the folder of the run folders.
        data: the data set, as `kinspace train` takes it.
        device, cache, workers: passed to every process; a cache folder has a folder for each way
            of decoding.
        jobs: processes at a time, which share the cores.
        save_every: steps between two checkpoints.
        keep_every: steps between two checkpoints that a run keeps, for its curve.
        on_poll: called several times a second for each running job, from its thread.
        stopping: set it to stop all processes.
        grace: seconds from `stopping` to a SIGTERM. A Ctrl-C reaches the processes as well, and a
            second signal would stop them at once.
    """

    out: Path
    data: str
    device: str | None = None
    cache: str = "auto"
    workers: int | None = None
    jobs: int = 1
    save_every: int = 200
    keep_every: int | None = None
    on_poll: Callable[[Job, Path], None] = lambda job, folder: None
    stopping: threading.Event = field(default_factory=threading.Event)
    grace: float = 30.0

    def run(self, job: Job) -> Path:
        """The run folder of a job, finished now or before."""
        folder = self.out / job.name
        if finished(job, self.out):
            return folder
        if self.stopping.is_set():
            raise StoppedRuns
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{job.name}.command").write_text(job.command + "\n", encoding="utf-8")
        log = self.out / f"{job.name}.log"
        with self._locked(job) as lock, log.open("ab") as stream:
            process = subprocess.Popen(
                self.arguments(job),
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                pass_fds=(lock.fileno(),) if os.name == "posix" else (),
            )
            lock.truncate(0)
            lock.write(str(process.pid))
            lock.flush()
            self._wait(process, job, folder)
        if process.returncode == 130 or self.stopping.is_set():
            raise StoppedRuns
        if process.returncode or not finished(job, self.out):
            raise FailedRun(f"exit code {process.returncode}, {log}:\n{_tail(log)}")
        return folder

    def arguments(self, job: Job) -> list[str]:
        """The command line that starts or resumes a job."""
        folder = self.out / job.name
        first = [sys.executable, "-m", "kinspace", job.kind]
        device = [] if self.device is None else ["--device", self.device]
        started = (folder / "run.json").exists()
        workers = [] if self.workers is None else ["--workers", str(self.workers)]
        # baselines are equal in all runs: the untrained backbone is measured once, for the table
        rest = ["--cache", self.cache_of(job), "--no-baselines", "--out", str(folder)]
        if job.kind == "hierarchy":
            if not started:  # it may contain merged classes already
                shutil.rmtree(folder, ignore_errors=True)
            resume = ["--resume"] if started else []
            return [*first, self.data, *job.options, *device, *workers, *rest, *resume]
        if started:
            return [*first, self.data, "--resume", str(folder), *device, *workers]
        save = ["--save-every", str(self.save_every)]
        if self.keep_every is not None and not job.held_out:
            save += ["--keep-every", str(self.keep_every)]
        return [*first, self.data, *job.options, *device, *workers, *save, *rest]

    def cache_of(self, job: Job) -> str:
        """The cache of a job; in a cache folder, a folder named by what decides the decoding."""
        if self.cache in CACHE_MODES:
            return self.cache
        part = job.recipe.transform
        own = (job.recipe.model.backbone, part.size, part.test_size)
        words = (job.data, *((part.resize,) if part.resize else own), part.fit)
        name = "-".join(str(word) for word in words if word is not None)
        return str(Path(self.cache) / name.replace("/", "_").replace(":", "_"))

    def environment(self) -> dict[str, str]:
        """Each process has its share of the cores."""
        share = max(1, len(os.sched_getaffinity(0)) // self.jobs)
        return {"OMP_NUM_THREADS": str(share), **os.environ, "PYTHONUNBUFFERED": "1"}

    @contextmanager
    def _locked(self, job: Job) -> Iterator[IO[str]]:
        """The lock of a job, refused while its process outlives the one that started it.

        The process is given the open file, and with it the lock: there is no moment at which it
        runs without.
        """
        with (self.out / f"{job.name}.pid").open("a+", encoding="utf-8") as file:
            if not try_lock(file):
                file.seek(0)
                number = file.read() or "that was just started"
                raise FailedRun(f"{self.out / job.name}: is still running, in process {number}")
            yield file

    def _wait(self, process: subprocess.Popen[bytes], job: Job, folder: Path) -> None:
        stopping_since: float | None = None
        terminated = False
        while process.poll() is None:
            if self.stopping.is_set() and not terminated:
                stopping_since = stopping_since or time.monotonic()
                if time.monotonic() - stopping_since > self.grace:
                    terminated = True
                    process.terminate()  # it saves a checkpoint, and exits with 130
            self.on_poll(job, folder)
            time.sleep(POLL)
        self.on_poll(job, folder)


def finished(job: Job, out: Path) -> bool:
    """Whether the run of a job is finished."""
    return (out / job.name / FILES[job.kind]).exists()


def require_same_command(job: Job, out: Path) -> None:
    """Refuse a run folder of the same name with other settings."""
    file = out / f"{job.name}.command"
    if not (out / job.name).exists() or not file.exists():
        return
    before = file.read_text(encoding="utf-8").strip()
    if before != job.command:
        raise ValueError(
            f"{out / job.name}: has a run of other settings: {_difference(before, job.command)}; "
            "choose another folder (--out), or replace it (--overwrite)"
        )


def _difference(before: str, now: str) -> str:
    one, other = before.split(), now.split()
    gone = [word for word in one if word not in other]
    new = [word for word in other if word not in one]
    return f"{' '.join(gone) or 'fewer options'} before, {' '.join(new) or 'fewer options'} now"


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-TAIL:])


@contextmanager
def stop_on_sigterm(processes: TrainingProcesses) -> Iterator[None]:
    """Within it SIGTERM acts like Ctrl-C: the processes save, and are waited for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        processes.grace = GRACE_AFTER_SIGTERM  # unlike a Ctrl-C it does not reach the processes
        processes.stopping.set()
        raise KeyboardInterrupt

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
