"""Serving: requests a second, how long they take, and memory of `kinspace serve`.

    .venv/bin/kinspace train moths --method nra --steps 60 --out runs/moths
    .venv/bin/kinspace index runs/moths
    .venv/bin/python benchmarks/serving.py runs/moths --json benchmarks/results/serving-cpu.json

A real server in a process of its own, asked by this process over as many connections as there are
clients, each of which sends its next picture when it has its answer. Pictures are those of moths.
Batched and unbatched servers (`--batch 16` and `--batch 1`) are asked in turns, a fresh one each
turn, and the median of the turns is shown. Then a server with its default queue is asked by more
clients than there are places, and another by 8 clients for minutes, with its resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from setting import _commit, _processor

import kinspace
from kinspace.data import moths_dataset

PICTURES = 64
OVERLOAD = (64, 128)  # clients, of a queue of 32
PARTS = ["load", "overload", "memory"]
WARM = 2.0  # seconds before a measurement
PACKAGES = ("fastapi", "starlette", "uvicorn", "pillow")


@contextlib.contextmanager
def server(run: Path, *options: str) -> Iterator[tuple[int, int]]:
    """The port and process number of a server that answers and has its map."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("kinspace")), "serve", str(run)]
    process = subprocess.Popen([*command, "--port", str(port), "--device", "cpu", *options])
    try:
        asyncio.run(_until_ready(port, process))
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


async def _until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError("the server ended")
        with contextlib.suppress(OSError):
            if b'"ready"' in (await asked(port, "/api/map"))[1][:40]:
                return
        await asyncio.sleep(0.2)


def requests(port: int) -> list[bytes]:
    """POST /api/search of some moths, as a browser sends them."""
    data, made = moths_dataset(), []
    for row in range(PICTURES):
        picture = io.BytesIO()
        data.pictures.read(row * len(data) // PICTURES).save(picture, "JPEG", quality=90)
        part = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a.jpg"\r\n\r\n'
        body = part + picture.getvalue() + b"\r\n--b--\r\n"
        head = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}"
        made.append(
            f"{head}\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n".encode() + body
        )
    return made


async def asked(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
    return int(head.split()[1]), await reader.readexactly(int(length.split(b":")[1]))


async def client(port: int, number: int, sent: list[bytes], end: float, seen: list[Any]) -> None:
    """Ask until the end; a row of `seen` is when an answer came, its code and its seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = number
    try:
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(sent[turn % len(sent)])
            code, _ = await answer(reader)
            now = time.perf_counter()
            seen.append((now, code, now - began))
            turn += 1
            if code == 503:
                await asyncio.sleep(0.05)  # a refused client waits before it tries again
    finally:
        writer.close()


async def load(port: int, process: int, clients: int, seconds: float) -> dict[str, Any]:
    """Requests a second and their milliseconds; the first moments do not count."""
    sent, seen = requests(port), []
    batches, worked = await _batches(port), cpu_seconds(process)
    start = time.perf_counter() + WARM
    end = start + seconds
    await asyncio.gather(*(client(port, n, sent, end, seen) for n in range(clients)))
    after, worked = await _batches(port), cpu_seconds(process) - worked
    counted = [row for row in seen if start <= row[0] <= end]
    ms = [1000 * row[2] for row in counted if row[1] == 200]
    refused = [1000 * row[2] for row in counted if row[1] == 503]
    return {
        "requests_per_s": len(ms) / seconds,
        **{f"p{p}_ms": float(np.percentile(ms, p)) for p in (50, 99) if ms},
        **{f"refused_p{p}_ms": float(np.percentile(refused, p)) for p in (50, 99) if refused},
        "cpu_ms": 1000 * worked / max(1, len(seen)),
        "mean_batch": (after[1] - batches[1]) / max(1, after[0] - batches[0]),
        "codes": dict(Counter(str(row[1]) for row in counted)),
    }


async def _batches(port: int) -> tuple[int, int]:
    text = (await asked(port, "/metrics"))[1].decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    return int(float(lines["kinspace_batches_total"])), int(
        float(lines["kinspace_batch_pictures_total"])
    )


def cpu_seconds(process: int) -> float:
    """What a process has used of all cores: other work on the machine changes it little."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """MB of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def turns(run: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each server in turn, asked by each number of clients; the median of the turns."""
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for _ in range(options.turns):
        for batch in (16, 1):
            places = str(2 * max(options.clients))  # of one address half
            with server(run, "--batch", str(batch), "--queue", places) as (port, process):
                for clients in options.clients:
                    found = asyncio.run(load(port, process, clients, options.seconds))
                    rows.setdefault((batch, clients), []).append(found)
    return [
        {
            "batch": batch,
            "clients": clients,
            **{
                name: statistics.median(each[name] for each in found)
                for name in ("requests_per_s", "p50_ms", "p99_ms", "mean_batch", "cpu_ms")
            },
            "turns": found,
        }
        for (batch, clients), found in sorted(rows.items(), key=lambda each: each[0][::-1])
    ]


async def watched(port: int, process: int, seconds: float) -> dict[str, Any]:
    """8 clients for so long, and the server's memory every 5 seconds."""
    samples: list[tuple[float, float]] = []
    began = time.perf_counter()

    async def watch() -> None:
        while (now := time.perf_counter() - began) < seconds + WARM:
            samples.append((round(now, 1), round(resident(process), 1)))
            await asyncio.sleep(5)

    found, _ = await asyncio.gather(load(port, process, 8, seconds), watch())
    return {**found, "clients": 8, "seconds": seconds, "resident_mb": samples}


def table(results: dict[str, Any]) -> str:
    head = ("clients", "batched", "requests/s", "p50 ms", "p99 ms", "pictures a batch", "CPU ms")
    lines = [f"| {' | '.join(head)} |", "| ---: | --- |" + " ---: |" * 5]
    for row in results.get("load", []):
        name = "no" if row["batch"] == 1 else f"up to {row['batch']}"
        lines.append(
            f"| {row['clients']} | {name} | {row['requests_per_s']:,.0f} | {row['p50_ms']:.1f} | "
            f"{row['p99_ms']:.1f} | {row['mean_batch']:.1f} | {row['cpu_ms']:.1f} |"
        )
    for row in results.get("overload", []):
        codes = ", ".join(f"{n:,} x {code}" for code, n in sorted(row["codes"].items()))
        lines.append(f"\n{row['clients']} clients, a queue of 32: {codes}; ")
        lines.append(
            f"an answer after {row['p50_ms']:.1f} ms (p99 {row['p99_ms']:.1f}), "
            f"a 503 after {row['refused_p50_ms']:.1f} ms (p99 {row['refused_p99_ms']:.1f})"
        )
    if "memory" in results:
        mb = results["memory"]["resident_mb"]
        minute = next(each for each in mb if each[0] >= min(60, mb[-1][0]))
        lines.append(f"\nMB at 0, {minute[0]:.0f} and {mb[-1][0]:.0f} s: ")
        lines.append(f"{mb[0][1]:,.0f}, {minute[1]:,.0f}, {mb[-1][1]:,.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--memory", type=float, default=300, help="seconds of it")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--json", type=Path, help="parts that are not measured stay as they are in the file"
    )
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    before = os.getloadavg()[0]
    if "load" in options.only:
        results["load"] = turns(options.run, options)
    if "overload" in options.only:
        with server(options.run) as (port, process):
            results["overload"] = [
                {"clients": n, **asyncio.run(load(port, process, n, options.seconds))}
                for n in OVERLOAD
            ]
    if "memory" in options.only:
        with server(options.run) as (port, process):
            results["memory"] = asyncio.run(watched(port, process, options.memory))
    results["setting"] = {
        "hardware": f"{_processor()}, {os.cpu_count()} cores for server and clients together",
        "load_average_before": round(before, 2),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "kinspace": kinspace.__version__,
        "commit": _commit(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "pictures": f"{PICTURES} moths, JPEG of 96 x 96",
        "seconds": options.seconds,
    }
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
