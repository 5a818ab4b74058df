"""One report of one run for all tests here."""

from pathlib import Path

import pytest

from digit_runs import photos, run
from kinspace.report import write_report
from kinspace.run import Run

__all__ = ["photos", "run"]  # fixtures


@pytest.fixture(scope="session")
def page(run: Run) -> Path:
    return write_report(run)
