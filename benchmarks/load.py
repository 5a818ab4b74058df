"""A server under load for minutes: latency, refusals and memory, while it is added to and attacked.

    .venv/bin/kinspace train moths --method nra --backbone small --steps 60 --out runs/moths
    .venv/bin/kinspace index runs/moths
    .venv/bin/python benchmarks/load.py runs/moths --json benchmarks/results/load-cpu.json \
        --page benchmarks/load.md

A real server, `kinspace serve` with its defaults, in processes of its own, asked by this one. Each
client sends its next request when it has its answer; every fourth is for the neighbors of a picture
of the gallery, the others search with an upload. The attackers come from another address of the
loopback (127.0.0.2), so that the limit of connections of an address is theirs alone. Memory is that
of the server with the processes that decode for it, every five seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import os
import platform
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from serving import _commit, _processor, answer, asked, requests, resident, server

import kinspace
from kinspace.data import moths_dataset
from kinspace.search import open_gallery

ATTACKER = "127.0.0.2"
SAMPLE = 5.0  # seconds between two looks at the memory
WARM = 2.0  # seconds before a measurement
PARTS = ("load", "adding", "gallery", "attacks")
Seen = list[tuple[str, int, float]]  # kind of request, status or 0 for none, seconds


async def honest(port: int, number: int, sent: list[bytes], end: float, seen: Seen) -> None:
    """One client: uploads, and every fourth time the neighbors of a picture of the gallery."""
    names = json.loads((await asked(port, "/api/pictures"))[1])["ids"]
    reader = writer = None
    for turn in itertools.count(number):
        if time.perf_counter() >= end:
            break
        kind, request = "upload", sent[turn % len(sent)]
        if turn % 4 == 0:
            name = names[turn * 37 % len(names)].replace(" ", "%20")
            head = f"GET /api/neighbors/{name} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
            kind, request = "neighbors", head.encode()
        began, code = time.perf_counter(), 0
        try:
            if writer is None or reader is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            code, _ = await asyncio.wait_for(answer(reader), 120)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            if writer is not None:
                writer.close()
            reader = writer = None
        seen.append((kind, code, time.perf_counter() - began))
        if code != 200:
            await asyncio.sleep(0.05)
    if writer is not None:
        writer.close()


def family(process: int) -> float:
    """MB of a process and those that it started."""
    total = resident(process)
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == process:
                total += resident(int(status.parent.name))
    return total


async def under_load(
    port: int, process: int, clients: int, seconds: float, *others: Awaitable[None]
) -> dict[str, Any]:
    """What so many clients saw for so long, and the server's memory meanwhile."""
    sent, seen, warm = requests(port), Seen(), Seen()
    samples: list[tuple[float, float]] = []
    began = time.perf_counter()
    await asyncio.gather(*(honest(port, n, sent, began + WARM, warm) for n in range(clients)))
    began = time.perf_counter()
    end = began + seconds

    async def watch() -> None:
        while (now := time.perf_counter()) < end:
            samples.append((round(now - began, 1), round(family(process), 1)))
            await asyncio.sleep(min(SAMPLE, max(0.1, end - now)))

    work = (honest(port, n, sent, end, seen) for n in range(clients))
    attackers = [asyncio.ensure_future(other) for other in others]
    await asyncio.gather(watch(), *work)
    for attacker in attackers:
        attacker.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)
    return {"clients": clients, "seconds": seconds, **summary(seen), "resident_mb": samples}


def summary(seen: Seen) -> dict[str, Any]:
    """Answers a second, and the milliseconds of each kind of request that was answered."""
    found: dict[str, Any] = {"codes": dict(Counter(str(code) for _, code, _ in seen))}
    for kind in ("upload", "neighbors"):
        ms = [1000 * seconds for name, code, seconds in seen if name == kind and code == 200]
        found[kind] = {
            "answers": len(ms),
            "refused": sum(each[0] == kind for each in seen) - len(ms),
        }
        if ms:
            found[kind] |= {f"p{p}_ms": float(np.percentile(ms, p)) for p in (50, 99, 100)}
    return found


async def idle(port: int) -> None:
    """300 connections that say nothing, opened again when they are closed."""
    await _many(300, lambda: _attack(port, b"", b"", 1000.0))


async def slow(port: int) -> None:
    """64 uploads of which a byte comes each second."""
    head = post_head(port, 5_000_000) + b"--b\r\n"
    await _many(64, lambda: _attack(port, head, b"a", 1.0))


async def large(port: int) -> None:
    """8 clients that send pictures of 40 million pixels, one after the other."""
    pictures = [picture_of(Image.new(mode, (8000, 5000))) for mode in ("L", "RGB", "RGBA")]
    whole = itertools.cycle(posted(port, data) for data in pictures)
    await _many(8, lambda: _attack(port, next(whole), b"", 60.0))


async def directories(port: int) -> None:
    """8 clients that send TIFF files of 80,000 directories."""
    whole = posted(port, tiff_of_directories(80_000))
    await _many(8, lambda: _attack(port, whole, b"", 60.0))


ATTACKS: dict[str, Callable[[int], Awaitable[None]]] = {
    "300 idle connections": idle,
    "64 uploads of a byte a second": slow,
    "8 clients with pictures of 40 megapixels": large,
    "8 clients with TIFFs of 80,000 directories": directories,
}


async def _many(count: int, attack: Callable[[], Awaitable[None]]) -> None:
    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                await attack()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(count)))


async def _attack(port: int, head: bytes, drop: bytes, pause: float) -> None:
    """Send the head, then a drop after each pause, until the server has answered or closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
    try:
        writer.write(head)
        while True:
            try:
                await asyncio.wait_for(reader.read(65536), pause)
                return
            except TimeoutError:
                if drop:
                    writer.write(drop)
    finally:
        writer.close()


def post_head(port: int, length: int) -> bytes:
    return (
        f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    ).encode()


def posted(port: int, data: bytes) -> bytes:
    part = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
    body = part + data + b"\r\n--b--\r\n"
    return post_head(port, len(body)) + body


def picture_of(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "png")
    return data.getvalue()


def tiff_of_directories(count: int) -> bytes:
    """A TIFF of a small picture, whose directory is there so many times."""
    data = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(data, "tiff")
    tiff = bytearray(data.getvalue())
    [first] = struct.unpack_from("<I", tiff, 4)
    [entries] = struct.unpack_from("<H", tiff, first)
    directory = bytes(tiff[first : first + 2 + 12 * entries])
    link = first + len(directory)
    for _ in range(count):
        struct.pack_into("<I", tiff, link, len(tiff))
        link = len(tiff) + len(directory)
        tiff += directory + bytes(4)
    return bytes(tiff)


@contextlib.contextmanager
def adding(run: Path) -> Iterator[None]:
    """`kinspace add` of new pictures in another process, again and again."""
    over = threading.Event()

    def work() -> None:
        for turn in itertools.count():
            with tempfile.TemporaryDirectory() as place:
                (Path(place) / "new").mkdir()
                for number in range(100):
                    noise = np.random.default_rng(100 * turn + number).integers(0, 256, (9, 9, 3))
                    picture = Image.fromarray(noise.astype(np.uint8)).resize((96, 96))
                    picture.save(Path(place) / "new" / f"{turn}-{number}.png")
                command = [sys.executable, "-m", "kinspace", "add", str(run), place]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if over.is_set():
                return

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def gallery_while_adding(run: Path, seconds: float) -> dict[str, Any]:
    """Milliseconds of a search in one process, alone and while another thread adds."""
    gallery = open_gallery(run)
    queries = gallery.table.vectors[random.Random(0).sample(range(len(gallery.table)), 100)]
    found: dict[str, Any] = {"rows_before": len(gallery.table)}
    for name in ("alone", "while adding"):
        end, ms, added = time.perf_counter() + seconds, [], 0
        over = threading.Event()

        def add() -> None:
            nonlocal added
            rng = np.random.default_rng(1)
            while not over.is_set():  # noqa: B023 - joined below
                vectors = rng.standard_normal((10, gallery.table.dim)).astype(np.float32)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                gallery.add(vectors, ["added"] * 10, [""] * 10, None)
                added += 10

        worker = threading.Thread(target=add)
        if name != "alone":
            worker.start()
        for query in itertools.cycle(queries):
            began = time.perf_counter()
            if began > end:
                break
            assert gallery.near(query, 10)
            ms.append(1000 * (time.perf_counter() - began))
        over.set()
        if name != "alone":
            worker.join()
        percentiles = {f"p{p}_ms": float(np.percentile(ms, p)) for p in (50, 99, 100)}
        found[name] = {"searches": len(ms), "added": added, **percentiles}
    return found


def table(results: dict[str, Any]) -> str:
    """The tables of the page."""
    head = ("", "minutes", "uploads", "p50 ms", "p99", "longest", "refused")
    head += ("neighbors: p50 ms", "p99", "MB")
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * 9]
    rows = [(f"clients: {row['clients']}", row) for row in results.get("load", [])]
    rows += [("8 clients, `kinspace add`", row) for row in [results.get("adding")] if row]
    rows += [(f"8 clients; {name}", row) for name, row in results.get("attacks", {}).items()]
    for name, row in rows:
        cells = [name, f"{row['seconds'] / 60:g}", f"{row['upload']['answers']:,}"]
        cells += [f"{row['upload'].get(f'p{p}_ms', float('nan')):,.0f}" for p in (50, 99, 100)]
        cells += [f"{row['upload']['refused'] + row['neighbors']['refused']:,}"]
        cells += [f"{row['neighbors'].get(f'p{p}_ms', float('nan')):,.0f}" for p in (50, 99)]
        mb = [each[1] for each in row["resident_mb"]]
        cells += [f"{mb[0]:,.0f}, {max(mb):,.0f}, {mb[-1]:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    if "gallery" in results:
        found = results["gallery"]
        lines += ["", "| search in one process | searches | p50 ms | p99 | longest | rows added |"]
        lines += ["| --- |" + " ---: |" * 5]
        for name in ("alone", "while adding"):
            row = found[name]
            ms = " | ".join(f"{row[f'p{p}_ms']:.2f}" for p in (50, 99, 100))
            lines.append(f"| {name} | {row['searches']:,} | {ms} | {row['added']:,} |")
    setting = results["setting"]
    lines += [
        "",
        f"{setting['hardware']}; "
        f"{setting['rows']:,} pictures; torch {setting['torch']}, commit {setting['commit']}; "
        f"load average before {setting['load_average_before']:g}, priority {setting['priority']}.",
    ]
    return "\n".join(lines)


def copied(run: Path, place: str) -> Path:
    """A copy of the run, which may be changed."""
    return Path(shutil.copytree(run, Path(place) / "run"))


def measure(options: argparse.Namespace, results: dict[str, Any]) -> None:
    seconds = 60 * options.minutes
    if "load" in options.only:
        results["load"] = []
        for clients in options.clients:
            with server(options.run) as (port, process):
                found = asyncio.run(under_load(port, process, clients, seconds))
                results["load"].append(found)
    if "adding" in options.only:
        with tempfile.TemporaryDirectory() as place:
            run = copied(options.run, place)
            with server(run) as (port, process), adding(run):
                results["adding"] = asyncio.run(under_load(port, process, 8, seconds))
    if "gallery" in options.only:
        with tempfile.TemporaryDirectory() as place:
            results["gallery"] = gallery_while_adding(copied(options.run, place), seconds / 2)
    if "attacks" in options.only:
        results["attacks"] = {}
        for name, attack in ATTACKS.items():
            with server(options.run) as (port, process):
                work = under_load(port, process, 8, seconds, attack(port))
                results["attacks"][name] = asyncio.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--minutes", type=float, default=5, help="of each measurement")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path, help="parts that are not measured stay as they are")
    parser.add_argument("--page", type=Path, help="put the tables in this page")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    load_before = os.getloadavg()[0]
    measure(options, results)
    results["setting"] = {
        "hardware": f"{_processor()}, {os.cpu_count()} cores for server, clients and attackers",
        "load_average_before": round(load_before, 2),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "rows": len(open_gallery(options.run).table),
        "pictures": f"{len(moths_dataset()):,} moths, JPEG of 96 x 96",
        "kinspace": kinspace.__version__,
        "commit": _commit(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.page:
        before, _, rest = options.page.read_text(encoding="utf-8").partition(BEGIN)
        text = "\n".join([BEGIN, table(results), END])
        options.page.write_text(before + text + rest.partition(END)[2], encoding="utf-8")


BEGIN, END = "<!-- load -->", "<!-- end of load -->"

if __name__ == "__main__":
    main()
