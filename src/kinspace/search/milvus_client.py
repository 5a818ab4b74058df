"""Requests to Milvus: the connection, names, filters, waiting for an index, and errors."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kinspace.search.index import Where, allowed_values, check_ids

__all__ = [
    "check_server",
    "checked_name",
    "connect",
    "filter_expression",
    "milvus_errors",
    "wait_until_indexed",
]

STALLED = 1800  # seconds without progress in which the wait for an index ends
LOADING = 60  # seconds to wait for a finished index to be loaded, at most
UNINDEXED = 1024  # vectors: smaller segments are searched one by one and never have an index


def filter_expression(where: Where) -> str:
    """A filter as an expression of Milvus; strings are quoted as in JSON.

    >>> filter_expression({"label": [3, 5], "color=red": True})
    'label in [3, 5] and (attributes["color=red"] == true)'
    """
    parts = []
    for name, values in where.items():
        if name == "label":
            labels = check_ids("label", allowed_values(values), at_least=-1).tolist()
            parts.append(f"label in {labels}")
            continue
        field = f"attributes[{json.dumps(name, ensure_ascii=False)}]"
        each = [f"{field} == {json.dumps(v, ensure_ascii=False)}" for v in allowed_values(values)]
        parts.append(f"({' or '.join(each)})" if each else "id < 0")
    return " and ".join(parts)


def checked_name(uri: str, name: str | None) -> str:
    """The name of an alias, checked.

    >>> checked_name("gallery.db", None)
    'kinspace'
    """
    if "://" in uri and "@" in uri:
        raise ValueError("uri: expected an address without a password; give the password as token")
    if name is None and "://" in uri:
        raise ValueError("name: expected one, since a server may have several; got none")
    name = "kinspace" if name is None else name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name: expected letters, digits and _, got {name!r}")
    return name


def connect(uri: str, token: str) -> Any:
    """A client of the database at a path or URL."""
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException
    except ImportError:
        raise ValueError(
            "milvus: pymilvus is not installed; install it with: pip install 'kinspace[milvus]'"
        ) from None
    local = "://" not in uri
    log = logging.getLogger("milvus_lite")
    before = log.level
    if local:
        log.setLevel(logging.CRITICAL)  # it prints the traceback of an error that is raised here
    try:
        return MilvusClient(uri, token=token)
    except MilvusException as error:
        why = "; one process at a time can open such a file: is a server running?" if local else ""
        raise ValueError(f"{uri}: cannot be opened: {error.message}{why}") from None
    finally:
        log.setLevel(before)


def check_server(uri: str, name: str | None, token: str | None) -> None:
    """Raise a ValueError if a database cannot be opened under this name."""
    checked_name(uri, name)
    connect(uri, token or os.environ.get("MILVUS_TOKEN", "")).close()


@contextmanager
def milvus_errors() -> Iterator[None]:
    """Turn errors of the database into a ValueError."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise ValueError(f"milvus: {error.message}") from None


def wait_until_indexed(client: Any, collection: str) -> None:
    """Wait until a server has indexed everything that was flushed, and searches with that index.

    Until then it searches with an interim index of its own: 128 cells, of which it visits 16
    whatever the request says (its setting queryNode.segcore.interimIndex). Raises a ValueError
    after half an hour without progress.
    """
    left, last_progress = -1, time.monotonic()
    while (pending := _pending(client, collection)) > 0:
        if pending != left:
            left, last_progress = pending, time.monotonic()
        if time.monotonic() - last_progress > STALLED:
            raise ValueError(
                f"milvus: expected an index of {collection!r}, but {pending:,} vectors were not "
                f"indexed in {STALLED // 60} minutes; is the server's index node running?"
            )
        time.sleep(0.5)
    end = time.monotonic() + LOADING
    while _interim(client, collection) and time.monotonic() < end:
        time.sleep(0.5)


def _pending(client: Any, collection: str) -> int:
    with milvus_errors():
        return int(client.describe_index(collection, "vector").get("pending_index_rows", 0))


def _interim(client: Any, collection: str) -> bool:
    """Whether a segment that has an index is still searched without it."""
    if not hasattr(client, "list_loaded_segments"):  # pymilvus before 2.6
        return False
    with milvus_errors():
        loaded = client.list_loaded_segments(collection)
    return any(not part.index_id and part.num_rows >= UNINDEXED for part in loaded)
