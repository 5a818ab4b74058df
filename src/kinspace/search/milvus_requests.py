"""What is asked of Milvus in its own terms: names, filters, a connection; and its errors."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kinspace.search.columns import numbers, wanted
from kinspace.search.index import Where

__all__ = ["asked", "await_index", "check_server", "checked_name", "connected", "expression"]

STALLED = 1800  # seconds in which not one more vector is indexed
HANDED_OVER = 60  # seconds in which an index that is built is loaded, at most
SMALL = 1024  # vectors of a part that is searched one by one, and never has an index


def expression(where: Where) -> str:
    """A filter in Milvus's words; texts are quoted as JSON quotes them.

    >>> expression({"label": [3, 5], "color=red": True})
    'label in [3, 5] and (attributes["color=red"] == true)'
    """
    parts = []
    for name, values in where.items():
        if name == "label":
            parts.append(f"label in {numbers('label', wanted(values), low=-1).tolist()}")
            continue
        field = f"attributes[{json.dumps(name, ensure_ascii=False)}]"
        each = [f"{field} == {json.dumps(v, ensure_ascii=False)}" for v in wanted(values)]
        parts.append(f"({' or '.join(each)})" if each else "id < 0")
    return " and ".join(parts)


def checked_name(uri: str, name: str | None) -> str:
    """What may be an alias.

    >>> checked_name("gallery.db", None)
    'kinspace'
    """
    if "://" in uri and "@" in uri:
        raise ValueError("uri: expected no password in it; give it as token")
    if name is None and "://" in uri:
        raise ValueError("name: expected one of your own, since a server may have others; got none")
    name = "kinspace" if name is None else name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name: expected letters, digits and _, got {name!r}")
    return name


def connected(uri: str, token: str) -> Any:
    """A client of the database at a path or URL."""
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException
    except ImportError:
        raise ValueError(
            "milvus: expected pymilvus, got none installed; pip install 'kinspace[milvus]'"
        ) from None
    try:
        return MilvusClient(uri, token=token)
    except MilvusException as error:
        raise ValueError(f"{uri}: cannot be opened: {error.message}") from None


def check_server(uri: str, name: str | None, token: str | None) -> None:
    """Whether a database can be opened under this name; a ValueError if not."""
    checked_name(uri, name)
    connected(uri, token or os.environ.get("MILVUS_TOKEN", "")).close()


@contextmanager
def asked() -> Iterator[None]:
    """Turn what the database answers to a wrong request into a ValueError."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise ValueError(f"milvus: {error.message}") from None


def await_index(client: Any, collection: str) -> None:
    """Wait until a server has indexed all that was flushed, and searches by that index.

    Until then it searches by a rough index of its own: 128 cells of which it looks at 16, whatever
    it is asked for (its setting queryNode.segcore.interimIndex). A ValueError where nothing goes on
    for half an hour.
    """
    left, since = -1, time.monotonic()
    while (pending := _pending(client, collection)) > 0:
        if pending != left:
            left, since = pending, time.monotonic()
        if time.monotonic() - since > STALLED:
            raise ValueError(
                f"milvus: expected an index of {collection!r}, got none of {pending:,} vectors in "
                f"{STALLED // 60} minutes; is the server's index node at work?"
            )
        time.sleep(0.5)
    end = time.monotonic() + HANDED_OVER
    while _rough(client, collection) and time.monotonic() < end:
        time.sleep(0.5)


def _pending(client: Any, collection: str) -> int:
    with asked():
        return int(client.describe_index(collection, "vector").get("pending_index_rows", 0))


def _rough(client: Any, collection: str) -> bool:
    """Whether a part that has an index is still searched without it."""
    if not hasattr(client, "list_loaded_segments"):  # pymilvus before 2.6
        return False
    with asked():
        loaded = client.list_loaded_segments(collection)
    return any(not part.index_id and part.num_rows >= SMALL for part in loaded)
