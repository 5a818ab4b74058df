"""kinspace demo: the moths, as a folder of few of them."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from PIL import Image

from bundles import QUICK
from command_line import run
from kinspace.data.moths import draw_moths
from kinspace.server.demo import prepare_demo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("demo")
    moths = draw_moths(species=10, per_species=6, size=24, workers=1)
    for number, (image, label) in enumerate(zip(moths.images, moths.labels, strict=True)):
        species = place / "moths" / moths.class_names[label]
        species.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(species / f"{number}.png")
    options = {"changes": QUICK, "device": "cpu", "workers": 1, "quiet": True}
    prepare_demo(place / "run", data=str(place / "moths"), with_report=False, **options)
    return place / "run"


def test_it_ends_in_the_page_with_pictures_to_drop(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kinspace", "demo", "-o", str(folder), "--no-report"]
    with subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        assert started.stderr is not None
        assert started.stdout is not None
        line = next(each for each in iter(started.stderr.readline, "") if "http://" in each)
        assert f"60 pictures at http://127.0.0.1:{port}" in line
        about = httpx.get(f"http://127.0.0.1:{port}/api/about", timeout=60).json()
        assert about["editable"]
        started.send_signal(signal.SIGINT)
        said = started.stdout.read()
    assert "of the same class in" in said
    files = [Path(each) for each in re.findall(r"\S+\.png", said)]
    assert len(set(files)) == 12
    assert all(file.is_file() for file in files)
    assert {file.parent.name for file in files} == {"known", "strangers"}


def test_a_port_in_use_is_said_before_the_training(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run("demo", "-o", tmp_path / "run", "--port", port, code=2)
    assert f"port: {port} is in use; the next free one is --port " in said
    assert not (tmp_path / "run").exists()
