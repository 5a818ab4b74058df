"""How much of a bare loop's speed the training loop keeps.

Bare: one batch of random tensors that stays on the device, the same model in the same precision,
`embeddings.square().mean().backward()`, the same optimizer. No data, no metric loss, no log.
Ours: `kinspace.training.loop.fit` with a cache of decoded pictures, crops, the loss, the log.
Both in turns, the median over the turns.

    python benchmarks/training.py --device cuda --backbone googlenet --size 227 --batch 128
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from setting import setting

from kinspace.data import Dataset, cache_in_memory, from_arrays, load_dataset
from kinspace.recipes import Recipe, read_recipe, with_changes
from kinspace.recipes.overrides import with_batch_size
from kinspace.training.components import (
    make_model,
    make_plan,
    make_state,
    transform_settings,
)
from kinspace.training.cuda_graphs import Graphed
from kinspace.training.data_parts import DataPart
from kinspace.training.loop import Hooks, fit
from kinspace.training.settings import RunSettings
from kinspace.training.step import Precision


def bare(recipe: Recipe, settings: RunSettings, options: argparse.Namespace) -> float:
    """Images a second of the bare loop."""
    device = settings.on_device()
    model = make_model(recipe, seed=0).to(device).train()
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.type == "cuda")
    images = torch.randn(options.batch, 3, options.size, options.size, device=device)
    if settings.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    precision = Precision(settings.in_precision(device), device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision.autocast():
            embeddings = model(images)
        embeddings.float().square().mean().backward()
        optimizer.step()

    for _ in range(options.warm_up):
        step()
    waited(device)
    begun = time.perf_counter()
    for _ in range(options.steps):
        step()
    waited(device)
    return options.batch * options.steps / (time.perf_counter() - begun)


def ours(
    recipe: Recipe, settings: RunSettings, feed: DataPart, options: argparse.Namespace
) -> float:
    """Images a second of our loop, without its first steps."""
    model = make_model(recipe, seed=0)
    state = make_state(recipe, settings, model, feed, dim=recipe.model.dim or 1024)
    if feed.device.type == "cuda":  # as `kinspace.train` does
        state.compiled = Graphed(state.model, state.precision)
    begun = 0.0

    def row(values: dict[str, object]) -> None:
        nonlocal begun
        if values["step"] == options.warm_up:
            waited(feed.device)
            begun = time.perf_counter()

    fit(state, make_plan(recipe, settings), feed, None, Hooks(write_row=row))
    waited(feed.device)
    return options.batch * options.steps / (time.perf_counter() - begun)


def waited(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def pictures(options: argparse.Namespace) -> Dataset:
    if options.data:
        return load_dataset(options.data)
    rng = np.random.default_rng(0)
    side, count = options.resize, options.classes * 60
    array = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return from_arrays(array, np.arange(count) % options.classes)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", help="a data set; else random pictures")
    parser.add_argument("--method", default="nra")
    parser.add_argument("--backbone", default="googlenet")
    parser.add_argument("--size", type=int, default=227)
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, help="processes that decode")
    parser.add_argument("--precision")
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--commit", help="where git is missing")
    parser.add_argument("--json", type=Path)
    parser.set_defaults(skip_pml=True)
    return parser


def main() -> None:
    parser = arguments()
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = with_changes(
        read_recipe(options.method),
        {
            "model.backbone": options.backbone,
            "model.dim": 512,
            "transform.size": options.size,
            "transform.resize": options.resize,
            "schedule.steps": options.warm_up + options.steps,
            "schedule.kind": "constant",
            "optimizer.lr": 1e-5,
            "warm_start.steps": 0,
            "validation.every": 10**6,
        },
    )
    recipe = with_batch_size(recipe, options.batch)
    settings = RunSettings(device=options.device, precision=options.precision, save_every=10**6)
    device = settings.on_device()
    dataset = pictures(options)
    transform = transform_settings(recipe, make_model(recipe, seed=0))
    cache = cache_in_memory(dataset, transform, workers=options.workers).to(device)
    feed = DataPart(dataset, transform, device, cache, channels_last=settings.channels_last)
    turns = []
    if options.warm_up % settings.log_every:
        parser.error(f"--warm-up: expected a multiple of {settings.log_every}")
    for turn in range(options.turns):
        speeds = {"bare": bare(recipe, settings, options)}
        speeds["ours"] = ours(recipe, settings, feed, options)
        turns.append(speeds)
        print(f"turn {turn}: " + ", ".join(f"{k} {v:,.0f} images/s" for k, v in speeds.items()))
    middle = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    share = middle["ours"] / middle["bare"]
    print(
        f"{options.backbone} at {options.size}, batch {options.batch}, "
        f"{settings.in_precision(device)}: bare {middle['bare']:,.0f}, ours "
        f"{middle['ours']:,.0f} images/s, {share:.1%}"
    )
    if options.json:
        found = setting(options) | {"turns": turns, "median": middle, "share": share}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
