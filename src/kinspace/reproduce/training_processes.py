"""Trainings as processes of their own, several at a time; what was finished is not done again.

    OUT/NAME/         the run folder
    OUT/NAME.log      what the process said
    OUT/NAME.pid      its number
    OUT/NAME.command  what it was asked, so that other numbers are not taken for these

A run that was killed goes on from its last checkpoint.
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
from typing import Any

from kinspace.reproduce.jobs import Job

__all__ = [
    "PLACES",
    "Failed",
    "Machine",
    "StoppedRuns",
    "finished",
    "require_same",
    "until_stopped",
]

PLACES = ("auto", "memory", "gpu", "none")  # of a cache, those that are no folder
FILES = {"train": "results.json", "hierarchy": "hierarchy.json"}
TAIL = 12  # lines of a log that are shown
POLITE = 2.0  # seconds that processes have to stop by themselves after a kill
LOOK = 0.2  # seconds between two looks at a process


class Failed(Exception):
    """A run that came to no end; the text has the end of its log."""


class StoppedRuns(KeyboardInterrupt):
    """The user asked to stop; the runs under way have saved what they had."""


@dataclass
class Machine:
    """Where and how the processes run: what does not change the numbers' meaning."""

    out: Path
    data: str
    device: str | None = None
    cache: str = "auto"
    workers: int | None = None
    jobs: int = 1
    save: int = 200
    look: Callable[[Job, Path], None] = lambda job, folder: None
    stopping: threading.Event = field(default_factory=threading.Event)
    grace: float = 30.0  # seconds from `stopping` to a signal; a second one would stop at once

    def run(self, job: Job) -> Path:
        """The finished run folder of a job, made now or before."""
        folder = self.out / job.name
        if finished(job, self.out):
            return folder
        if self.stopping.is_set():
            raise StoppedRuns
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{job.name}.command").write_text(job.command + "\n", encoding="utf-8")
        self._alone(job, folder)
        log = self.out / f"{job.name}.log"
        with log.open("ab") as stream:
            process = subprocess.Popen(
                self.arguments(job), stdout=stream, stderr=subprocess.STDOUT, env=self.environment()
            )
            (self.out / f"{job.name}.pid").write_text(str(process.pid))
            self._wait(process, job, folder)
        if process.returncode == 130 or self.stopping.is_set():
            raise StoppedRuns
        if process.returncode or not finished(job, self.out):
            raise Failed(f"exit code {process.returncode}, {log}:\n{_tail(log)}")
        return folder

    def arguments(self, job: Job) -> list[str]:
        """The whole command, begun or gone on with."""
        folder = self.out / job.name
        first = [sys.executable, "-m", "kinspace", job.kind]
        place = [] if self.device is None else ["--device", self.device]
        begun = (folder / "run.json").exists()
        workers = [] if self.workers is None else ["--workers", str(self.workers)]
        # baselines are the same in every run: `RunMeasures` measures the untrained backbone once,
        # if a table wants it
        alone = ["--cache", self.cache_of(job), "--no-baselines", "--out", str(folder)]
        if job.kind == "hierarchy":
            if not begun:  # merged classes may lie there already
                shutil.rmtree(folder, ignore_errors=True)
            again = ["--resume"] if begun else []
            return [*first, self.data, *job.options, *place, *workers, *alone, *again]
        if begun:
            return [*first, self.data, "--resume", str(folder), *place, *workers]
        save = ["--save-every", str(self.save)]
        return [*first, self.data, *job.options, *place, *workers, *save, *alone]

    def cache_of(self, job: Job) -> str:
        """Of a folder for caches the one for this job: by what decides how pictures are decoded."""
        if self.cache in PLACES:
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

    def _alone(self, job: Job, folder: Path) -> None:
        """Not beside a process that outlived the one that started it."""
        try:
            number = (self.out / f"{job.name}.pid").read_text()
            words = Path("/proc", number, "cmdline").read_bytes().split(b"\0")
        except OSError:
            return
        if str(folder).encode() in words:
            raise Failed(f"{folder}: is still under way, in process {number}")

    def _wait(self, process: subprocess.Popen[bytes], job: Job, folder: Path) -> None:
        since: float | None = None
        asked = False
        while process.poll() is None:
            if self.stopping.is_set() and not asked:
                since = since or time.monotonic()
                if time.monotonic() - since > self.grace:
                    asked = True
                    process.terminate()  # it saves, and exits with 130
            self.look(job, folder)
            time.sleep(LOOK)
        self.look(job, folder)


def finished(job: Job, out: Path) -> bool:
    """Whether the run of a job has come to its end."""
    return (out / job.name / FILES[job.kind]).exists()


def require_same(job: Job, out: Path) -> None:
    """Refuse a folder with a run of other settings under the same name."""
    file = out / f"{job.name}.command"
    if not (out / job.name).exists() or not file.exists():
        return
    there = file.read_text(encoding="utf-8").strip()
    if there != job.command:
        raise ValueError(
            f"{out / job.name}: was run otherwise: {_difference(there, job.command)}; name "
            "another folder (--out), or run it again (--overwrite)"
        )


def _difference(there: str, here: str) -> str:
    one, other = there.split(), here.split()
    gone = [word for word in one if word not in other]
    new = [word for word in other if word not in one]
    return f"{' '.join(gone) or 'less'} there, {' '.join(new) or 'less'} now"


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-TAIL:])


@contextmanager
def until_stopped(machine: Machine) -> Iterator[None]:
    """A polite kill is a Ctrl-C; the processes are asked to stop, and are waited for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        machine.grace = POLITE  # a Ctrl-C goes to the processes too, this may be for us alone
        machine.stopping.set()
        raise KeyboardInterrupt

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
