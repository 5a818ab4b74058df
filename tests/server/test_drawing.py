"""A map that is not there yet: the server answers, the page says so, and the map comes."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinspace
from browsers import Visit
from kinspace.inference import Model
from kinspace.server import map_file
from kinspace.server.map_positions import FILE, gallery_places
from server.servers import READY, get, picture, running, upload


@pytest.fixture
def bare(run: Path, tmp_path: Path) -> Model:
    """Without a map."""
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    return kinspace.load(folder, "cpu")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Drawing begins when it is set."""
    opened = threading.Event()

    def held(model: Model, **options: Any) -> Any:
        assert opened.wait(300)
        return gallery_places(model, **options)

    monkeypatch.setattr(map_file, "gallery_places", held)
    yield opened
    opened.set()


def test_search_does_not_wait_for_the_map(bare: Model, gate: threading.Event, browser: Any) -> None:
    with running(bare) as server:
        assert get(f"{server}/api/map").json() == {"state": "drawing"}
        assert upload(server, picture(20)).json()["neighbors"][0]["id"] == "digit 20"
        visit = Visit(browser, server, server).ready('body[data-ready="yes"]', "#list button")
        visit.tab.locator("#map-state", has_text="is being drawn").wait_for()
        assert visit.tab.locator("#map").is_hidden()
        assert visit.tab.locator("#map-tools").is_hidden()
        visit.tab.locator("#list button").first.click()
        visit.says("24 nearest pictures")
        gate.set()
        visit.ready(*READY)
        assert visit.tab.locator("#map-state").is_hidden()
        assert visit.tab.locator("#map").is_visible()
        visit.close()
        found = get(f"{server}/api/map").json()
    kept = np.round(gallery_places(bare) * 10_000).astype(int)
    assert (found["x"], found["y"]) == (kept[:, 0].tolist(), kept[:, 1].tolist())
    assert json.loads(map_file.Drawing(bare).answer) == found  # from the folder, at once


def test_a_map_that_cannot_be_drawn_is_all_that_is_missing(
    bare: Model, monkeypatch: pytest.MonkeyPatch, browser: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(model: Model, **options: Any) -> Any:
        raise RuntimeError("no memory for a map")

    monkeypatch.setattr(map_file, "gallery_places", broken)
    with running(bare) as server:
        visit = Visit(browser, server, server).ready("#list button")
        visit.tab.locator("#map-state", has_text="log says why").wait_for()
        visit.close()
        assert get(f"{server}/api/map").json() == {"state": "failed"}
    assert "no memory for a map" in caplog.text


def test_a_folder_that_cannot_be_written_is_served_too(
    bare: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, write: object) -> None:
        raise PermissionError(13, f"cannot write {path}: Permission denied")

    monkeypatch.setattr("kinspace.server.map_positions.write_atomically", refused)
    said: list[str] = []
    assert gallery_places(bare, status=said.append).shape == (len(bare.table), 2)
    assert "the map is not kept" in said[-1]
    assert not (bare.folder / FILE).exists()
