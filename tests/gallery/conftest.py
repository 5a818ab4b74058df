"""One run, one server, one browser for all tests here."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kinspace
from gallery.servers import running, small_run
from kinspace.bundle import Model

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome"
)  # fmt: skip


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="session")
def model(run: Path) -> Model:
    return kinspace.load(run, "cpu")


@pytest.fixture(scope="session")
def server(model: Model) -> Iterator[str]:
    with running(model) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with sync_api.sync_playwright() as playwright:
        if CHROMIUM is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
