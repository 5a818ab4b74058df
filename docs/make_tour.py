"""Make the pictures of docs/tour.md: the commands as a terminal shows them, and the page.

    pip install '.[pretrained,serve]' playwright     # in an environment outside the checkout
    PATH=ENVIRONMENT/bin:$PATH python docs/make_tour.py

24 species of moths are drawn as photographs in a folder a species, and three more of each as new
pictures. The commands are those of the tour, run one after another, with the output that they had.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from kinspace.data.moths.collection import draw_picture
from kinspace.data.moths.species_list import make_species

FOLDER = Path(__file__).with_name("tour")
SPECIES, PICTURES, NEW, SIZE = range(0, 120, 5), 25, 3, 192
COLUMNS, PORT = 100, 8719
COMMANDS = {
    "check": "kinspace check photos/",
    "train": "kinspace train photos/ --out runs/photos",
    "index": "kinspace index runs/photos",
    "search": "kinspace search runs/photos 'new/{species}/25.jpg' -k 4",
}
TERMINAL = """<style>body { margin: 0 } pre { display: inline-block; margin: 0; padding: 18px 22px;
background: #1d2126; color: #dfe3e8; font: 15px/1.45 monospace }</style><pre>{text}</pre>"""


def draw(folder: Path) -> str:
    """The pictures of the tour; returns the name of one species."""
    for number in SPECIES:
        name = make_species(number).name
        for view in range(PICTURES + NEW):
            place = folder / ("photos" if view < PICTURES else "new") / name
            place.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(draw_picture(number, view, size=SIZE).image)
            picture.save(place / f"{view:02}.jpg", quality=90)
    return make_species(SPECIES[7]).name


def run(command: str, folder: Path) -> str:
    """The command with what it prints, without lines that progress has replaced."""
    environment = os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # in the order of a terminal
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    kept = [line for line in lines if not re.match(r"(computing|.*features.*: \d+ of)", line)]
    return f"$ {command}\n" + "\n".join(kept).strip("\n")


def small(file: Path, colors: int = 128) -> None:
    """The picture with a palette, which is a third of its size."""
    Image.open(file).convert("RGB").quantize(colors).save(file, optimize=True)


def terminals(browser: Any, texts: dict[str, str]) -> None:
    """A picture of each command and its output."""
    page = browser.new_page(viewport={"width": 1000, "height": 300}, device_scale_factor=1)
    for name, text in texts.items():
        page.set_content(TERMINAL.replace("{text}", html.escape(text)))
        file = FOLDER / f"{name}.png"
        page.locator("pre").screenshot(path=file)
        small(file, 16)
    page.close()


def pages(browser: Any, picture: Path) -> None:
    """The page as it opens and after a picture was dropped, and that on a phone."""
    for name, width, height in (("page", 1280, 860), ("answer", 1280, 860), ("phone", 390, 844)):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(f"http://127.0.0.1:{PORT}")
        page.wait_for_timeout(4000)  # the map
        if name != "page":
            page.set_input_files("input[type=file]", picture)
            page.wait_for_timeout(3000)
        page.screenshot(path=FOLDER / f"{name}.png")
        small(FOLDER / f"{name}.png")
        page.close()


def wait_for_map() -> None:
    """Until the server answers and has drawn its map, which it does once."""
    address = f"http://127.0.0.1:{PORT}/api/map"
    for _ in range(600):
        with contextlib.suppress(OSError), urllib.request.urlopen(address) as answer:
            if json.load(answer)["state"] == "ready":
                return
        time.sleep(0.5)
    raise RuntimeError("the map was not ready within five minutes")


def main() -> None:
    """Run the tour and write its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to run; by default a new folder")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp())
    FOLDER.mkdir(exist_ok=True)
    species = draw(folder)
    texts = {name: run(c.format(species=species), folder) for name, c in COMMANDS.items()}
    serve = ["kinspace", "serve", "runs/photos", "--port", str(PORT)]
    server = subprocess.Popen(serve, cwd=folder)
    try:
        wait_for_map()
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            terminals(browser, texts)
            pages(browser, folder / "new" / species / "26.jpg")
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
