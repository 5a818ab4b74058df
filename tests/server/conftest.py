"""One run, one server, one browser for all tests here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kinspace
from browsers import chromium
from kinspace.inference import EmbeddingModel
from kinspace.server.gallery_map import gallery_positions
from web_servers import running, small_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="session")
def model(run: Path) -> EmbeddingModel:
    found = kinspace.load(run, "cpu")
    gallery_positions(found)  # kept in the folder: every server here has its map at once
    return found


@pytest.fixture(scope="session")
def server(model: EmbeddingModel) -> Iterator[str]:
    with running(model) as address:
        yield address


@pytest.fixture(scope="module")  # not longer: its event loop would be in the way of others
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started
