"""Commands that `kill_points` kills: of the gallery, --resume, report and reproduce.

Each runs in a fork as `kinspace ...` does, with its arguments and its exit code.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

import digit_experiment
import kinspace
from kill_points import Points, in_process
from kill_trainings import CLOCKS, TrainingWork, outcome, plain, train
from kinspace.cli import COMMANDS, main
from kinspace.search import Gallery
from odd_pictures import scene, write_clean

__all__ = ["COMMAND_SCENARIOS"]

for package in ("kinspace.report", "kinspace.reproduce", "matplotlib.pyplot", "scipy.spatial"):
    import_module(package)  # once, in the process that the others are forks of
for name in ("add", "index", "list", "relabel", "remove", "report", "reproduce", "train"):
    assert name in COMMANDS
    import_module(f"kinspace.cli.{name}")


def command(*arguments: object) -> None:
    """A command of its own, which has to succeed."""
    sys.argv = ["kinspace", *map(str, arguments)]
    said = io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as done:
            code = done.code
    assert not code, f"{sys.argv}: {code}: {said.getvalue()}"


def rows_of(gallery: Gallery) -> dict[str, list[Any]]:
    """The class and the vector of each picture by its id."""
    table = gallery.table
    assert table.labels is not None
    return {
        name: [table.class_name(int(label)), [round(float(x), 4) for x in vector]]
        for name, label, vector in zip(table.ids, table.labels, table.vectors, strict=True)
    }


CHANGES = {
    "index": ["index", "RUN"],
    "replace": ["index", "RUN", "MORE", "--replace", "--backend", "faiss"],
    "rebuild": ["index", "RUN", "--rebuild", "--backend", "faiss"],
    "add": ["add", "RUN", "MORE"],
    "remove": ["remove", "RUN", "--class", "kind 1"],
    "relabel": ["relabel", "RUN", "--class", "kind 1", "--to", "kind 2"],
}


@dataclass(frozen=True)
class GalleryCommand:
    """A command that makes or changes the gallery of a run: one of CHANGES."""

    name: str

    def prepare(self, folder: Path) -> None:
        write_clean(folder / "photos", classes=8, each=6)
        for number in range(4):
            file = folder / "more" / f"new {number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            scene(9000 + number).save(file)
        train(folder)
        if self.name != "index":
            command("index", folder / "run")

    def steps(self, folder: Path) -> Iterator[Any]:
        yield self._state(folder)
        self._run(folder)
        yield self._state(folder)

    def check(self, folder: Path, allowed: list[Any]) -> None:
        found = self._state(folder)
        before, after = plain(allowed[0]), plain(allowed[-1])
        rows = [state and state[0] for state in (found, before, after)]
        assert rows[0] in rows[1:], "another gallery than before or after"
        if found is not None:
            of_one = found[1] in (None, *(s[1] for s in (before, after) if s and s[0] == found[0]))
            assert of_one or self.name == "add", "thresholds of another gallery"
            model = kinspace.load(folder / "run", "cpu")
            assert model.classify(folder / "photos/kind 3/0.png").neighbors
        if found != after:
            self._do_again(folder, found)
            assert self._state(folder) == after
        command("list", folder / "run")
        left = [path.name for path in (folder / "run").rglob("*.part")]
        assert not left, left

    def _do_again(self, folder: Path, found: Any) -> None:
        """What was not done: by the same command, or by what the thresholds ask for."""
        if self.name == "index" and found is not None:
            command("index", folder / "run", "--rebuild")
        else:
            self._run(folder)

    def _run(self, folder: Path) -> None:
        places = {"RUN": folder / "run", "MORE": folder / "more"}
        command(*(places.get(each, each) for each in CHANGES[self.name]))

    def _state(self, folder: Path) -> Any:
        """The gallery, which has to be sound: its rows, and its thresholds; None without one."""
        run = kinspace.Run(folder / "run")
        if not run.indexed:
            return None
        gallery = Gallery.load(run.folder)
        assert len(gallery.index) == len(gallery.table)
        for row, vector in enumerate(gallery.table.vectors):
            [near] = gallery.near(vector, 1)
            same = gallery.table.vectors[near.row] @ vector
            assert near.row == row or same > 0.9999, f"row {row} finds row {near.row}"
        file = run.folder / "thresholds.json"
        thresholds = json.loads(file.read_text()) if file.exists() else None
        return plain([[gallery.backend, rows_of(gallery)], thresholds])


@dataclass(frozen=True)
class ResumeCommand(TrainingWork):
    """A training that was killed half way, and goes on by --resume."""

    def prepare(self, folder: Path) -> None:
        super().prepare(folder)
        trial, failure = folder.with_name("trial"), folder.with_name("failure")
        shutil.copytree(folder, trial)

        def counted() -> None:
            points = Points(trial)
            points.watch()
            train(trial)
            failure.write_text(str(len(points.names)))

        assert in_process(counted, failure) == 0, failure.read_text()
        half = int(failure.read_text()) // 2
        shutil.rmtree(trial)

        def until_half() -> None:
            Points(folder, kill_at=half).watch()
            train(folder)

        assert in_process(until_half, failure) == -signal.SIGKILL, failure.read_text()
        assert (folder / "run/last.safetensors").exists()

    def steps(self, folder: Path) -> Iterator[Any]:
        yield None
        command("train", "--resume", folder / "run", "--workers", "0", "--quiet")
        yield outcome(folder)


@dataclass(frozen=True)
class ReportCommand:
    """The report of a run, in the place of an older one."""

    def prepare(self, folder: Path) -> None:
        write_clean(folder / "photos", classes=8, each=6)
        train(folder)
        command("report", folder / "run", "--seed", "1")

    def steps(self, folder: Path) -> Iterator[Any]:
        yield None
        command("report", folder / "run")
        yield None

    def check(self, folder: Path, allowed: list[Any]) -> None:
        self._check_files(folder / "run")
        command("report", folder / "run")
        self._check_files(folder / "run")
        left = [path.name for path in (folder / "run").rglob("*.part")]
        assert not left, left

    def _check_files(self, run: Path) -> None:
        """Every file of the report is whole, the older one or the new one."""
        assert kinspace.Run(run).results
        assert (run / "report/index.html").exists()
        for path in sorted((run / "report").rglob("*")):
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".html":
                assert path.read_text().rstrip().endswith("</html>"), path
            elif path.suffix == ".png":
                with Image.open(path) as picture:
                    picture.load()
            elif path.is_file() and path.suffix != ".part":
                assert path.stat().st_size, path


@dataclass(frozen=True)
class ReproduceCommand:
    """An experiment of two rows, whose trainings are processes of their own."""

    def prepare(self, folder: Path) -> None:
        digit_experiment.written(folder)

    def steps(self, folder: Path) -> Iterator[Any]:
        yield None
        self._run(folder)
        yield self._numbers(folder)

    def check(self, folder: Path, allowed: list[Any]) -> None:
        end = time.monotonic() + 120
        while True:
            try:
                self._run(folder)
                break
            except AssertionError as error:  # a training that outlived the command says so
                if "is still running" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(1)
        assert self._numbers(folder) in plain(allowed)
        left = [path.name for path in folder.rglob("*.part")]
        assert not left, left

    def _run(self, folder: Path) -> None:
        command(
            *("reproduce", folder / "small.toml", "--seeds", "1", "--commit", "abc"),
            *("--out", folder / "runs", "--device", "cpu", "--workers", "1"),
        )

    def _numbers(self, folder: Path) -> Any:
        [file] = folder.rglob("small*.json")
        return plain(without_clocks(json.loads(file.read_text())))


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        clocks = (*CLOCKS, "date")
        return {k: without_clocks(v) for k, v in value.items() if k not in clocks}
    return [without_clocks(each) for each in value] if isinstance(value, list) else value


COMMAND_SCENARIOS: dict[str, Any] = {
    **{f"command-{name}": GalleryCommand(name) for name in CHANGES},
    "command-resume": ResumeCommand(),
    "command-report": ReportCommand(),
    "command-reproduce": ReproduceCommand(),
}
