"""What every test starts from: one thread, a fixed seed, examples that do not change."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from odd_pictures import write_clean

torch.set_num_threads(1)  # the tensors are too small to share among cores

# No deadline: a busy machine must not fail a law. Derandomized: a failure is there tomorrow too.
settings.register_profile("kinspace", deadline=None, derandomize=True, database=None)
settings.load_profile("kinspace")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of small pictures in ten classes."""
    folder = tmp_path_factory.mktemp("pictures") / "photos"
    write_clean(folder, classes=10, each=12)
    return str(folder)
