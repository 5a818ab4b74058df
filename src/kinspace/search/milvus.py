"""Search by Milvus: a local file through milvus-lite, or a cluster by its URL, by the same code.

Needs the extra `milvus`. A name is an alias of one collection, NAME_v1 at first. To embed all
pictures anew with another model while searches go on:

    fresh = index.next_version(dim=256)   # an empty collection that nobody searches yet
    fresh.add(vectors, ids, labels)       # in as many calls as it takes
    fresh.publish()                       # from now on it is the one behind the name

Every process that holds the name searches the new one from its next call on; the old collection is
dropped by `publish`, or kept with drop_old=False to go back to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kinspace import checks
from kinspace.evaluation.inputs import Vectors
from kinspace.search.columns import Columns, numbers, wanted
from kinspace.search.exact import unit_vectors
from kinspace.search.index import Found, Where

__all__ = ["MilvusIndex"]

BATCH = 1000  # rows or queries in a request
FLUSHED = 10_000  # rows in one `add`; a cluster decides by itself


class MilvusIndex:
    """The collection behind a name, in a file ("gallery.db") or at a URL ("https://host:19530").

    dim: needed where the name is new. token: that of the cluster, by default MILVUS_TOKEN of the
    environment; it is never written to a file. index_type: as Milvus names them.
    """

    def __init__(
        self,
        uri: str | Path,
        dim: int | None = None,
        *,
        name: str = "kinspace",
        token: str | None = None,
        index_type: str = "AUTOINDEX",
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"name: expected letters, digits and _, got {name!r}")
        if "://" in str(uri) and "@" in str(uri):
            raise ValueError("uri: expected no password in it; give it as token")
        self.uri, self.name, self._index_type = str(uri), name, index_type
        self._client = _connected(self.uri, token or os.environ.get("MILVUS_TOKEN", ""))
        with _asked():
            known = self._client.has_collection(name)
        if not known:
            if dim is None:
                raise ValueError(f"dim: expected one, since there is no {name!r} in {uri}")
            self._create(f"{name}_v1", dim)
            with _asked():
                self._client.create_alias(f"{name}_v1", name)
        self._collection = name  # the alias, or one version
        found = self._found_dim()
        if dim is not None and found != dim:
            raise ValueError(
                f"dim: expected {found}, that of {name!r} in {uri}, got {dim}; for a model with "
                "another dimension use next_version"
            )
        self._dim = found

    def _create(self, collection: str, dim: int) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=checks.whole("dim", dim, at_least=1))
        schema.add_field("label", DataType.INT64)
        schema.add_field("attributes", DataType.JSON)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type=self._index_type, metric_type="COSINE")
        with _asked():
            self._client.create_collection(
                collection, schema=schema, index_params=index, consistency_level="Strong"
            )

    def _found_dim(self) -> int:
        with _asked():
            fields = self._client.describe_collection(self._collection)["fields"]
        return next(int(f["params"]["dim"]) for f in fields if f["name"] == "vector")

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self._dim

    @property
    def collection(self) -> str:
        """The collection that is read and written now, NAME_vN."""
        with _asked():
            return str(self._client.describe_collection(self._collection)["collection_name"])

    def __len__(self) -> int:
        with _asked():
            rows = self._client.query(
                self._collection, filter="", output_fields=["count(*)"], consistency_level="Strong"
            )
        return int(rows[0]["count(*)"])

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put vectors in, or others in the place of those with the same ids."""
        rows = unit_vectors(vectors, self._dim).numpy()
        columns = Columns.of(ids, len(rows), labels, attributes)
        numbered, labeled = columns.ids.tolist(), columns.labels.tolist()
        words = {name: column.tolist() for name, column in columns.attributes.items()}
        for at in range(0, len(rows), BATCH):
            batch = [
                {
                    "id": numbered[i],
                    "vector": rows[i],
                    "label": labeled[i],
                    "attributes": {name: column[i] for name, column in words.items()},
                }
                for i in range(at, min(at + BATCH, len(rows)))
            ]
            with _asked():
                self._client.upsert(self._collection, batch)
        if len(rows) >= FLUSHED and "://" not in self.uri:
            self._flush()  # milvus-lite searches what is not yet in its files several times slower

    def _flush(self) -> None:
        with _asked():
            self._client.flush(self._collection)

    def delete(self, ids: Any) -> int:
        """Take vectors out; how many there were."""
        gone = numbers("ids", ids).tolist()
        before = len(self)
        for at in range(0, len(gone), BATCH):
            with _asked():
                self._client.delete(self._collection, ids=gone[at : at + BATCH])
        return before - len(self)

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> Found:
        """Ids and cosines of about the k nearest of each query; k up to Milvus's 16,384."""
        checks.whole("k", k, at_least=1)
        asked = unit_vectors(queries, self._dim, name="queries").numpy()
        ids = np.full((len(asked), k), -1, np.int64)
        cosines = np.full((len(asked), k), -np.inf, np.float32)
        for at in range(0, len(asked), BATCH):
            with _asked():
                found = self._client.search(
                    self._collection,
                    data=list(asked[at : at + BATCH]),
                    limit=k,
                    filter="" if where is None else _expression(where),
                    output_fields=["id"],
                    consistency_level="Strong",
                )
            for row, hits in enumerate(found, at):
                ids[row, : len(hits)] = [hit["id"] for hit in hits]
                cosines[row, : len(hits)] = [hit["distance"] for hit in hits]
        return ids, cosines

    def next_version(self, dim: int | None = None) -> MilvusIndex:
        """An empty collection beside the one behind the name, for another model's vectors."""
        with _asked():
            taken = self._client.list_collections()
        pattern = re.compile(re.escape(self.name) + r"_v(\d+)")
        used = [int(found[1]) for found in map(pattern.fullmatch, taken) if found]
        fresh = object.__new__(MilvusIndex)
        fresh.__dict__ |= self.__dict__  # the same connection
        fresh._collection = f"{self.name}_v{max(used, default=0) + 1}"
        fresh._create(fresh._collection, self._dim if dim is None else dim)
        fresh._dim = fresh._found_dim()
        return fresh

    def publish(self, *, drop_old: bool = True) -> None:
        """Put this version behind the name, in one step."""
        with _asked():
            old = str(self._client.describe_collection(self.name)["collection_name"])
            if self._collection in (self.name, old):  # it is there already
                return
            self._client.flush(self._collection)
            self._client.alter_alias(self._collection, self.name)
            if drop_old:
                self._client.drop_collection(old)

    def save(self, file: str | Path) -> None:
        """Write where the vectors are; they themselves are in the database already.

        A database file beside or under the written file is found again when both are moved.
        """
        uri = self.uri
        self._flush()
        if "://" not in uri:
            uri = os.path.relpath(uri, Path(file).parent)
        Path(file).write_text(json.dumps({"milvus": uri, "name": self.name}), encoding="utf-8")

    @classmethod
    def load(cls, file: str | Path, *, token: str | None = None) -> MilvusIndex:
        """The index that `save` wrote of."""
        try:
            about = json.loads(Path(file).read_text(encoding="utf-8"))
            uri, name = str(about["milvus"]), str(about["name"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: expected a saved Milvus index, got {error!r}") from None
        if "://" not in uri:
            uri = str(Path(file).parent / uri)
            if not Path(uri).exists():
                raise ValueError(f"{uri}: expected the database of {file}, got no such file")
        return cls(uri, name=name, token=token)

    def close(self) -> None:
        """Let go of the connection; a database file stays locked until the process ends."""
        self._client.close()


def _expression(where: Where) -> str:
    """A filter in Milvus's words; texts are quoted as JSON quotes them.

    >>> _expression({"label": [3, 5], "color=red": True})
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


def _connected(uri: str, token: str) -> Any:
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
def _asked() -> Iterator[None]:
    """Turn what the database answers to a wrong request into a ValueError."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise ValueError(f"milvus: {error.message}") from None
