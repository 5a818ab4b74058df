"""The gallery's map with 50,000 pictures: how long its frames take in a real Chromium.

    .venv/bin/python benchmarks/gallery_map.py prepare runs/moths big
    .venv/bin/python benchmarks/gallery_map.py measure big --json gallery-map.json

`prepare` makes a run folder whose gallery has so many rows, those of a run again and again with a
little noise, each with its picture, and draws its map. `measure` serves that folder, opens the page
in the system's Chromium without a GPU, and pans, zooms, hovers and filters by mouse and wheel as a
user does. A frame is the time between two calls of requestAnimationFrame. The page is watched from
before its first line; "open" is from there until half a second after the map has come.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from serving import server
from setting import _commit, _processor

import kinspace
from kinspace.embeddings import EmbeddingTable
from kinspace.search.gallery import Gallery
from kinspace.server.gallery_map import gallery_positions
from kinspace.server.gallery_thumbnails import Thumbnails

NOISE = 0.3  # length of what is added to a vector of length 1
VIEWPORT = {"width": 1360, "height": 900}
WATCH = """
    window.frames = []; window.long = [];
    requestAnimationFrame(function next(now) { frames.push(now); requestAnimationFrame(next); });
    new PerformanceObserver(list => list.getEntries().forEach(e => window.long.push(
        [Math.round(e.startTime), Math.round(e.duration), Math.round(e.renderStart),
         Math.round(e.styleAndLayoutStart), e.scripts.map(s => [s.invoker, s.sourceFunctionName,
         Math.round(s.duration), Math.round(s.forcedStyleAndLayoutDuration)].join(" "))]
    ))).observe({ type: "long-animation-frame", buffered: true });
"""


def prepare(options: argparse.Namespace) -> None:
    shutil.copytree(options.run, options.folder)
    (options.folder / "map.npz").unlink(missing_ok=True)
    model = kinspace.load(options.folder, "cpu")
    table, thumbnails = model.table, Thumbnails(model)
    pictures = options.folder / "pictures"
    pictures.mkdir()
    for row in range(len(table)):
        (pictures / f"{row}.jpg").write_bytes(thumbnails.jpeg(row))
    rows = np.arange(options.points) % len(table)
    noise = np.random.default_rng(0).standard_normal((options.points, table.dim))
    vectors = table.vectors[rows] + NOISE * noise / table.dim**0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert table.labels is not None
    model.gallery = Gallery(
        EmbeddingTable(
            vectors.astype(np.float32),
            table.labels[rows],
            ids=tuple(f"picture {row}" for row in range(options.points)),
            paths=tuple(str((pictures / f"{row}.jpg").resolve()) for row in rows),
            class_names=table.class_names,
        )
    )
    model.save_gallery()
    gallery_positions(model)


class Watched:
    """A page and the frames of each part of a visit."""

    def __init__(self, page: Any) -> None:
        self.page, self.parts = page, {}
        box = page.locator("#map").bounding_box()
        self.x, self.y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def end(self, name: str) -> None:
        frames, long = self.page.evaluate(
            "() => { const all = [frames, long]; frames = frames.slice(-1); long = []; return all }"
        )
        ms = np.diff(frames)
        found = {f"p{p}_ms": round(float(np.percentile(ms, p)), 1) for p in (50, 95)}
        found |= {"max_ms": round(float(ms.max()), 1), "frames": len(ms)}
        scale = self.page.evaluate("() => kinspaceMap.view().scale")
        self.parts[name] = {**found, "scale": round(scale, 1), "long": long}

    def drag(self, times: int) -> None:
        mouse = self.page.mouse
        for turn in range(times):
            mouse.move(self.x, self.y)
            mouse.down()
            for step in range(40):
                way = step if turn % 2 else -step
                mouse.move(self.x + 5 * way, self.y + 3 * way)
                time.sleep(0.008)
            mouse.up()

    def wheel(self, by: float, times: int) -> None:
        for _ in range(times):
            self.page.mouse.wheel(0, by)
            time.sleep(0.016)

    def hover(self) -> None:
        for step in range(160):
            angle = step / 160 * 4 * np.pi
            self.page.mouse.move(
                self.x + step * float(np.cos(angle)), self.y + step * float(np.sin(angle))
            )
            time.sleep(0.012)


def visit(page: Any, address: str) -> dict[str, Any]:
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_selector('body[data-map="ready"]')
    page.wait_for_timeout(500)
    page.locator("#map").scroll_into_view_if_needed()
    watched = Watched(page)
    watched.end("open")
    watched.drag(3)
    watched.end("pan the whole map")
    page.locator("#map").focus()
    page.mouse.move(watched.x, watched.y)
    watched.wheel(-60, 45)
    watched.wheel(60, 45)
    watched.end("zoom in and out by wheel")
    watched.wheel(-60, 20)
    watched.drag(3)
    watched.end("pan closer")
    watched.wheel(-60, 23)
    watched.drag(3)
    watched.end("pan among pictures")
    page.click("#map-reset")
    watched.hover()
    watched.end("hover over the whole map")
    names = page.evaluate(
        "() => [...document.querySelectorAll('#class-names option')].map(o => o.value)"
    )
    for name in names[:3]:
        page.fill("#class-filter", name)
        watched.hover()
    watched.end("filter by a class and hover")
    return watched.parts


def measure(options: argparse.Namespace) -> None:
    from playwright.sync_api import sync_playwright

    load = os.getloadavg()[0]
    with server(options.folder) as (port, _), sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport=VIEWPORT)
        parts = visit(page, f"http://127.0.0.1:{port}/")
        if options.picture:
            page.locator("#map-section").screenshot(path=options.picture)
        setting = {
            "hardware": f"{_processor()}, {os.cpu_count()} cores, no GPU",
            "browser": f"Chromium {browser.version}",
            "load_average_before": round(load, 2),
            "commit": _commit(),
        }
        browser.close()
    for name, row in parts.items():
        keys = ("scale", "frames", "p50_ms", "p95_ms", "max_ms")
        cells = [f"{row[key]:,}" for key in keys]
        print(f"| {name} | {' | '.join(cells)} |")
        if options.long:
            for each in row["long"]:
                print("   ", each)
    if options.json:
        kept = {name: {k: v for k, v in row.items() if k != "long"} for name, row in parts.items()}
        runs = json.loads(options.json.read_text()) if options.json.exists() else []
        runs.append({"setting": setting, "parts": kept})
        options.json.write_text(json.dumps(runs, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("prepare")
    made.add_argument("run", type=Path, help="with a gallery (kinspace index)")
    made.add_argument("folder", type=Path, help="a new one")
    made.add_argument("--points", type=int, default=50_000)
    made.set_defaults(work=prepare)
    taken = commands.add_parser("measure")
    taken.add_argument("folder", type=Path)
    taken.add_argument("--json", type=Path, help="one more run is written there")
    taken.add_argument("--picture", type=Path, help="a screenshot of the map at the end")
    taken.add_argument("--long", action="store_true", help="show what the long frames did")
    taken.set_defaults(work=measure)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
