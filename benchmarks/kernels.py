"""What a kernel saves: every method and every layer by its formula, compiled, and by a kernel.

    python benchmarks/kernels.py                                    # two CPU threads
    python benchmarks/kernels.py --other ../before/src              # beside another source tree
    PYTHONPATH=src python3 benchmarks/kernels.py --device cuda --minutes 4 --json kernels.json

Three ways to the same numbers, forward and backward, at batches of 128 to 2048 (4096 on a GPU):
`formula`, plain PyTorch as in `kinspace.losses`; `compiled`, the same by torch.compile; `kernel`,
what a source tree with hand-written gradients or kernels has (--other; it is timed in a process of
its own, with the batches of this one). The layers of GoogLeNet are timed with the kernels of
`kinspace._kernels` on and off, and so is its whole step.

Training steps, at 128 and 512: the small net at 96 pixels on a CPU, GoogLeNet at 227 pixels and in
bfloat16 on a GPU, with the method on its embeddings, forward and backward. A loss alone is bound by
the launches of its operations; in a step the host prepares them while the GPU is busy, so the step
is what is compared: `share` is what the method adds to the net alone, and `saved` what the kernel
saves. A kernel stays if it saves 5 % or more at 128 or 512.

Every result is printed, and with --json written, as soon as it is there. Compiling takes longest:
with --workers the methods are compiled in so many processes at once, into the cache of
torch.compile, before they are timed one by one. What takes longer than --limit is left out, and so
is what is left after --minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import measure  # first: it quiets the profiler before torch is loaded
import torch
from measure import Budget, Step
from setting import setting
from torch import Tensor, nn

from losses import CASES, batch, compiled

SIZES = {"cpu": [128, 512, 1024, 2048], "cuda": [128, 512, 1024, 2048, 4096]}
STEPS = (128, 512)  # batches of the training steps
FAILURES = (*measure.FAILURES, torch._dynamo.exc.TorchDynamoException)


def timed(step: Step, device: torch.device, seconds: float) -> tuple[float | None, float | None]:
    """Median milliseconds and peak MB of one step."""
    found = measure.measure({"it": step}, device, Budget(seconds, 1000, 60.0))["it"]
    peak = None if found.peak is None else found.peak / measure.MEGABYTE
    return found.median, peak


def alone(
    name: str, size: int, options: argparse.Namespace, *, through_compiler: bool = False
) -> list | None:
    """[milliseconds, MB] of a method; None where it fails or takes too long."""
    try:
        with measure.at_most(options.limit):
            step = Step(*case(name, size, options, through_compiler=through_compiler))
            step()  # compiles
            return list(timed(step, step.embeddings.device, options.seconds))
    except FAILURES as error:  # some do not compile into one graph
        print(f"{name} at {size}: {type(error).__name__}", file=sys.stderr, flush=True)
        return None


def case(
    name: str, size: int, options: argparse.Namespace, *, through_compiler: bool
) -> tuple[nn.Module, Tensor, Tensor]:
    """A method with embeddings and labels."""
    device = torch.device(options.device)
    embeddings, labels = batch(size, options.dim, 4, device)
    torch.manual_seed(0)
    module = CASES[name](int(labels[-1]) + 1, options.dim).to(device)
    return compiled(module) if through_compiler else module, embeddings, labels


def by_other(options: argparse.Namespace) -> tuple[dict[str, list], dict[str, float]]:
    """Methods alone and in training steps, by the source tree of --other."""
    done = subprocess.run(
        [*this_script(options, options.methods), "--methods-only"],
        env=os.environ | {"PYTHONPATH": str(options.other.resolve())},
        capture_output=True,
        text=True,
        check=True,
    )
    found, steps = json.loads(done.stdout.splitlines()[-1])
    return found, steps


def this_script(options: argparse.Namespace, methods: list[str]) -> list[str]:
    """The command that runs it on some methods, with the numbers of these options."""
    command = [sys.executable, __file__, "--device", options.device, "--methods", *methods]
    command += ["--sizes", *map(str, options.sizes)]
    command += ["--compiled-sizes", *map(str, options.compiled_sizes)]
    for name in ("dim", "seconds", "limit", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    return command


def fill_cache(options: argparse.Namespace) -> None:
    """Compile all methods in several processes, which leave what they made in the cache."""
    shares = [options.methods[first :: options.workers] for first in range(options.workers)]
    variables = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    running = [
        subprocess.Popen(
            [*this_script(options, share), "--compile-only"],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for share in shares
        if share
    ]
    end = (time.monotonic() + options.deadline) / 2  # the other half is for the timing
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0))
        process.kill()


def compile_only(options: argparse.Namespace) -> None:
    for size in options.compiled_sizes:
        for name in options.methods:
            with contextlib.suppress(*FAILURES), measure.at_most(options.limit):
                Step(*case(name, size, options, through_compiler=True))()


class Net:
    """The net of the training steps, with a batch of each size."""

    def __init__(self, options: argparse.Namespace) -> None:
        from kinspace.models import GoogLeNet, SmallNet

        self.options, self.device = options, torch.device(options.device)
        cpu = self.device.type == "cpu"
        self.net, self.side = (SmallNet(), 96) if cpu else (GoogLeNet(), 227)
        self.net = self.net.to(self.device, memory_format=torch.channels_last)
        self.maps: dict[int, Callable[[], Tensor]] = {}

    def step(self, name: str, size: int) -> float | None:
        """Milliseconds of a training step with a method, or of the net alone."""
        if size not in STEPS:
            return None
        if size not in self.maps:
            images = torch.randn(size, 3, self.side, self.side, device=self.device)
            images = images.contiguous(memory_format=torch.channels_last)
            self.maps[size] = maps_in_training(self.net, images)
        embed, dim = self.maps[size], self.options.dim
        module: nn.Module | None = None
        _, labels = batch(size, dim, 4, self.device)
        if name:
            module, _, labels = case(name, size, self.options, through_compiler=False)

        def step() -> None:
            x = nn.functional.normalize(embed().mean((2, 3))[:, :dim], dim=1)
            (x.square().mean() if module is None else module(x, labels)).backward()
            self.net.zero_grad()

        return throughput(step, self.device, self.options.seconds)


def maps_in_training(net: nn.Module, images: Tensor) -> Callable[[], Tensor]:
    """The last feature maps of the images, on a GPU in bfloat16 and by CUDA graphs."""
    if images.device.type == "cpu":
        return lambda: net(images)
    inner = nn.Sequential(net)  # recording replaces the forward of what it is given
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        graphed = torch.cuda.make_graphed_callables(inner, (images,), allow_unused_input=True)
    return lambda: graphed(images).float()


def throughput(step: Callable[[], None], device: torch.device, seconds: float) -> float:
    """Milliseconds of a step among many: none waits for the one before, as in a training."""
    for _ in range(3):
        step()
    torch.cuda.synchronize() if device.type == "cuda" else None
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < 3 * seconds:
        step()
        count += 1
        if device.type == "cuda" and count % 20 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize() if device.type == "cuda" else None
    return (time.perf_counter() - began) / count * 1e3


def layers(device: torch.device, seconds: float) -> list[dict[str, object]]:
    """GoogLeNet's layers with kernels on and off."""
    from kinspace import use_kernels
    from kinspace.models import GoogLeNet
    from kinspace.models.layers import bias_relu, local_response_norm, max_pool

    size = 16 if device.type == "cpu" else 128
    net = GoogLeNet().to(device, memory_format=torch.channels_last)
    half = torch.bfloat16 if device.type == "cuda" else torch.float32

    def map_of(channels: int, side: int, dtype: torch.dtype = half) -> Tensor:
        values = torch.randn(size, channels, side, side, device=device, dtype=dtype)
        return values.contiguous(memory_format=torch.channels_last).requires_grad_()

    bias = torch.randn(192, device=device)
    calls = {
        "max_pool": (map_of(64, 114), lambda x: max_pool(x, stride=2)),
        "local_response_norm": (map_of(192, 57), local_response_norm),
        "bias_relu": (map_of(192, 57), lambda x: bias_relu(x, bias)),
        "whole step": (map_of(3, 227, torch.float32), net),
    }
    rows = []
    for name, (x, function) in calls.items():

        def loss(x: Tensor, _: Tensor, function: nn.Module = function) -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                return function(x).float().sum()

        row: dict[str, object] = {"layer": name, "batch": size}
        for way, on in (("kernel", True), ("formula", False)):
            with use_kernels(on):
                row[way] = timed(Step(loss, x, torch.zeros(1)), device, seconds)
        rows.append(row)
    return rows


def report_on(row: dict[str, object], content: dict[str, object], path: Path | None) -> None:
    """Print a row, and write all that is there."""
    net = content["net_alone"].get(row["size"])
    step, other = row["formula_step"], row["kernel_step"]
    row["share"] = (step - net) / step if step and net else None
    row["saved"] = (step - other) / step if step and other else None
    print(row_text(row), flush=True)
    if path:
        path.write_text(json.dumps(content, indent=1, default=str) + "\n")


def row_text(row: dict[str, object]) -> str:
    def cell(way: list | None) -> str:
        return f"{way[0]:.2f} | {way[1]:.1f}" if way and way[0] is not None else "- | -"

    cells = [row["name"], str(row["size"])]
    cells += [cell(row[way]) for way in ("formula", "compiled", "kernel")]
    steps = (row["formula_step"], row["kernel_step"])
    cells += ["-" if step is None else f"{step:.1f}" for step in steps]
    shares = (row["share"], row["saved"])
    cells += ["-" if share is None else f"{share:+.1%}" for share in shares]
    return f"| {' | '.join(cells)} |"


def as_markdown(content: dict[str, object]) -> str:
    facts = content["setting"]
    lines = [f"{facts['hardware']}; torch {facts['torch']}, kinspace at {facts['commit']}.", ""]
    lines += [
        "| method | batch | formula ms | MB | compiled ms | MB | kernel ms | MB "
        "| step, formula | step, kernel | share | saved |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [row_text(row) for row in content["methods"]]
    lines += [
        "",
        "| layer | batch | formula ms | MB | kernel ms | MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in content["layers"]:
        ways = " | ".join(f"{ms:.2f} | {mb:.1f}" for ms, mb in (row["formula"], row["kernel"]))
        lines.append(f"| {row['layer']} | {row['batch']} | {ways} |")
    alone = ", ".join(f"{step:.1f} at {n}" for n, step in content["net_alone"].items() if step)
    lines += ["", f"A training step of the net alone, ms: {alone}."]
    return "\n".join(lines) + "\n"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=list(SIZES), default="cpu")
    add("--sizes", type=int, nargs="+")
    add("--methods", nargs="+", default=list(CASES), choices=list(CASES))
    add("--dim", type=int, default=128)
    add("--seconds", type=float, default=0.3, help="time for each measurement")
    add("--other", type=Path, help="another source tree to time the methods of")
    add("--compiled-sizes", type=int, nargs="*", help="by torch.compile (default: all sizes)")
    add("--limit", type=float, default=60.0, help="seconds for one method, size and way")
    add("--minutes", type=float, default=1e4, help="for all; what is left then is left out")
    add("--workers", type=int, default=0, help="processes that compile before the timing")
    add("--no-steps", action="store_true", help="no training steps and no layers")
    add("--compile-only", action="store_true", help=argparse.SUPPRESS)
    add("--methods-only", action="store_true", help=argparse.SUPPRESS)
    add("--json", type=Path)
    add("--markdown", type=Path)
    add("--commit")
    add("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    options.sizes = options.sizes or SIZES[options.device]
    if options.compiled_sizes is None:
        options.compiled_sizes = options.sizes
    options.skip_pml, options.compile = True, False
    options.deadline = time.monotonic() + 60 * options.minutes
    return options


def run(options: argparse.Namespace) -> dict[str, object]:
    """All measurements, those that take longest last."""
    kernels, kernel_steps = by_other(options) if options.other else ({}, {})
    net = None if options.no_steps else Net(options)
    rows: list[dict[str, object]] = []
    content: dict[str, object] = {"setting": setting(options), "methods": rows, "layers": []}
    content["net_alone"] = {size: net.step("", size) for size in options.sizes} if net else {}
    for name in options.methods:
        for size in options.sizes:
            key = f"{name} {size}"
            row: dict[str, object] = {"name": name, "size": size, "compiled": None}
            row |= {"formula": alone(name, size, options), "kernel": kernels.get(key)}
            row |= {"formula_step": net.step(name, size) if net else None}
            row |= {"kernel_step": kernel_steps.get(key)}
            rows.append(row)
            report_on(row, content, options.json)
    if net:
        content["layers"] = layers(net.device, 3 * options.seconds)
    if options.workers and options.compiled_sizes:
        fill_cache(options)
    for size in options.compiled_sizes:
        for row in rows:
            if row["size"] == size and time.monotonic() < options.deadline:
                row["compiled"] = alone(row["name"], size, options, through_compiler=True)
                report_on(row, content, options.json)
    return content


def methods_only(options: argparse.Namespace) -> str:
    """What `by_other` reads of a process of the other source tree."""
    plan = [(name, size) for size in options.sizes for name in options.methods]
    found = {f"{name} {size}": alone(name, size, options) for name, size in plan}
    net = Net(options)
    return json.dumps([found, {f"{name} {size}": net.step(name, size) for name, size in plan}])


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    if options.compile_only:
        compile_only(options)
        return
    if options.methods_only:
        print(methods_only(options))
        return
    content = run(options)
    print(as_markdown(content))
    if options.json:
        options.json.write_text(json.dumps(content, indent=1, default=str) + "\n")
    if options.markdown:
        options.markdown.write_text(as_markdown(content))


if __name__ == "__main__":
    main(sys.argv[1:])
