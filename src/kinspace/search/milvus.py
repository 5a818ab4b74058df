"""Search by Milvus: a local file through milvus-lite, or a cluster by its URL, by the same code.

Needs the extra `milvus`. A name is an alias of one collection, NAME_v1 at first. To embed all
pictures anew with another model while searches go on:

    fresh = index.next_version(dim=256)   # an empty collection that nobody searches yet
    fresh.add(vectors, ids, labels)       # in as many calls as it takes
    fresh.publish()                       # from now on it is the one behind the name

Every process that holds the name searches the new one from its next call on. The collection before
stays until the next `publish`: searches that are under way in it when it is dropped fail or find
nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically
from kinspace.evaluation.metric_inputs import Vectors
from kinspace.search.columns import checked_rows, numbers, unit_vectors
from kinspace.search.index import Found, Where, nothing_found
from kinspace.search.milvus_requests import (
    asked,
    await_index,
    checked_name,
    connected,
    expression,
)

__all__ = ["MilvusIndex"]

BATCH = 1000  # rows or queries in a request
FLUSHED = 10_000  # rows in one `add`; a cluster decides by itself


class MilvusIndex:
    """The collection behind a name, in a file ("gallery.db") or at a URL ("https://host:19530").

    name: "kinspace" in a file; needed at a URL, where others have theirs. dim: needed where the
    name is new. token: that of the cluster, by default MILVUS_TOKEN of the environment; it is never
    written to a file. index_type: as Milvus names them. effort: candidates that a search of a graph
    looks at; more finds more and takes longer.

    Searches see all that this object wrote; what others write, about a second later.
    """

    def __init__(
        self,
        uri: str | Path,
        dim: int | None = None,
        *,
        name: str | None = None,
        token: str | None = None,
        index_type: str = "AUTOINDEX",
        effort: int = 256,
    ) -> None:
        self.effort = checks.integer("effort", effort, at_least=1)
        self.uri, self.name, self._index_type = str(uri), checked_name(str(uri), name), index_type
        self._client = connected(self.uri, token or os.environ.get("MILVUS_TOKEN", ""))
        self._collection = self.name  # the alias, or one version
        if not self._known():
            if dim is None:
                raise ValueError(f"dim: expected one, since there is no {self.name!r} in {uri}")
            self._create(f"{self.name}_v1", dim)
            with asked():
                self._client.create_alias(f"{self.name}_v1", self.name)
        self._dim = self._found_dim()
        with asked():
            self._client.load_collection(self.name)  # a file that was closed is not, to search in
        if dim is not None and dim != self._dim:
            raise ValueError(
                f"dim: expected {self._dim}, that of {self.name!r} in {uri}, got {dim}; for a "
                "model with another dimension use next_version"
            )

    def _known(self) -> bool:
        with asked():
            known = bool(self._client.has_collection(self.name))
            alias = self.name not in self._client.list_collections()  # which has no aliases
        if known and not alias:
            raise ValueError(
                f"name: expected a new one or one of kinspace's, got {self.name!r}, which is a "
                f"collection of its own in {self.uri}; choose another"
            )
        return known

    def _create(self, collection: str, dim: int) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field(
            "vector", DataType.FLOAT_VECTOR, dim=checks.integer("dim", dim, at_least=1)
        )
        schema.add_field("label", DataType.INT64)
        schema.add_field("attributes", DataType.JSON)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type=self._index_type, metric_type="COSINE")
        with asked():
            self._client.create_collection(
                collection, schema=schema, index_params=index, consistency_level="Strong"
            )

    def _found_dim(self) -> int:
        with asked():
            fields = self._client.describe_collection(self._collection)["fields"]
        return next(int(f["params"]["dim"]) for f in fields if f["name"] == "vector")

    @property
    def dim(self) -> int:
        """Numbers in a vector of the collection that is read and written now."""
        self._dim = self._found_dim()
        return self._dim

    def _dim_for(self, vectors: Vectors) -> int:
        """The dim; asked for anew where vectors are of another, after another model took over."""
        known = tuple(getattr(vectors, "shape", ()))[-1:] in ((), (self._dim,))
        return self._dim if known else self.dim

    @property
    def collection(self) -> str:
        """The collection that is read and written now, NAME_vN."""
        with asked():
            if self._collection != self.name:
                return self._collection
            return str(self._client.describe_alias(self.name)["collection_name"])

    def __len__(self) -> int:
        options = {"output_fields": ["count(*)"], "consistency_level": "Strong"}
        with asked():
            rows = self._client.query(self._collection, filter="", **options)
        return int(rows[0]["count(*)"])

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put vectors in, or others in the place of those with the same ids."""
        tensor, columns = checked_rows(self._dim_for(vectors), vectors, ids, labels, attributes)
        rows = tensor.numpy()
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
            with asked():
                self._client.upsert(self._collection, batch)
        if len(rows) >= FLUSHED and "://" not in self.uri:
            self._flush()  # milvus-lite searches what is not yet in its files several times slower

    def _flush(self) -> None:
        with asked():
            self._client.flush(self._collection)

    def settle(self) -> None:
        """Wait until all that was written is in the database's files and index.

        A server finds much less before (78 % of the true 10 nearest of 100,000, 99 % after). `save`
        and `publish` wait too.
        """
        self._flush()
        if "://" in self.uri:
            await_index(self._client, self._collection)

    def delete(self, ids: Any) -> int:
        """Take vectors out; how many there were."""
        gone = numbers("ids", ids).tolist()
        before = len(self)
        for at in range(0, len(gone), BATCH):
            with asked():
                self._client.delete(self._collection, ids=gone[at : at + BATCH])
        return before - len(self)

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> Found:
        """Ids and cosines of about the k nearest of each query; k up to Milvus's 16,384."""
        checks.integer("k", k, at_least=1)
        wanted = unit_vectors(queries, self._dim_for(queries), name="queries").numpy()
        ids, cosines = nothing_found(len(wanted), k)
        options = {
            "limit": k,
            "filter": "" if where is None else expression(where),
            "output_fields": ["id"],
            "search_params": {"params": {"ef": max(self.effort, k)}},
            "consistency_level": "Session",  # "Strong" waits for a tick of the cluster's clock
        }
        for at in range(0, len(wanted), BATCH):
            data = list(wanted[at : at + BATCH])
            with asked():
                found = self._client.search(self._collection, data, **options)
            for row, hits in enumerate(found, at):
                ids[row, : len(hits)] = [hit["id"] for hit in hits]
                cosines[row, : len(hits)] = [hit["distance"] for hit in hits]
        return ids, cosines

    def versions(self) -> list[str]:
        """The collections of this name that there are: NAME_v1, NAME_v2 and so on, in any order."""
        with asked():
            taken = self._client.list_collections()
        pattern = re.compile(re.escape(self.name) + r"_v\d+")
        return [name for name in taken if pattern.fullmatch(name)]

    def next_version(self, dim: int | None = None) -> MilvusIndex:
        """An empty collection beside the one behind the name, for another model's vectors."""
        used = map(_number, self.versions())
        fresh = object.__new__(MilvusIndex)
        fresh.__dict__ |= self.__dict__  # the same connection
        fresh._collection = f"{self.name}_v{max(used, default=0) + 1}"
        fresh._create(fresh._collection, self._dim if dim is None else dim)
        fresh._dim = fresh._found_dim()
        return fresh

    def publish(self, *, drop_old: bool = False) -> None:
        """Put this version behind the name, in one step, and drop those before the last.

        drop_old: drop the last too, where nobody is searching now.
        """
        len(self)  # waits until all that was written is seen by everyone
        with asked():
            old = str(self._client.describe_alias(self.name)["collection_name"])
        self.settle()
        if self._collection in (self.name, old):  # it is there already
            return
        with asked():
            self._client.alter_alias(self._collection, self.name)
            for version in self.versions():
                if _number(version) < _number(old) + drop_old:
                    self._client.drop_collection(version)

    def drop(self) -> None:
        """Remove the name and all its versions, with their vectors, from the database."""
        versions = self.versions()
        with asked():
            self._client.drop_alias(self.name)
            for version in versions:
                self._client.drop_collection(version)

    def save(self, file: str | Path) -> None:
        """Write where the vectors are; they themselves are in the database already.

        A database file beside or under the written file is found again when both are moved.
        """
        uri = self.uri
        self.settle()
        if "://" not in uri:
            uri = os.path.relpath(uri, Path(file).parent)
        text = json.dumps({"milvus": uri, "name": self.name})
        write_atomically(Path(file), lambda part: part.write_text(text, encoding="utf-8"))

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


def _number(version: str) -> int:
    """Of a collection NAME_vN."""
    return int(version.rpartition("_v")[2])
