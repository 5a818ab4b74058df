from pathlib import Path

import pytest

from kinspace.data.cache import PictureCache, cache_in_memory
from kinspace.data.dataset import Dataset
from odd_pictures import write_clean
from photo_set import SETTINGS, write_photos


@pytest.fixture
def photos(tmp_path: Path) -> Dataset:
    return write_photos(tmp_path / "photos")


@pytest.fixture
def cache(photos: Dataset) -> PictureCache:
    return cache_in_memory(photos, SETTINGS)


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A folder of class folders without any problem."""
    write_clean(tmp_path / "photos")
    return tmp_path / "photos"
