"""A folder of small pictures for all trainings that start from a command."""

from pathlib import Path

import pytest

from odd_pictures import write_clean


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("pictures") / "photos"
    write_clean(folder, classes=10, each=12)
    return str(folder)
