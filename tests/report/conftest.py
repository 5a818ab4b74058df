"""One set of pictures, one run of it and one report, for all tests here."""

from pathlib import Path

import pytest

from kinspace.report import write_report
from kinspace.run import Run
from report.runs import trained, write_digits


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("pictures") / "photos")


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(photos, tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="session")
def page(run: Run) -> Path:
    return write_report(run)
