"""Search: build time, queries a second, recall@10 and memory of every backend.

    .venv/bin/python benchmarks/search.py                              # 1,000,000 x 128
    .venv/bin/python benchmarks/search.py --size 100000 --json search.json

Vectors are those of a mixture, as embeddings are: 1,000 centers, each vector its center and as much
noise again, of length 1. Queries are further vectors of the same mixture. Each backend runs in a
process of its own: memory is what that process has grown by from before the build to the end of the
searches. Queries are asked all at once and one after another. The true neighbors, for the recall,
are the exact search's, found in another process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import kinspace
from kinspace.search import SEARCHES, ExactIndex, Index

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("exact", {}),
    "faiss hnsw": ("faiss", {"kind": "hnsw"}),
    "faiss ivf_pq": ("faiss", {"kind": "ivf_pq"}),
    "milvus-lite": ("milvus", {}),
}
K = 10
Work = Callable[[str, argparse.Namespace], Any]
SINGLE = 100  # queries asked one after another


def vectors(count: int, dim: int, seed: int) -> NDArray[np.float32]:
    centers = np.random.default_rng(0).standard_normal((1000, dim), dtype=np.float32)
    rng = np.random.default_rng(seed)
    x = centers[rng.integers(0, 1000, count)]
    x += rng.standard_normal((count, dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def made(name: str, dim: int, options: argparse.Namespace, folder: Path) -> Index:
    backend, settings = CASES[name]
    if backend == "milvus":
        return SEARCHES[backend](folder / "vectors.db", dim, **settings)
    if backend == "exact":
        settings = {"device": options.device}
    return SEARCHES[backend](dim, **settings)


def true_neighbors(name: str, options: argparse.Namespace) -> NDArray[np.int64]:
    torch.set_num_threads(options.threads)
    exact = ExactIndex(options.dim, device=options.device)
    exact.add(vectors(options.size, options.dim, 1), np.arange(options.size))
    return exact.search(vectors(options.queries, options.dim, 2), K)[0]


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One backend; in a process of its own."""
    torch.set_num_threads(options.threads)
    x, queries = vectors(options.size, options.dim, 1), vectors(options.queries, options.dim, 2)
    with tempfile.TemporaryDirectory() as folder:
        before = _resident()
        start = time.perf_counter()
        index = made(name, options.dim, options, Path(folder))
        index.add(x, np.arange(len(x)))
        index.search(queries[:1], K)  # what is put off until the first search belongs to the build
        built = time.perf_counter() - start
        start = time.perf_counter()
        found = index.search(queries, K)[0]
        batched = time.perf_counter() - start
        start = time.perf_counter()
        for query in queries[:SINGLE]:
            index.search(query[None], K)
        single = time.perf_counter() - start
        hits = (options.truth[:, :, None] == found[:, None, :]).any(2)
        result = {
            "name": name,
            "build_s": built,
            "queries_per_s": len(queries) / batched,
            "single_per_s": min(SINGLE, len(queries)) / single,
            "recall@10": float(hits.mean()),
            "memory_mb": (_resident() - before) / 1e6,
        }
        if options.device.startswith("cuda") and name == "exact":
            result["gpu_mb"] = torch.cuda.max_memory_allocated() / 1e6
        index.save(Path(folder) / "saved.npz")
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        result["disk_mb"] = sum(path.stat().st_size for path in files) / 1e6
        return result


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


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
        result = {"name": name, "problem": "the process died"}
    process.join()
    return result


def row(result: dict[str, Any]) -> list[str]:
    if "problem" in result:
        return [result["name"], result["problem"]]
    return [
        result["name"],
        f"{result['build_s']:.1f}",
        f"{result['queries_per_s']:,.0f}",
        f"{result['single_per_s']:,.0f}",
        f"{result['recall@10']:.1%}",
        f"{result['memory_mb']:,.0f}",
        f"{result['disk_mb']:,.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu", help="of the exact search")
    parser.add_argument("--only", help="some of: " + ", ".join(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # faiss's threads
    names = [name.strip() for name in options.only.split(",")] if options.only else list(CASES)
    head = ["search", "build s", "queries/s", "one by one/s", "recall@10", "MB", "MB on disk"]
    print(f"| {' | '.join(head)} |")
    print(f"| --- |{' ---: |' * (len(head) - 1)}", flush=True)
    asked = {key: str(value) for key, value in vars(options).items()}
    options.truth = in_a_process(true_neighbors, "truth", options)
    results = []
    for name in names:
        results.append(in_a_process(measured, name, options))
        print(f"| {' | '.join(row(results[-1]))} |", flush=True)
    about = {
        "kinspace": kinspace.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "options": asked,
    }
    if options.json:
        options.json.write_text(json.dumps({"setting": about, "results": results}, indent=1))


if __name__ == "__main__":
    main()
