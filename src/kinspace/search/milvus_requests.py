"""What is asked of Milvus in its own terms: names, filters, a connection; and its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kinspace.search.columns import numbers, wanted
from kinspace.search.index import Where

__all__ = ["asked", "checked_name", "connected", "expression"]


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


@contextmanager
def asked() -> Iterator[None]:
    """Turn what the database answers to a wrong request into a ValueError."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise ValueError(f"milvus: {error.message}") from None
