"""Time forward + backward of every loss and regularizer, beside pytorch-metric-learning.

    python benchmarks/losses.py                      # two CPU threads, some minutes
    python benchmarks/losses.py --device cuda
    python benchmarks/losses.py --losses triplet_all,circle --sizes 512 --json circle.json

Both libraries get the same batches, in turn, in one process. losses.md beside this file says how
the numbers are taken. Where pytorch-metric-learning is absent only ours are timed.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import inspect
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import measure  # first: it quiets the profiler before torch is loaded
import torch
from measure import Budget, Measurement, Step
from peers import PEERS, TwoViews, version
from setting import heading, setting
from torch import Tensor, nn

import kinspace
from kinspace import losses, regularizers
from report import Check, Row, checks, to_markdown, to_text

Build = Callable[[int, int], nn.Module]

# Where the default is not what is compared: margins such that on random vectors of length 1 the
# hinges are partly active, and the ways of mining.
CHOSEN: dict[str, Build] = {
    "triplet_all": lambda classes, dim: losses.Triplet(margin=0.2),
    "triplet_semi_hard": lambda classes, dim: losses.Triplet(margin=0.2, mining="semi_hard"),
    "triplet_batch_hard": lambda classes, dim: losses.Triplet(margin=0.2, mining="batch_hard"),
    "contrastive": lambda classes, dim: losses.Contrastive(margin=2.0),
    "n_pair_first": lambda classes, dim: losses.NPair(anchors="first"),
    "proxy_nca": lambda classes, dim: losses.ProxyNCA(classes, dim, positive_in_denominator=True),
    "density": lambda classes, dim: regularizers.DensityAdaptivity(classes, torch.rand(classes)),
}


def by_default(kind: type[nn.Module]) -> Build:
    """A module of the registries for a number of classes and a dimension, where it has them."""
    asked = inspect.signature(kind).parameters
    return lambda classes, dim: kind(
        **{key: value for key, value in (("num_classes", classes), ("dim", dim)) if key in asked}
    )


# every method of the registries; the spreads are given the whole batch as class centers
CASES: dict[str, Build] = {
    name: by_default(kind)
    for name, kind in {**kinspace.LOSSES, **kinspace.REGULARIZERS}.items()
    if name != "triplet"
} | CHOSEN
CASES |= {  # half of the batch each
    name: lambda classes, dim, kind=kind: TwoViews(kind())  # type: ignore[misc]
    for name, kind in losses.PAIRED_LOSSES.items()
}
DEFAULTS = {  # by device
    "cpu": {
        "sizes": [128, 512, 1024],
        "dim": 128,
        "seconds": 1.0,
        "limit": 60.0,
        "extra": [("lifted_structure", 4096)],
    },
    "cuda": {
        "sizes": [512, 1024, 2048, 4096],
        "dim": 512,
        "seconds": 0.4,
        "limit": 20.0,
        "extra": [("triplet_all", 8192)],
    },
}


def batch(size: int, dim: int, group: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random vectors of length about 1, `group` to a class."""
    generator = torch.Generator().manual_seed(size)
    embeddings = torch.randn(size, dim, generator=generator) * dim**-0.5
    labels = torch.arange(size) // group
    return embeddings.to(device).requires_grad_(), labels.to(device)


def run_case(
    name: str, size: int, options: argparse.Namespace, device: torch.device, budget: Budget
) -> Row:
    embeddings, labels = batch(size, options.dim, options.group, device)
    torch.manual_seed(0)  # proxies
    ours = CASES[name](int(labels[-1]) + 1, options.dim).to(device)
    peer = None if options.skip_pml or name not in PEERS else PEERS[name].build(ours).to(device)
    steps = {"ours": Step(compiled(ours) if options.compile else ours, embeddings, labels)}
    if peer is not None:
        steps["peer"] = Step(peer, embeddings, labels)
    with contextlib.suppress(*measure.FAILURES):
        steps["ours"]()  # may compile: outside of the limit for one call
    found = measure.measure(steps, device, budget)
    return Row(name, size, found["ours"], found.get("peer"))


def compiled(module: nn.Module) -> nn.Module:
    torch._dynamo.reset()
    return torch.compile(module, fullgraph=True, dynamic=False)  # type: ignore[return-value]


def run(options: argparse.Namespace, device: torch.device, facts: dict[str, object]) -> list[Row]:
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    budget = Budget(options.seconds, options.repeat, options.limit, clock)
    plan = [(name, size) for size in options.sizes for name in options.losses]
    plan += [(name, size) for name, size in options.extra if name in options.losses]
    rows: list[Row] = []
    for name, size in plan:
        row = run_case(name, size, options, device, budget)
        rows.append(row)
        print(progress(row), flush=True)
        if options.json:
            save_json(options.json, facts, rows, [])
    return rows


def progress(row: Row) -> str:
    def _result_text(measurement: Measurement) -> str:
        if measurement.median is None or measurement.peak is None:
            return measurement.problem
        return f"{measurement.median:.3f} ms {measurement.peak / measure.MEGABYTE:.2f} MB"

    peer = f"  PML {_result_text(row.peer):26}" if row.peer else ""
    ratio = f"  {row.speedup:.2f}x" if row.speedup else ""
    return f"{row.name:22} {row.size:5}  ours {_result_text(row.ours):26}{peer}{ratio}"


def save_json(path: Path, facts: dict[str, object], rows: list[Row], verdicts: list[Check]) -> None:
    content = {
        "setting": facts,
        "results": [row.summary() for row in rows],
        "checks": [{"text": c.text, "verdict": c.verdict, "detail": c.detail} for c in verdicts],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=list(DEFAULTS), default="cpu")
    add("--sizes", type=_sizes, help="batch sizes (default: 128,512,1024; cuda: 512 to 4096)")
    add("--extra", type=_extra, help="more cases, as name:size; '' for none")
    add("--dim", type=int, help="dimension of the embeddings (default: 128; cuda: 512)")
    add("--group", type=int, default=4, help="samples a class (default: 4)")
    add("--losses", type=_cases, default=list(CASES), help="which cases (default: all)")
    add("--seconds", type=float, help="time a contender and case (default: 1; cuda: 0.4)")
    add("--repeat", type=int, default=1000, help="timed calls of each at most")
    add("--limit", type=float, help="seconds until a call is broken off (default: 60; cuda: 20)")
    add("--memory", type=float, help="GB a CPU run may take (default: 3/4 of what is free)")
    add("--threads", type=int, default=2, help="CPU threads (default: 2)")
    add("--clock", choices=["wall", "cpu"], default="wall", help="cpu: of this process; see page")
    add("--skip-pml", action="store_true", help="time ours alone")
    add("--compile", action="store_true", help="ours through torch.compile(fullgraph=True)")
    add("--json", type=Path, help="save the raw numbers here, after every case")
    add("--markdown", type=Path, help="save the tables here")
    add("--commit", help="what to record where git is missing")
    options = parser.parse_args(arguments)
    for name, default in DEFAULTS[options.device].items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _extra(text: str) -> list[tuple[str, int]]:
    pairs = [part.rsplit(":", 1) for part in text.split(",") if part]
    return [(_cases(name)[0], int(size)) for name, size in pairs]


def _cases(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in CASES:
            close = difflib.get_close_matches(name, CASES, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise argparse.ArgumentTypeError(
                f"unknown case {name!r}; {hint}choose from: {', '.join(CASES)}"
            )
    return names


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    if version() is None:
        options.skip_pml = True
        print("pytorch-metric-learning is not installed (extra: benchmark); ours alone")
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
        measure.check_cpu_peak()
        options.memory = measure.limit_memory(options.memory)
    warnings.filterwarnings("ignore", module="pytorch_metric_learning")
    facts = setting(options)
    rows = run(options, torch.device(options.device), facts)
    verdicts = checks(rows)
    title = heading(facts, options)
    print("\n" + to_text(title, rows, verdicts))
    if options.json:
        save_json(options.json, facts, rows, verdicts)
    if options.markdown:
        options.markdown.write_text(to_markdown(title, rows, verdicts))


if __name__ == "__main__":
    main(sys.argv[1:])
