"""Try the wheel in an environment outside the checkout: the core alone, then each extra.

    python release/try_wheel.py                    # the newest packages
    python release/try_wheel.py --lowest           # the lower bounds of pyproject.toml
    python release/try_wheel.py --extras serve,onnx --python python3.12

Each extra is installed into the environment of the core, tried, and removed again with what it
brought. The table is printed and written; the exit code is 1 if a row failed. The environment takes
about 6 GB on Linux, where PyPI's torch brings CUDA; --folder keeps it for the next time. Needs the
network.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_TRIED = ("all", "dev", "docs", "benchmark", "fiftyone")  # fiftyone starts a database
LIMIT = 900  # seconds for one command
STEPS = ["--steps", "20", "--set", "warm_start.steps=0", "--quiet"]
RUN = ["train", "digits", "--out", "run", *STEPS]

LORA = ["--set", "model.pretrained=false", "--set", "model.lora=2", "--steps", "2"]
LORA += ["--set", "transform.size=32", "--set", "transform.resize=32"]

# What is tried with each extra, after the core's; a list is arguments of `kinspace`, a text Python.
CORE: list[list[str] | str] = [
    ["--version"],
    ["doctor"],
    RUN,
    ["evaluate", "run"],
    ["report", "run"],
    ["index", "run"],
    ["duplicates", "digits", "-o", "duplicates.csv"],
    ["export", "run", "--format", "program"],
    "import kinspace; kinspace.Run('run').save_repository('model'); kinspace.load('model')",
]
COPY = "import shutil; shutil.copytree('run', 'run-{}')"  # its index needs the extra from then on
TRIED: dict[str, list[list[str] | str]] = {
    "pretrained": [["embed", "--backbone", "tf_efficientnet_lite0", "digits", "-o", "lite.npz"]],
    "lora": [
        ["train", "digits", "--out", "lora", "--backbone", "vit_tiny_patch16_224", *STEPS, *LORA]
    ],
    "serve": [
        "import socket, subprocess, sys, time, urllib.request\n"
        "with socket.socket() as free:\n"
        "    free.bind(('127.0.0.1', 0))\n"
        "    port = str(free.getsockname()[1])\n"
        "command = [sys.executable, '-m', 'kinspace', 'serve', 'run', '--port', port]\n"
        "server = subprocess.Popen(command)\n"
        "try:\n"
        "    for attempt in range(600):\n"
        "        try:\n"
        "            urllib.request.urlopen(f'http://localhost:{port}/', timeout=9).close()\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(1)\n"
        "    else:\n"
        "        raise SystemExit('the server does not answer')\n"
        "finally:\n"
        "    server.terminate()\n"
        "    server.wait(60)"
    ],
    "faiss": [COPY.format("faiss"), ["index", "run-faiss", "--replace", "--backend", "faiss"]],
    "milvus": [
        COPY.format("milvus"),
        ["index", "run-milvus", "--replace", "--backend", "milvus", "--uri", "milvus.db"],
    ],
    "onnx": [["export", "run"]],
    "tune": [["tune", "digits", "--trials", "1", "--steps", "5", "--out", "study", "--quiet"]],
    "tensorboard": [["train", "digits", "--out", "board", "--log-to", "tensorboard", *STEPS]],
    "parquet": [["embed", "run", "digits", "-o", "digits.parquet"]],
    "hub": ["import kinspace.hub; kinspace.hub.repository._hub()"],
    "datasets": [
        "import datasets, numpy as np\n"
        "from PIL import Image\n"
        "from kinspace.data import load_dataset\n"
        "pictures = [Image.fromarray(np.full((8, 8, 3), n, np.uint8)) for n in range(4)]\n"
        "columns = {'image': pictures, 'label': list('abab')}\n"
        "kinds = {'image': datasets.Image(), 'label': datasets.Value('string')}\n"
        "rows = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))\n"
        "assert load_dataset(rows).num_classes == 2"
    ],
    "wandb": [["train", "digits", "--out", "wandb-run", "--log-to", "wandb", *STEPS]],
    "mlflow": [["train", "digits", "--out", "mlflow-run", "--log-to", "mlflow", *STEPS]],
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    extra: str
    versions: str
    seconds: float
    failed: str = ""


def main() -> int:
    """Try everything; returns the exit code."""
    options = _parse()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = [name for name in extras if name not in NOT_TRIED]
    if options.extras is not None:
        names = [name for name in options.extras.split(",") if name]
    if unknown := [name for name in names if name not in TRIED]:
        raise SystemExit(f"no trial for {', '.join(unknown)}; add it to TRIED in {__file__}")
    with tempfile.TemporaryDirectory(prefix="kinspace-wheel-") as folder:
        kept = (options.folder or Path(folder)).absolute() / "environment"
        place = Trial(Path(folder), kept, options.python, lowest=options.lowest)
        rows = []
        for row in place.rows(project["dependencies"], {name: extras[name] for name in names}):
            rows.append(row)
            print(_line(row), flush=True)
        about = place.about
    text = _table(rows, about, lowest=options.lowest)
    options.out.write_text(text, encoding="utf-8")
    print(f"\n{options.out}: {sum(not row.failed for row in rows)} of {len(rows)} passed")
    return int(any(row.failed for row in rows))


class Trial:
    """A wheel, an environment, and a folder outside the checkout to use it in."""

    def __init__(self, folder: Path, environment: Path, python: str, *, lowest: bool) -> None:
        self._work = folder / "work"
        self._work.mkdir()
        self._lowest = lowest
        self._bin = environment / ("Scripts" if os.name == "nt" else "bin")
        if not environment.exists():
            self._run([python, "-m", "venv", str(environment)])
        wheels = folder / "wheels"
        self._pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
        (self._wheel,) = wheels.glob("kinspace-*.whl")
        if "kinspace" in self._installed():  # in a kept environment: of an earlier wheel
            self._pip("uninstall", "--yes", "kinspace")
        self.about = self._run([str(self._bin / "python"), "--version"]).strip()

    def rows(
        self, dependencies: Sequence[str], extras: Mapping[str, Sequence[str]]
    ) -> Iterator[Row]:
        """The core, then each extra."""
        core = self._try("core", dependencies, CORE)
        yield core
        if core.failed:
            return
        for name, requirements in extras.items():
            before = self._installed()
            yield self._try(name, requirements, TRIED[name])
            brought = sorted(set(self._installed()) - set(before))
            if brought:
                self._pip("uninstall", "--yes", *brought)

    def _try(
        self, extra: str, requirements: Sequence[str], commands: Sequence[list[str] | str]
    ) -> Row:
        started, failed = time.monotonic(), ""
        target = str(self._wheel) + ("" if extra == "core" else f"[{extra}]")
        pins = [_lowest(text) for text in requirements] if self._lowest else []
        try:
            self._pip("install", target, *pins)
            for command in commands:
                self._command(command)
        except subprocess.CalledProcessError as error:
            failed = _last_line(error.output)
        except subprocess.TimeoutExpired as error:
            failed = f"no answer in {error.timeout:.0f} s: {' '.join(error.cmd[1:])[:80]!r}"
        found = self._installed()
        names = [re.split(r"[\[<>=~! ]", text)[0] for text in requirements]
        versions = [f"{name} {found.get(_canonical(name), 'missing')}" for name in names]
        return Row(extra, ", ".join(versions), time.monotonic() - started, failed)

    def _command(self, command: list[str] | str) -> None:
        if isinstance(command, str):
            self._run([str(self._bin / "python"), "-c", command])
        else:
            self._run([str(self._bin / "kinspace"), *command])

    def _installed(self) -> dict[str, str]:
        listed = json.loads(self._pip("list", "--format", "json"))
        return {_canonical(each["name"]): each["version"] for each in listed}

    def _pip(self, *arguments: str) -> str:
        python = str(self._bin / "python")
        return self._run([python, "-m", "pip", "--disable-pip-version-check", *arguments])

    def _run(self, command: Sequence[str]) -> str:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
        done = subprocess.run(
            command,
            cwd=self._work,
            env=environment,
            check=False,
            text=True,
            capture_output=True,
            timeout=LIMIT if command[1:3] != ["-m", "pip"] else None,
        )
        if done.returncode:
            output = done.stderr.strip() or done.stdout
            raise subprocess.CalledProcessError(done.returncode, command, output=output)
        return done.stdout


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="interpreter to try with")
    parser.add_argument("--lowest", action="store_true", help="install the lower bounds")
    parser.add_argument("--extras", help="extras to try, by comma; default: all")
    parser.add_argument("--folder", type=Path, help="keep the environment there")
    parser.add_argument("--out", type=Path, default=Path("wheel.md"), help="table to write")
    return parser.parse_args()


def _lowest(requirement: str) -> str:
    """The lower bound alone: "torch>=2.6" is "torch==2.6"."""
    return requirement.replace(">=", "==")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _last_line(output: str | None) -> str:
    lines = [line.strip() for line in (output or "").splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("WARNING")]
    return (told or lines or ["no output"])[-1].replace("|", "/")[:200]


def _line(row: Row) -> str:
    return f"| {row.extra} | {row.versions} | {row.failed or 'passed'} | {row.seconds:.0f} |"


def _table(rows: Sequence[Row], about: str, *, lowest: bool) -> str:
    bound = "lower bounds" if lowest else "newest versions"
    head = ["| extra | packages | result | seconds |", "|---|---|---|---:|"]
    return "\n".join([f"{about}, {bound}:", "", *head, *map(_line, rows), ""])


if __name__ == "__main__":
    sys.exit(main())
