"""Where Milvus is in the tests: a file of milvus-lite's, and a server if the environment names one.

KINSPACE_MILVUS_URL=http://127.0.0.1:19530 pytest tests/search
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from kinspace.search import MilvusIndex

URL = os.environ.get("KINSPACE_MILVUS_URL", "")
needs_server = pytest.mark.skipif(
    not URL, reason="no Milvus server: KINSPACE_MILVUS_URL does not name one"
)
server = pytest.param("server", marks=needs_server)


@dataclass(frozen=True)
class Place:
    """A database and a name in it that is not taken."""

    uri: str
    name: str

    def open(self, dim: int | None = None) -> MilvusIndex:
        return MilvusIndex(self.uri, dim, name=self.name)


@contextmanager
def milvus_place(kind: str, folder: Path) -> Iterator[Place]:
    """A place in a file or on the server, where what was made is removed again."""
    if kind == "file":
        yield Place(str(folder / "vectors.db"), "birds")
        return
    place = Place(URL, f"kinspace_test_{uuid4().hex}")
    yield place
    _remove(place)


def _remove(place: Place) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(place.uri)
    for collection in client.list_collections():
        if collection.startswith(place.name):
            for alias in client.list_aliases(collection)["aliases"]:
                client.drop_alias(alias)
            client.drop_collection(collection)
    client.close()
