"""What a kernel saves: every method and every layer by its formula, compiled, and by a kernel.

    python benchmarks/kernels.py                                    # two CPU threads
    python benchmarks/kernels.py --other ../before/src              # beside another source tree
    PYTHONPATH=src python3 benchmarks/kernels.py --device cuda

Three ways to the same numbers, forward and backward, at batches of 128 to 2048 (4096 on a GPU):
`formula`, plain PyTorch as in `kinspace.losses`; `compiled`, the same by torch.compile; `kernel`,
what a source tree with hand-written gradients or kernels has (--other; it is timed in a process of
its own, with the batches of this one). The layers of GoogLeNet are timed with the kernels of
`kinspace._kernels` on and off, and so is its whole step.

Training steps, at 128 and 512: the small net at 96 pixels on a CPU, GoogLeNet at 227 pixels and in
bfloat16 on a GPU, with the method on its embeddings, forward and backward. A loss alone is bound by
the launches of its operations; in a step the host prepares them while the GPU is busy, so the step
is what is compared. The last column is the share of it that the kernel saves. A kernel stays if it
saves 5 % or more at 128 or 512.
"""

from __future__ import annotations

import argparse
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


def timed(step: Step, device: torch.device, seconds: float) -> tuple[float | None, float | None]:
    """Median milliseconds and peak MB of one step."""
    found = measure.measure({"it": step}, device, Budget(seconds, 1000, 60.0))["it"]
    peak = None if found.peak is None else found.peak / measure.MEGABYTE
    return found.median, peak


def methods(
    options: argparse.Namespace, device: torch.device, *, through_compiler: bool
) -> dict[str, list]:
    """[milliseconds, MB] of each method and size."""
    found = {}
    for size in options.compiled_sizes if through_compiler else options.sizes:
        for name in options.methods:
            embeddings, labels = batch(size, options.dim, 4, device)
            torch.manual_seed(0)
            module = CASES[name](int(labels[-1]) + 1, options.dim).to(device)
            try:
                made = compiled(module) if through_compiler else module
                made(embeddings, labels).backward()
            except (
                RuntimeError,
                ValueError,
                torch._dynamo.exc.TorchDynamoException,
            ) as error:  # some do not compile into one graph
                print(f"{name} at {size}: {type(error).__name__}", file=sys.stderr)
                continue
            found[f"{name} {size}"] = list(
                timed(Step(made, embeddings, labels), device, options.seconds)
            )
    return found


def by_other(options: argparse.Namespace) -> tuple[dict[str, list], dict[str, float]]:
    """Methods alone and in training steps, by the source tree of --other."""
    command = [sys.executable, __file__, "--methods-only", "--device", options.device]
    command += ["--sizes", *map(str, options.sizes), "--methods", *options.methods]
    command += ["--dim", str(options.dim), "--seconds", str(options.seconds)]
    environment = os.environ | {"PYTHONPATH": str(options.other.resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    alone, steps = json.loads(done.stdout.splitlines()[-1])
    return alone, steps


def training_steps(options: argparse.Namespace, device: torch.device) -> dict[str, float]:
    """Milliseconds of a training step with each method and size, and of the net alone."""
    from kinspace.models import GoogLeNet, SmallNet

    net, side = (SmallNet(), 96) if device.type == "cpu" else (GoogLeNet(), 227)
    net = net.to(device, memory_format=torch.channels_last)
    found = {}
    for size in [size for size in STEPS if size in options.sizes]:
        images = torch.randn(size, 3, side, side, device=device)
        images = images.contiguous(memory_format=torch.channels_last)
        _, labels = batch(size, options.dim, 4, device)
        embed = maps_in_training(net, images)
        for name in ["", *options.methods]:
            torch.manual_seed(0)
            module = CASES[name](int(labels[-1]) + 1, options.dim).to(device) if name else None

            def step(
                embed: Callable[[], Tensor] = embed,
                module: nn.Module | None = module,
                labels: Tensor = labels,
            ) -> None:
                x = nn.functional.normalize(embed().mean((2, 3))[:, : options.dim], dim=1)
                (x.square().mean() if module is None else module(x, labels)).backward()
                net.zero_grad()

            found[f"{name} {size}"] = throughput(step, device, options.seconds)
    return found


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


def rows_of(
    found: dict[str, dict[str, list]], steps: dict[str, dict[str, float]]
) -> list[dict[str, object]]:
    """A row a method and size; `saved` is the share of a training step."""
    rows = []
    for key, formula in found["formula"].items():
        name, size = key.rsplit(" ", 1)
        row = {"name": name, "size": int(size), "formula": formula}
        row |= {way: found.get(way, {}).get(key) for way in ("compiled", "kernel")}
        row |= {f"{way}_step": steps.get(way, {}).get(key) for way in ("formula", "kernel")}
        mine, other = row["formula_step"], row["kernel_step"]
        rows.append(row | {"saved": None if not (mine and other) else (mine - other) / mine})
    return rows


def as_markdown(content: dict[str, object]) -> str:
    def cell(way: list | None) -> str:
        return f"{way[0]:.2f} | {way[1]:.1f}" if way and way[0] is not None else "- | -"

    facts = content["setting"]
    lines = [f"{facts['hardware']}; torch {facts['torch']}, kinspace at {facts['commit']}.", ""]
    lines += [
        "| method | batch | formula ms | MB | compiled ms | MB | kernel ms | MB "
        "| step, formula | step, kernel | saved |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in content["methods"]:
        cells = " | ".join(cell(row[way]) for way in ("formula", "compiled", "kernel"))
        steps = [row["formula_step"], row["kernel_step"]]
        shown = " | ".join("-" if step is None else f"{step:.1f}" for step in steps)
        saved = "-" if row["saved"] is None else f"{row['saved']:+.1%}"
        lines.append(f"| {row['name']} | {row['size']} | {cells} | {shown} | {saved} |")
    lines += [
        "",
        "| layer | batch | formula ms | MB | kernel ms | MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in content["layers"]:
        ways = " | ".join(cell(list(row[way])) for way in ("formula", "kernel"))
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
    return options


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    device = torch.device(options.device)
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    if options.methods_only:
        alone = methods(options, device, through_compiler=False)
        print(json.dumps([alone, training_steps(options, device)]))
        return
    found = {"formula": methods(options, device, through_compiler=False)}
    steps = {"formula": training_steps(options, device)}
    if options.other:
        found["kernel"], steps["kernel"] = by_other(options)
    found["compiled"] = methods(options, device, through_compiler=True)
    content: dict[str, object] = {
        "setting": setting(options),
        "net_alone": {size: steps["formula"].get(f" {size}") for size in STEPS},
        "methods": rows_of(found, steps),
        "layers": layers(device, 3 * options.seconds),
    }
    print(as_markdown(content))
    if options.json:
        options.json.write_text(json.dumps(content, indent=1, default=str) + "\n")
    if options.markdown:
        options.markdown.write_text(as_markdown(content))


if __name__ == "__main__":
    main(sys.argv[1:])
