"""Images a second from the loaders, and the share of a training step spent waiting for them.

    python benchmarks/loader.py
    python benchmarks/loader.py --data moths --resize 96 --size 88
    PYTHONPATH=src python benchmarks/loader.py --device cuda --model resnet50 --json h200.json

The set is made, JPEGs of 256 pixels, shapes over noise, in a temporary folder; or it is the moths,
as JPEGs of 96 pixels. Rows: the files read and cropped one by one by torchvision in DataLoader
workers (no cache); a decoded cache in memory, mapped from disk, and on the GPU, cropped in batch on
the device. A row with "rescale" enlarges by up to 30 % as Magnet does. Loading alone: an epoch with
nothing but the loader, after one to warm up. A step: forward, backward and SGD of the model.
Waiting: the time inside next(loader), on a GPU with what its stream then waits for the batch; its
share is that over the time of all steps.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image, ImageDraw
from setting import setting
from torch import Tensor, nn

from kinspace.data import (
    Batch,
    CachedLoader,
    Dataset,
    PictureCache,
    PictureLoader,
    TransformSettings,
    cache_in_memory,
    cache_on_disk,
    from_names,
    moths_dataset,
    train_transform,
)
from kinspace.data.pictures import FilePictures
from kinspace.samplers import BatchSampler, random

PER_CLASS = 20
WARM_UP = 3  # steps that are not counted
Loader = CachedLoader | PictureLoader


@dataclass(frozen=True)
class Row:
    loader: str
    images_per_second: float
    step_ms: float
    waiting_ms: float

    @property
    def waiting(self) -> float:
        return self.waiting_ms / self.step_ms


def make_pictures(folder: Path, count: int, side: int) -> Dataset:
    """Shapes over smooth noise: JPEGs of about the length that photographs of that size have."""
    paths = [folder / f"{number:05}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(_picture(number, side))
    names = [f"class {number // PER_CLASS:04}" for number in range(count)]
    return from_names(FilePictures(paths, root=folder), names, name="made")


def write_moths(folder: Path) -> Dataset:
    """The moths as files, as a user's pictures are."""
    moths = moths_dataset()
    paths = [folder / f"{number:05}.jpg" for number in range(len(moths))]
    for number, path in enumerate(paths):
        path.write_bytes(_jpeg(moths.pictures.read(number)))
    return replace(moths, pictures=FilePictures(paths, root=folder))


def _picture(number: int, side: int) -> bytes:
    draw = np.random.default_rng(number)
    coarse = draw.integers(256, size=(side // 8, side // 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    fine = draw.integers(-20, 21, size=(side, side, 3))
    picture = Image.fromarray((np.asarray(smooth) + fine).clip(0, 255).astype(np.uint8))
    canvas = ImageDraw.Draw(picture)
    for _ in range(4):
        left, top = draw.integers(side, size=2).tolist()
        size = int(draw.integers(side // 8, side // 2))
        color = tuple(draw.integers(256, size=3).tolist())
        canvas.ellipse((left, top, left + size, top + size), fill=color)
    return _jpeg(picture)


def _jpeg(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "jpeg", quality=90)
    return stream.getvalue()


def small_network() -> nn.Module:
    """Four convolutions: a step so short that a loader has nowhere to hide."""
    widths = [3, 16, 32, 64, 128]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 64))


def model_of(options: Namespace) -> nn.Module:
    if options.model == "small":
        model = small_network()
    else:
        model = getattr(torchvision.models, options.model)(weights=None, num_classes=64)
    return model.to(options.device, memory_format=torch.channels_last).train()


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def forever(loader: Loader) -> Iterator[Batch]:
    while True:
        yield from loader


def images_per_second(loader: Loader, device: str) -> float:
    for _ in loader:
        pass  # workers start, files and memory are touched
    wait_for(device)
    began = time.perf_counter()
    images = sum(len(batch.labels) for batch in loader)
    wait_for(device)
    return images / (time.perf_counter() - began)


def steps(loader: Loader, options: Namespace) -> tuple[float, float]:
    """Milliseconds of a step, and of those the ones spent waiting for its batch."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = forever(loader)
    waited, began = 0.0, 0.0
    for step in range(WARM_UP + options.steps):
        if step == WARM_UP:
            wait_for(options.device)
            waited, began = 0.0, time.perf_counter()
        asked = time.perf_counter()
        batch = next(batches)
        wait_for(options.device)  # the step before is done (below): only the batch is waited for
        waited += time.perf_counter() - asked
        train(model, optimizer, batch.images, options)
        wait_for(options.device)
    took = time.perf_counter() - began
    return took / options.steps * 1e3, waited / options.steps * 1e3


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, how: Namespace
) -> None:
    optimizer.zero_grad(set_to_none=True)
    images = images.to(memory_format=torch.channels_last)
    with torch.autocast(how.device, torch.bfloat16, enabled=how.device == "cuda"):
        loss = model(images).square().mean()
    loss.backward()
    optimizer.step()


def loaders(
    dataset: Dataset, folder: Path, options: Namespace
) -> Iterable[tuple[str, Callable[[], Loader]]]:
    plain = TransformSettings(size=options.size, resize=options.resize)
    magnet = TransformSettings(size=options.size, resize=options.resize, rescale=0.3)

    def sampler() -> BatchSampler:
        return random(dataset.labels, batch_size=options.batch, drop_last=True)

    def read(settings: TransformSettings, workers: int) -> Loader:
        transform = train_transform(settings)
        return PictureLoader(dataset, sampler(), transform, workers=workers, device=options.device)

    def cached(cache: PictureCache, settings: TransformSettings) -> Loader:
        return CachedLoader(cache, sampler(), settings, device=options.device, channels_last=True)

    for workers in options.workers:
        yield f"no cache, {workers} workers", partial(read, plain, workers)
    yield (
        f"no cache, {options.workers[-1]} workers, rescale",
        partial(read, magnet, options.workers[-1]),
    )
    began = time.perf_counter()
    memory = cache_in_memory(dataset, plain)
    print(f"cache made in {time.perf_counter() - began:.1f} s, workers starting included")
    caches = {"memory": memory, "disk": cache_on_disk(dataset, folder / "cache", plain)}
    if options.device == "cuda":
        caches["GPU"] = memory.to("cuda")
    for name, cache in caches.items():
        yield f"cache: {name}", partial(cached, cache, plain)
        yield f"cache: {name}, rescale", partial(cached, cache, magnet)


def measured(dataset: Dataset, folder: Path, options: Namespace) -> list[Row]:
    rows = []
    for name, make in loaders(dataset, folder, options):
        alone = images_per_second(make(), options.device)
        step_ms, waiting_ms = steps(make(), options)
        rows.append(Row(name, alone, step_ms, waiting_ms))
        print(f"  {name}: {alone:,.0f} images/s, waiting {rows[-1].waiting:.1%}", flush=True)
    return rows


def to_markdown(rows: list[Row]) -> str:
    table = [["loader", "images/s", "step ms", "waiting ms", "waiting"], ["---", *["---:"] * 4]]
    table += [
        [
            row.loader,
            f"{row.images_per_second:,.0f}",
            f"{row.step_ms:.1f}",
            f"{row.waiting_ms:.2f}",
            f"{row.waiting:.1%}",
        ]
        for row in rows
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--data", choices=["made", "moths"], default="made")
    parser.add_argument("--model", default="small", help="small, or a name of torchvision's")
    parser.add_argument("--pictures", type=int, default=2_000, help="how many are made")
    parser.add_argument("--side", type=int, default=256, help="of the pictures in the files")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--commit", help="the commit to name, where git is absent")
    options = parser.parse_args()
    options.skip_pml = True
    torch.set_num_threads(options.threads)
    facts = setting(options)
    with tempfile.TemporaryDirectory() as folder:
        pictures = Path(folder) / "pictures"
        pictures.mkdir()
        if options.data == "moths":
            dataset, options.side = write_moths(pictures), 96
        else:
            dataset = make_pictures(pictures, options.pictures, options.side)
        rows = measured(dataset, Path(folder), options)
    print(
        f"\n{facts['hardware']}, torch {facts['torch']}, kinspace at {facts['commit']}: "
        f"{options.data}, {len(dataset):,} JPEGs of {options.side} px, resize {options.resize}, "
        f"crop {options.size}, batches of {options.batch}, model {options.model}.\n"
    )
    print(to_markdown(rows))
    if options.json:
        found = [{**asdict(row), "waiting": row.waiting} for row in rows]
        options.json.write_text(json.dumps({"setting": facts, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
