"""Search: build time, queries a second, recall@10 and memory of every backend.

    .venv/bin/python benchmarks/search.py                              # 1,000,000 x 128
    .venv/bin/python benchmarks/search.py --only "faiss hnsw" --json search.json
    .venv/bin/python benchmarks/search.py --only "milvus server" --uri http://127.0.0.1:19530

Vectors are clustered as embeddings are: 10,000 centers drawn evenly on the sphere, each vector its
center and Gaussian noise of 0.7 of the center's length, brought to length 1. Two vectors of a class
have a cosine of 0.67 about, two of different classes 0 +- 0.09; a class has 100 in a million.
`--data noise` is even on the sphere: the worst case, where no neighbor is much nearer than others.
Queries are further vectors of the same kind.

ivf_pq, int8 and binary are put in order by the full vectors, as in a run's gallery (`codes_alone`
in the JSON file is without), and Milvus has built its index before it is asked.

Each backend runs in a process of its own. Memory is the peak of that process from the build to the
end of the searches, less what it held before: the libraries and the vectors given. Queries are
asked all at once and one after another. The true neighbors, for the recall, are the exact search's,
found in another process. Rows in the JSON file take the place of those of the same name, size and
data.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from setting import setting

from kinspace.search import (
    INDEXES,
    CompactIndex,
    ExactIndex,
    FaissIndex,
    Index,
    MilvusIndex,
    Reranked,
)
from kinspace.search.gallery_index import FACTORS, without_reranking

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("exact", {}),
    "exact int8": ("exact", {"precision": "int8"}),
    "exact binary": ("exact", {"precision": "binary"}),
    "faiss hnsw": ("faiss", {"kind": "hnsw"}),
    "faiss ivf_pq": ("faiss", {"kind": "ivf_pq"}),
    "milvus-lite": ("milvus", {}),
    "milvus-lite int8": ("milvus", {"precision": "int8"}),
    "milvus server": ("milvus", {"name": "kinspace_benchmark"}),
    "milvus server int8": ("milvus", {"name": "kinspace_benchmark", "precision": "int8"}),
    "milvus server binary": ("milvus", {"name": "kinspace_benchmark", "precision": "binary"}),
}
K = 10
TURNS = 3  # of all queries; the median counts
CLASSES, SPREAD = 10_000, 0.7
HEAD = ["search", "vectors", "build s", "queries/s", "one by one/s", "recall@10", "MB", "disk MB"]
Work = Callable[[str, argparse.Namespace], Any]


def vectors(count: int, options: argparse.Namespace, seed: int) -> NDArray[np.float32]:
    rng, dim = np.random.default_rng(seed), options.dim
    x = rng.standard_normal((count, dim), dtype=np.float32)
    if options.data == "mixture":
        centers = np.random.default_rng(0).standard_normal((CLASSES, dim), dtype=np.float32)
        centers /= np.linalg.norm(centers, axis=1, keepdims=True)
        x *= SPREAD / dim**0.5
        x += centers[rng.integers(0, CLASSES, count)]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def made(name: str, options: argparse.Namespace, folder: Path, x: NDArray[np.float32]) -> Index:
    backend, settings = CASES[name]
    if backend == "milvus":
        uri = options.uri if name.startswith("milvus server") else folder / "vectors.db"
        made = MilvusIndex(uri, options.dim, **settings)
        if made.precision == "float32":
            return made
        return Reranked(made, lambda rows: x[rows], factor=FACTORS[made.precision])
    if "precision" in settings:
        compact = CompactIndex(options.dim, **settings)
        return Reranked(compact, lambda rows: x[rows], factor=FACTORS[compact.precision])
    if backend == "exact":
        settings = {"device": options.device}
    index = INDEXES[backend](options.dim, **settings)
    if settings.get("kind") == "ivf_pq":  # as in a run's gallery, whose table holds the vectors
        return Reranked(index, lambda rows: x[rows])
    return index


def true_neighbors(name: str, options: argparse.Namespace) -> NDArray[np.int64]:
    torch.set_num_threads(options.threads)
    exact = ExactIndex(options.dim, device=options.device)
    exact.add(vectors(options.size, options, 1), np.arange(options.size))
    return exact.search(vectors(options.queries, options, 2), K)[0]


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One backend; in a process of its own."""
    torch.set_num_threads(options.threads)
    x, queries = vectors(options.size, options, 1), vectors(options.queries, options, 2)
    with tempfile.TemporaryDirectory() as folder:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = _memory("VmRSS")
        start = time.perf_counter()
        index = made(name, options, Path(folder), x)
        index.add(x, np.arange(len(x)))
        below = without_reranking(index)
        if isinstance(below, MilvusIndex):  # what is not in its files it searches otherwise
            below.wait_until_indexed()
        index.search(queries[:1], K)  # what is put off until the first search belongs to the build
        built = time.perf_counter() - start
        batched = []
        for _ in range(TURNS):
            start = time.perf_counter()
            found = index.search(queries, K)[0]
            batched.append(time.perf_counter() - start)
        single = _one_by_one(index, queries)
        peak = _memory("VmHWM") - before
        result = {
            "build_s": built,
            "queries_per_s": len(queries) / statistics.median(batched),
            "single_per_s": single,
            "recall@10": recall(found, options.truth),
            "peak_mb": peak,
        }
        approximate = index.index if isinstance(index, Reranked) else index
        if isinstance(approximate, FaissIndex):
            result |= {
                "effort": approximate.effort,
                "efforts": _efforts(approximate, queries, options.truth),
            }
        if isinstance(index, Reranked):
            result["factor"] = index.factor
            result["codes_alone"] = _asked(approximate, queries, options.truth)
        if options.device.startswith("cuda") and name == "exact":
            result["gpu_mb"] = torch.cuda.max_memory_allocated() / 1e6
        index.save(Path(folder) / "saved.npz")
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        result["disk_mb"] = sum(path.stat().st_size for path in files) / 1e6
        if name.startswith("milvus server") and isinstance(below, MilvusIndex):
            result |= {
                "peak_mb": None,
                "disk_mb": None,
            }  # those of the server are not seen from here
            below.drop()
        return result


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    return float((truth[:, :, None] == found[:, None, :]).any(2).mean())


def _efforts(
    index: FaissIndex, queries: NDArray[np.float32], truth: NDArray[np.int64]
) -> list[dict[str, float]]:
    """What other efforts would give."""
    rows, default = [], index.effort
    for index.effort in (default // 4, default // 2, default, default * 2, default * 4):
        rows.append({"effort": index.effort, **_asked(index, queries, truth)})
    index.effort = default
    return rows


def _asked(
    index: Index, queries: NDArray[np.float32], truth: NDArray[np.int64]
) -> dict[str, float]:
    start = time.perf_counter()
    found = index.search(queries, K)[0]
    took = time.perf_counter() - start
    return {"queries_per_s": len(queries) / took, "recall@10": recall(found, truth)}


def _one_by_one(index: Index, queries: NDArray[np.float32]) -> float:
    """Single queries a second, over at most 10 seconds."""
    start, done = time.perf_counter(), 0
    for query in queries:
        index.search(query[None], K)
        done += 1
        if time.perf_counter() - start > 10:
            break
    return done / (time.perf_counter() - start)


def _memory(name: str) -> float:
    """Resident megabytes of this process: now (VmRSS), at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1.024e-3 for line in lines if line.startswith(name))


def _send(work: Work, name: str, options: argparse.Namespace, pipe: Any) -> None:
    pipe.send(work(name, options))


def in_a_process(work: Work, name: str, options: argparse.Namespace) -> Any:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send, args=(work, name, options, theirs))
    process.start()
    theirs.close()
    try:
        result: Any = ours.recv()
    except EOFError:
        raise SystemExit(f"{name}: the process died") from None
    process.join()
    return result


def row(result: dict[str, Any]) -> list[str]:
    cells = [result["name"], f"{result['size']:,}", f"{result['build_s']:.1f}"]
    cells += [f"{result[name]:,.0f}" for name in ("queries_per_s", "single_per_s")]
    cells.append(f"{result['recall@10']:.1%}")
    sizes = (result["peak_mb"], result["disk_mb"])
    return cells + ["" if value is None else f"{value:,.0f}" for value in sizes]


def keep(file: Path, about: dict[str, Any], results: list[dict[str, Any]]) -> None:
    before = json.loads(file.read_text())["results"] if file.exists() else []
    by_case = {(r["name"], r["size"], r["data"]): r for r in [*before, *results]}
    file.write_text(json.dumps({"setting": about, "results": list(by_case.values())}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--data", choices=("mixture", "noise"), default="mixture")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu", help="of the exact search")
    parser.add_argument("--only", help="some of: " + ", ".join(CASES))
    parser.add_argument("--uri", help="of a Milvus server, http://host:19530")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # faiss's threads
    names = [name.strip() for name in options.only.split(",")] if options.only else list(CASES)
    if options.uri is None and options.only is None:
        names = [name for name in names if not name.startswith("milvus server")]
    about = setting(argparse.Namespace(**vars(options), commit=None, skip_pml=True))
    for package in ("faiss-cpu", "pymilvus", "milvus-lite"):
        about[package] = version(package)
    print(f"| {' | '.join(HEAD)} |")
    print(f"| --- |{' ---: |' * (len(HEAD) - 1)}", flush=True)
    options.truth = in_a_process(true_neighbors, "truth", options)
    for name in names:
        case = {"name": name, "size": options.size, "data": options.data}
        taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        result = {**case, **in_a_process(measured, name, options)}
        result |= {"queries": options.queries, "commit": about["commit"], "date": taken}
        print(f"| {' | '.join(row(result))} |", flush=True)
        if options.json:
            keep(options.json, about, [result])


if __name__ == "__main__":
    main()
