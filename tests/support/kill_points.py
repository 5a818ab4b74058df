"""Kills a process at each write, rename, truncation, removal and fsync of a piece of work.

A scenario prepares a folder, does its work in steps, and says of a folder whether it is sound. The
work is done once to count the points at which it touches the folder; then once for each point, in a
process of its own on a copy of the folder, which ends there by SIGKILL; a write is cut in half. A
third process opens what is left.

    python tests/support/kill_points.py gallery-exact-add       # a line of JSON: tried, survived
    python tests/support/kill_points.py gallery-exact-add --every 10
    python tests/support/kill_points.py --write docs/reliability.md    # all, as a table

The processes are forks of one that has only imported what they need.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Scenario", "in_process", "try_scenario"]

WRITING = set("wax+")
CALLS = ("replace", "rename", "unlink", "remove", "truncate", "fsync", "mkdir", "rmdir")


class Scenario(Protocol):
    """Some work in a folder that may end at any moment."""

    def prepare(self, folder: Path) -> None:
        """Make what is there before the work."""

    def steps(self, folder: Path) -> Iterator[Any]:
        """Do the work; yield what the folder should have before the first step and after each."""

    def check(self, folder: Path, allowed: list[Any]) -> None:
        """An AssertionError if the folder is none of what is allowed, or cannot be gone on with."""


class Points:
    """Watches the calls of this process that change files in a folder."""

    def __init__(self, folder: Path, kill_at: int = 0) -> None:
        self.folder = f"{folder.resolve()}{os.sep}"
        self.kill_at = kill_at
        self.names: list[str] = []
        self._paths: dict[int, str] = {}

    def watch(self) -> None:
        """From now on, in this process."""
        real_open = io.open
        points = self

        class Watched(io.FileIO):
            def write(self, data: Any) -> int:
                if points.reached(f"write {Path(str(self.name)).name}"):
                    super().write(bytes(data)[: len(data) // 2])
                    die()
                return super().write(data) or 0

        def watched_open(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            inside = isinstance(file, (str, os.PathLike)) and self.inside(file)
            if not inside or not WRITING & set(mode):
                return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
            if "r" not in mode:
                self.point(f"open {Path(os.fspath(file)).name}")
            raw = Watched(os.fspath(file), mode.replace("t", "").replace("b", ""))
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, encoding, errors, newline)

        io.open = builtins.open = watched_open  # type: ignore[assignment]
        for name in CALLS:
            setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *rest: Any, **options: Any) -> Any:
            where = path
            if isinstance(path, int):
                where = Path(f"/proc/self/fd/{path}").readlink()
            if self.inside(where):
                self.point(f"{name} {Path(os.fspath(where)).name}")
            return call(path, *rest, **options)

        return watched

    def inside(self, path: Any) -> bool:
        return f"{Path(os.fspath(path)).absolute()}{os.sep}".startswith(self.folder)

    def reached(self, name: str) -> bool:
        """Count a point; whether it is the one to end at."""
        self.names.append(name)
        return len(self.names) == self.kill_at

    def point(self, name: str) -> None:
        if self.reached(name):
            die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def in_process(work: Callable[[], Any], report: Path) -> int:
    """Do the work in a fork; its exit code, negative for a signal. A failure is in `report`."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent reads it
            report.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def try_scenario(scenario: Scenario, every: int = 1) -> dict[str, Any]:
    """Kill the work at every so manieth point; what was tried, and what did not survive."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        before, work, report = place / "before" / "run", place / "work" / "run", place / "report"
        before.mkdir(parents=True)
        assert in_process(lambda: scenario.prepare(before), report) == 0, report.read_text()
        log, states = place / "log", place / "states"

        def copy() -> None:
            shutil.rmtree(work.parent, ignore_errors=True)
            shutil.copytree(before, work)
            log.write_text("")

        def do(kill_at: int) -> None:
            log_to = os.open(log, os.O_WRONLY | os.O_APPEND)
            points, found = Points(work, kill_at), []
            points.watch()
            for state in scenario.steps(work):
                os.write(log_to, b".")  # acknowledged
                found.append(state)
            if not kill_at:
                states.write_text(json.dumps({"points": points.names, "states": found}))

        copy()
        assert in_process(lambda: do(0), report) == 0, report.read_text()
        counted = json.loads(states.read_text())
        names, expected = counted["points"], counted["states"]
        check = lambda allowed: in_process(lambda: scenario.check(work, allowed), report)  # noqa: E731
        assert check(expected[-1:]) == 0, f"without a kill: {report.read_text()}"
        lost, tried = [], 0
        for number in range(1, len(names) + 1, every):
            copy()
            code = in_process(lambda at=number: do(at), report)
            assert code in (-signal.SIGKILL, 0), report.read_text()  # threads may take other turns
            steps = log.stat().st_size
            tried += 1
            if check(expected[max(steps - 1, 0) : steps + 1]):  # as before the step, or after
                why = " | ".join(report.read_text().strip().splitlines()[-3:])
                lost.append(f"point {number}, {names[number - 1]}: {why}")
        return {"points": len(names), "tried": tried, "lost": lost}


def write_table(file: Path, names: list[str]) -> None:
    """Try scenarios and put the table of what was tried in a page; rows of others stay."""
    from kill_scenarios import EVERY, SCENARIOS

    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    lines = table.splitlines()
    for name in names or SCENARIOS:
        command = [sys.executable, __file__, name, "--every", str(EVERY.get(name, 1))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        survived = found["tried"] - len(found["lost"])
        lines = [line for line in lines if not line.startswith((f"| {name} |", f"- {name},"))]
        lines.append(f"| {name} | {found['points']} | {found['tried']} | {survived} |")
        lines += [f"- {name}, {each}" for each in found["lost"]]
        print(lines[-1], flush=True)  # noqa: T201
    order = {f"| {name} |": place for place, name in enumerate(SCENARIOS)}
    rows = [line for name in order for line in lines if line.startswith(name)]
    lost = [line for line in lines if line.startswith("- ")]
    head = ["| work | moments | killed at | survived |", "| --- | ---: | ---: | ---: |"]
    text = "\n".join([BEGIN, *head, *rows, *lost, END])
    file.write_text(before + text + after, encoding="utf-8")


BEGIN, END = "<!-- trials -->", "<!-- end of trials -->"

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]
    from kill_scenarios import SCENARIOS

    if sys.argv[1] == "--write":
        write_table(Path(sys.argv[2]), sys.argv[3:])
        sys.exit()
    name, every = sys.argv[1], int(sys.argv[3]) if "--every" in sys.argv else 1
    print(json.dumps({"name": name, **try_scenario(SCENARIOS[name], every)}))  # noqa: T201
