"""Pictures a second that a backbone embeds on a CPU: network alone, end to end, whole command.

    python benchmarks/embedding.py photos/ --json benchmarks/results/embedding-cpu.json
    python benchmarks/embedding.py photos/ --before ../other-checkout/src --rounds 3

The ways take turns, round after round, so that what else the machine does falls on all of them;
medians of the rounds, and ratios to the first row. A second of CPU counts every thread of the
process, also those that wait in a loop for others.

Network alone: pictures in memory as batches of 128, by steps from the module as it is called to the
backends of `inference_network`. End to end: files decoded, resized and embedded, models loaded
before. Command: `kinspace embed --backbone`, from start to exit, by this checkout and by --before.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from setting import setting
from torch import Tensor

from kinspace.data import cache_in_memory, load_dataset
from kinspace.data.dataloader import CachedLoader, sequential_batches
from kinspace.inference.model import EmbeddingModel
from kinspace.inference.pretrained import pretrained_model
from kinspace.models.inference_network import VARIABLE, fuse_batch_norm, inference_network
from kinspace.training.data_parts import DataPart
from kinspace.training.embedding import embed_all

Way = Callable[[], Tensor]
Rows = dict[str, dict[str, float]]
BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--pictures", type=int, default=128, help="for the network alone")
    parser.add_argument("--rounds", type=int, default=3, help="of the network alone")
    parser.add_argument("--whole-rounds", type=int, default=3, help="of the rest")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--compile", action="store_true", help="torch.compile too: a minute")
    parser.add_argument("--before", type=Path, help="src of another checkout, for the command")
    parser.add_argument("--skip-command", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit")
    parser.set_defaults(device="cpu", skip_pml=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = pretrained_model(options.backbone, device="cpu")
    found: dict[str, object] = {"load average": [os.getloadavg()[0]]}
    ways, seconds = _network(model, options)
    found["once"] = seconds
    steps = {
        "network alone": lambda: (ways, options.pictures),
        "end to end": lambda: _end_to_end(model, options.photos),
        "command": lambda: _commands(options),
    }
    for name, make in steps.items():
        made, count = make()
        alone = name == "network alone"
        found[name] = _in_turns(made, count, options.rounds if alone else options.whole_rounds)
        found["load average"].append(os.getloadavg()[0])  # type: ignore[attr-defined]
        _show(name, found[name])  # type: ignore[arg-type]
        if options.json:
            paths = {"photos": options.photos.name, "before": options.before and "another checkout"}
            facts = setting(argparse.Namespace(**{**vars(options), **paths}))
            text = json.dumps({**facts, **found}, indent=1)
            options.json.write_text(text + "\n")


def _in_turns(ways: dict[str, Way], count: int, rounds: int) -> Rows:
    """Wall and CPU seconds of each way, and how far its vectors are from those of the first."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    vectors: dict[str, Tensor] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            before, cpu = time.perf_counter(), _cpu()
            vectors[name] = way()
            times[name].append((time.perf_counter() - before, _cpu() - cpu))
    first = next(iter(ways), "")
    rows: Rows = {}
    for name, pairs in times.items():
        wall, cpu = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratios = [base[0] / own[0] for base, own in zip(times[first], pairs, strict=True)]
        cosines = torch.cosine_similarity(vectors[first].double(), vectors[name].double())
        rows[name] = {
            "seconds": wall,
            "images/s": count / wall,
            "ratio": statistics.median(ratios),
            "cpu seconds": cpu,
            "images per cpu second": count / cpu,
            "largest 1 - cosine": float(1 - cosines.min()),
        }
    return rows


def _cpu() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@torch.no_grad()
def _network(
    model: EmbeddingModel, options: argparse.Namespace
) -> tuple[dict[str, Way], dict[str, float]]:
    settings, module = model.settings, model.module
    assert settings is not None
    dataset = load_dataset(options.photos)
    dataset = dataset.subset(range(options.pictures))
    cache = cache_in_memory(dataset, settings)
    loader = CachedLoader(cache, sequential_batches(len(dataset), BATCH), settings, train=False)
    images = torch.cat([batch.images for batch in loader])
    last = copy.deepcopy(module).to(memory_format=torch.channels_last)
    once: dict[str, float] = {}
    began = time.perf_counter()
    fused = fuse_batch_norm(copy.deepcopy(module), images[:1])
    fused.to(memory_format=torch.channels_last)
    once["fuse"] = time.perf_counter() - began
    half = copy.deepcopy(fused).bfloat16()
    whole = {
        "PyTorch, batches of 128": _by(module, images, BATCH),
        "batches of 32": _by(module, images, 32),
        "batches of 4": _by(module, images, 4),
        "and channels_last": _by(last, _last(images), 4),
        "and batch norm folded": _by(fused, _last(images), 4),
    }
    if options.compile:
        compiled = torch.compile(fused)
        began = time.perf_counter()
        compiled(_last(images[:4]))
        once["torch.compile"] = time.perf_counter() - began
        whole["and torch.compile"] = _by(compiled, _last(images), 4)
    whole["in bfloat16 (not used)"] = _by(lambda x: half(x.bfloat16()).float(), _last(images), 4)
    for backend in ("fused", "onnxruntime"):
        whole[f"backend {backend}"] = _backend(model, images, backend)
        began = time.perf_counter()
        with inference_network(module, pictures=1, backend=backend) as network:
            network(images[:1])
        once[f"backend {backend}"] = time.perf_counter() - began
    return whole, once


def _last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _by(network: Callable[[Tensor], Tensor], images: Tensor, rows: int) -> Way:
    @torch.no_grad()
    def way() -> Tensor:
        return torch.cat([network(part) for part in images.split(rows)])

    return way


def _backend(model: EmbeddingModel, images: Tensor, backend: str) -> Way:
    """With what the backend takes to make, as in the product."""

    def way() -> Tensor:
        with inference_network(model.module, pictures=len(images), backend=backend) as network:
            return torch.cat(list(network.map(images.split(32))))

    return way


def _end_to_end(model: EmbeddingModel, photos: Path) -> tuple[dict[str, Way], int]:
    settings, dataset = model.settings, load_dataset(photos)
    assert settings is not None

    @torch.no_grad()
    def before() -> Tensor:
        cache = cache_in_memory(dataset, settings, workers=2 if len(dataset) > 500 else 1)
        batches = sequential_batches(len(dataset), BATCH)
        loader = CachedLoader(cache, batches, settings, train=False)
        return torch.cat([model.module(batch.images) for batch in loader])

    def by(backend: str) -> Way:
        def way() -> Tensor:
            os.environ[VARIABLE] = backend
            cache = cache_in_memory(dataset, settings)
            part = DataPart(dataset, settings, torch.device("cpu"), cache)
            return embed_all(model.module, part)

        return way

    backends = ("fused", "auto")
    ways = {"PyTorch, batches of 128": before} | {name: by(name) for name in backends}
    return ways, len(dataset)


def _commands(options: argparse.Namespace) -> tuple[dict[str, Way], int]:
    here = Path(__file__).parents[1] / "src"
    sources = {"before": options.before} if options.before else {}
    sources |= {"fused": here, "auto": here}
    if options.skip_command:
        sources = {}

    def run(name: str, source: Path) -> Tensor:
        from kinspace.embeddings import EmbeddingTable

        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "table.npz"
            photos = options.photos.absolute()
            command = [sys.executable, "-m", "kinspace", "embed", "--backbone", options.backbone]
            environment = {**os.environ, "PYTHONPATH": str(source.absolute())}
            environment.pop(VARIABLE, None)
            if name in ("fused", "auto"):
                environment[VARIABLE] = name
            command += [str(photos), "-o", str(out)]
            subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
            return torch.as_tensor(EmbeddingTable.load(out).vectors)

    ways: dict[str, Way] = {
        name: lambda name=name, source=source: run(name, source)  # type: ignore[misc]
        for name, source in sources.items()
    }
    return ways, len(load_dataset(options.photos))


def _show(name: str, rows: Rows) -> None:
    print(f"\n| {name} | images/s | times | images a CPU second | seconds | 1 - cosine |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for way, row in rows.items():
        print(
            f"| {way} | {row['images/s']:,.1f} | {row['ratio']:.1f} | "
            f"{row['images per cpu second']:,.1f} | {row['seconds']:.1f} | "
            f"{row['largest 1 - cosine']:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
