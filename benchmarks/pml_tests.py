"""Count which of pytorch-metric-learning's own tests pass through `kinspace.compat.pml`.

    git clone https://github.com/KevinMusgrave/pytorch-metric-learning CHECKOUT
    python benchmarks/pml_tests.py CHECKOUT
    python benchmarks/pml_tests.py CHECKOUT --only losses/test_triplet --json found.json

The archives of the library on PyPI have no tests, so that a checkout is needed. Its tests are run
as they are: losses, miners, samplers, distances, reducers and the accuracy calculator that they
import are those of the bridge; what else they import (their helpers) is the checkout's own. Each
test ends in one of four ways:

    passed
    no counterpart   it imports or builds what the bridge does not have (ImportError, TypeError,
                     AttributeError, or a ValueError that says what was expected)
    failed           it ran, and a value or a behavior is another: to be explained, see the page
    skipped          by the test itself, such as for want of a GPU
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import os
import sys
import types
import unittest
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from kinspace.compat import pml

LIBRARY = "pytorch_metric_learning"
FOLDERS = ("losses", "miners", "samplers", "wrappers", "utils", "distances", "reducers")
MISSING = (ImportError, TypeError, AttributeError)
Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


@dataclass(frozen=True)
class Outcome:
    """How a test ended; why: the last line of its error."""

    test: str
    result: str
    why: str = ""


class Bridged(types.ModuleType):
    """A package whose files, whatever they are called, are one module of the bridge."""

    def __init__(self, name: str, module: types.ModuleType) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__.update({k: v for k, v in vars(module).items() if not k.startswith("__")})


class Finder:
    """Imports `pytorch_metric_learning.losses.any_file` as the losses of the bridge, and so on."""

    modules: ClassVar[dict[str, types.ModuleType]] = {
        f"{LIBRARY}.losses": pml.losses,
        f"{LIBRARY}.miners": pml.miners,
        f"{LIBRARY}.samplers": pml.samplers,
        f"{LIBRARY}.distances": pml.distances,
        f"{LIBRARY}.reducers": pml.reducers,
        f"{LIBRARY}.utils.accuracy_calculator": pml.accuracy,
    }

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec of a bridged module, None for any other."""
        for prefix, module in self.modules.items():
            file = name.removeprefix(f"{prefix}.")
            if name == prefix or (file != name and file.islower()):  # no class of that name
                loader: Any = Loader(Bridged(name, module))
                return importlib.machinery.ModuleSpec(name, loader, is_package=True)
        return None


class Loader:
    """Loads a module that is there already."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def create_module(self, spec: Any) -> types.ModuleType:
        """The module."""
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class Outcomes(unittest.TestResult):
    """Collects how each test ended."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Outcome] = []

    def _add(self, test: unittest.TestCase, result: str, error: Error | None = None) -> None:
        lines = [""] if error is None else f"{type(error[1]).__name__}: {error[1]}".splitlines()
        why = next(line for line in reversed(lines) if line.strip() or len(lines) == 1)
        self.found.append(
            Outcome(_name(test), result, (why if _is_import(test) else lines[0])[:160])
        )

    def addSuccess(self, test: unittest.TestCase) -> None:
        """It passed."""
        self._add(test, "passed")

    def addError(self, test: unittest.TestCase, err: Error) -> None:
        """It ended in an error."""
        says_what = isinstance(err[1], ValueError) and ": expected " in str(err[1])
        missing = isinstance(err[1], MISSING) or says_what or _is_import(test)
        self._add(test, "no counterpart" if missing else "failed", err)

    def addFailure(self, test: unittest.TestCase, err: Error) -> None:
        """An assertion does not hold."""
        self._add(test, "failed", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """It was skipped."""
        self.found.append(Outcome(_name(test), "skipped", reason))


def _is_import(test: unittest.TestCase) -> bool:
    return type(test).__name__ == "_FailedTest"  # a file that cannot be imported


def _name(test: unittest.TestCase) -> str:
    return test.id().removeprefix("unittest.loader._FailedTest.").removeprefix("tests.")


def run(checkout: Path, only: str, dtypes: str) -> list[Outcome]:
    """Run the tests of a checkout through the bridge."""
    if not (checkout / "tests").is_dir() or not (checkout / "src" / LIBRARY).is_dir():
        raise SystemExit(f"{checkout}: expected a checkout with tests/ and src/{LIBRARY}/")
    os.environ.setdefault("TEST_DEVICE", "cpu")
    os.environ.setdefault("TEST_DTYPES", dtypes)
    sys.path[:0] = [str(checkout.resolve()), str((checkout / "src").resolve())]
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    os.chdir(checkout)
    outcomes = Outcomes()
    for folder in FOLDERS:
        for file in sorted((checkout.resolve() / "tests" / folder).glob("test_*.py")):
            if only in f"{folder}/{file.name}":
                name = f"tests.{folder}.{file.stem}"
                unittest.defaultTestLoader.loadTestsFromName(name).run(outcomes)
    return outcomes.found


def table(found: list[Outcome]) -> str:
    """A row a file, and the tests that did not pass with the reason."""
    files: dict[str, Counter[str]] = {}
    for outcome in found:
        files.setdefault(".".join(outcome.test.split(".")[:2]), Counter())[outcome.result] += 1
    results = ("passed", "failed", "no counterpart", "skipped")
    lines = ["| file | " + " | ".join(results) + " |", "|---" * 5 + "|"]
    lines += [
        f"| {file} | " + " | ".join(str(counts[r]) for r in results) + " |"
        for file, counts in files.items()
    ]
    whole = Counter(outcome.result for outcome in found)
    lines += ["| all | " + " | ".join(str(whole[r]) for r in results) + " |", ""]
    lines += [f"- {o.result}: {o.test}: {o.why}" for o in found if o.result != "passed"]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of pytorch-metric-learning")
    parser.add_argument("--only", default="", help="files whose path has this, losses/test_triplet")
    parser.add_argument("--dtypes", default="float32,float64", help="TEST_DTYPES of its tests")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    options = parser.parse_args(arguments)
    target = options.json and options.json.resolve()
    found = run(options.checkout, options.only, options.dtypes)
    print(table(found))
    if target:
        target.write_text(json.dumps([asdict(outcome) for outcome in found], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
