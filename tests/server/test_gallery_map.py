"""The map of a gallery: its positions, its file, and a server whose map is not ready yet."""

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
from kinspace.inference import EmbeddingModel
from kinspace.search.gallery import Gallery
from kinspace.server import gallery_map
from kinspace.server.gallery_map import FILE, gallery_positions, map_positions
from web_servers import READY, get, picture, running, upload


@pytest.fixture
def bare(run: Path, tmp_path: Path) -> EmbeddingModel:
    """Without a map."""
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    return kinspace.load(folder, "cpu")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The map is computed when this is set."""
    opened = threading.Event()

    def held(model: EmbeddingModel, **options: Any) -> Any:
        assert opened.wait(300)
        return gallery_positions(model, **options)

    monkeypatch.setattr(gallery_map, "gallery_positions", held)
    yield opened
    opened.set()


def test_search_does_not_wait_for_the_map(
    bare: EmbeddingModel, gate: threading.Event, browser: Any
) -> None:
    with running(bare) as server:
        assert get(f"{server}/api/map").json() == {"state": "drawing"}
        assert upload(server, picture(20)).json()["neighbors"][0]["id"] == "digit 20"
        visit = Visit(browser, server, server).ready('body[data-ready="yes"]', "#list button")
        visit.tab.locator("#map-state", has_text="is being computed").wait_for()
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
    kept = np.round(gallery_positions(bare) * 10_000).astype(int)
    assert (found["x"], found["y"]) == (kept[:, 0].tolist(), kept[:, 1].tolist())
    assert json.loads(gallery_map.GalleryMap(bare).response) == found  # from the folder, at once


def test_a_server_without_a_map_answers_everything_else(
    bare: EmbeddingModel,
    monkeypatch: pytest.MonkeyPatch,
    browser: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(model: EmbeddingModel, **options: Any) -> Any:
        raise RuntimeError("no memory for a map")

    monkeypatch.setattr(gallery_map, "gallery_positions", broken)
    with running(bare) as server:
        visit = Visit(browser, server, server).ready("#list button")
        visit.tab.locator("#map-state", has_text="could not be computed").wait_for()
        visit.close()
        assert get(f"{server}/api/map").json() == {"state": "failed"}
    assert "no memory for a map" in caplog.text


def test_a_read_only_folder_is_served_too(
    bare: EmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, write: object) -> None:
        raise PermissionError(13, f"cannot write {path}: Permission denied")

    monkeypatch.setattr("kinspace.server.gallery_map.write_atomically", refused)
    messages: list[str] = []
    assert gallery_positions(bare, status=messages.append).shape == (len(bare.table), 2)
    assert "the map cannot be saved" in messages[-1]
    assert not (bare.folder / FILE).exists()


def groups(each: int, count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(each * count) % count
    x = 5 * np.eye(12)[y] + 0.3 * rng.standard_normal((len(y), 12))
    return x.astype(np.float32), y


def test_rows_outside_the_sample_are_near_their_class() -> None:
    x, y = groups(40)
    found = map_positions(x, sample=60, seed=3)
    assert found.shape == (160, 2)
    assert 0 <= found.min() <= found.max() <= 1
    np.testing.assert_array_equal(found, map_positions(x, sample=60, seed=3))
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (y[apart.argmin(1)] == y).all()  # groups this clear stay whole


def test_a_row_outside_the_sample_is_the_weighted_mean_of_its_nearest() -> None:
    x, _ = groups(20)
    found = map_positions(x, sample=50, seed=1).astype(float)
    drawn = np.sort(np.random.default_rng(1).permutation(80)[:50])
    row = next(i for i in range(80) if i not in drawn)
    unit = x.astype(float) / np.linalg.norm(x.astype(float), axis=1, keepdims=True)
    cosines = unit[drawn] @ unit[row]
    near = np.argsort(-cosines)[:5]
    weights = np.exp(cosines[near] / 0.1)
    expected = (weights[:, None] * found[drawn[near]]).sum(0) / weights.sum()
    assert found[row] == pytest.approx(expected, abs=1e-5)


def test_the_map_is_kept_in_the_run_folder_and_computed_again_for_other_vectors(
    run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    model = kinspace.load(folder, "cpu")
    first = gallery_positions(model)
    written = (folder / FILE).stat().st_mtime_ns
    np.testing.assert_array_equal(gallery_positions(model), first)
    assert (folder / FILE).stat().st_mtime_ns == written
    assert model.gallery is not None
    model.gallery = Gallery(model.table.select(range(50)))
    assert gallery_positions(model).shape == (50, 2)
    (folder / FILE).write_bytes(b"broken")
    assert gallery_positions(model).shape == (50, 2)
