"""Search by Milvus: a local file through milvus-lite or a cluster by its URL, with the same code.

Needs the extra `milvus`. A name is an alias of one collection, first NAME_v1. To embed all pictures
again with another model while searches go on:

    fresh = index.next_version(dim=256)   # an empty collection that nothing searches yet
    fresh.add(vectors, ids, labels)       # in as many calls as needed
    fresh.publish()                       # the name now refers to the new collection

Every process that uses the name searches the new collection from its next call on. The collection
before stays until the next `publish`, because searches that run while their collection is dropped
fail or find nothing.

`kinspace.search.milvus_vectors` has what the precisions "int8" and "binary" keep of a vector.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically
from kinspace.evaluation.similarity import Vectors
from kinspace.search.index import (
    SearchResult,
    Where,
    check_ids,
    check_rows,
    empty_result,
    unit_vectors,
)
from kinspace.search.milvus_client import (
    checked_name,
    connect,
    filter_expression,
    milvus_errors,
    wait_until_indexed,
)
from kinspace.search.milvus_vectors import MilvusVectors, check_milvus_precision

__all__ = ["MilvusIndex"]

BATCH = 1000  # rows or queries in a request
PAGE = 10_000  # ids in a response
FLUSH_FROM = 10_000  # rows in one `add` to a file; a cluster flushes on its own
IDENTITY = "kinspace.identity"  # a property of a collection


class MilvusIndex:
    """The collection behind a name, in a file ("gallery.db") or at a URL ("https://host:19530").

    name: "kinspace" by default in a file; required at a URL, which several people may use. dim:
    required for a new name. token: of the cluster, by default the environment variable
    MILVUS_TOKEN; it is never written to a file. index_type: as in Milvus, by default that of the
    precision. effort: the candidates that a search of a graph visits; higher values find more and
    take longer. precision: "float32", "int8" or, on a server, "binary", whose cosines are
    approximate (`Reranked` makes them exact); None: that of the collection, "float32" for a new
    one.

    Searches see everything this object wrote, and what others write after about a second.

    >>> import numpy as np
    >>> index = MilvusIndex("gallery.db", 2)  # doctest: +SKIP
    >>> index.add(np.eye(2), [10, 11])  # doctest: +SKIP
    >>> index.search(np.array([[2.0, 0.1]]), 1)[0]  # doctest: +SKIP
    array([[10]])
    """

    def __init__(
        self,
        uri: str | Path,
        dim: int | None = None,
        *,
        name: str | None = None,
        token: str | None = None,
        index_type: str | None = None,
        effort: int = 256,
        precision: str | None = None,
    ) -> None:
        self.effort = checks.integer("effort", effort, at_least=1)
        self.uri, self.name, self._index_type = str(uri), checked_name(str(uri), name), index_type
        self._client = connect(self.uri, token or os.environ.get("MILVUS_TOKEN", ""))
        self._collection = self.name  # the alias or one version
        if not self._known():
            if dim is None:
                raise ValueError(f"dim: expected one, since {uri} has no {self.name!r}")
            self._create(f"{self.name}_v1", dim, precision or "float32")
            with milvus_errors():
                self._client.create_alias(f"{self.name}_v1", self.name)
        self._vectors = self._described()
        with milvus_errors():
            self._client.load_collection(self.name)  # collections of a reopened file are not loaded
        given = {"dim": (dim, self.dim), "precision": (precision, self.precision)}
        for what, (asked, there) in given.items():
            if asked not in (None, there):
                raise ValueError(
                    f"{what}: expected {there}, the {what} of {self.name!r} in {uri}, got {asked}; "
                    f"for another {what} use next_version"
                )

    def _known(self) -> bool:
        with milvus_errors():
            known = bool(self._client.has_collection(self.name))
            alias = self.name not in self._client.list_collections()  # lists no aliases
        if known and not alias:
            raise ValueError(
                f"name: expected a new name or one made by kinspace, got {self.name!r}, which is "
                f"another collection in {self.uri}; choose another name"
            )
        return known

    def _create(self, collection: str, dim: int, precision: str) -> None:
        from pymilvus import DataType, MilvusClient

        check_milvus_precision(self.uri, precision)
        vectors = MilvusVectors(checks.integer("dim", dim, at_least=1), precision)

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", **vectors.field())
        schema.add_field("label", DataType.INT64)
        schema.add_field("attributes", DataType.JSON)
        index = self._client.prepare_index_params()
        index.add_index("vector", **vectors.index(self._index_type, on_server="://" in self.uri))
        with milvus_errors():
            self._client.create_collection(
                collection,
                schema=schema,
                index_params=index,
                consistency_level="Strong",
                properties={IDENTITY: uuid4().hex, **vectors.properties()},
            )

    @property
    def identity(self) -> str:
        """A text that no other collection has, also not a later one of the same name."""
        with milvus_errors():
            found = self._client.describe_collection(self._collection).get("properties") or {}
        return str(found.get(IDENTITY, ""))

    def _described(self) -> MilvusVectors:
        with milvus_errors():
            return MilvusVectors.of_collection(self._client.describe_collection(self._collection))

    def _current(self) -> MilvusVectors:
        """How the vectors are kept; behind a name another version may be published at any time."""
        if self._collection == self.name or self._vectors.lacks_means:
            self._vectors = self._described()
        return self._vectors

    @property
    def dim(self) -> int:
        """Length of the vectors of the current collection."""
        return self._current().dim

    @property
    def precision(self) -> str:
        """What the current collection keeps of its vectors: "float32", "int8" or "binary"."""
        return self._current().precision

    @property
    def collection(self) -> str:
        """The current collection, NAME_vN."""
        with milvus_errors():
            if self._collection != self.name:
                return self._collection
            return str(self._client.describe_alias(self.name)["collection_name"])

    def __len__(self) -> int:
        options = {"output_fields": ["count(*)"], "consistency_level": "Strong"}
        with milvus_errors():
            rows = self._client.query(self._collection, filter="", **options)
        return int(rows[0]["count(*)"])

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add vectors; a vector whose id is in the index replaces the old one."""
        kept = self._current()
        tensor, columns = check_rows(kept.dim, vectors, ids, labels, attributes)
        rows = tensor.numpy()
        if kept.lacks_means and len(rows):
            kept = self._vectors = kept.with_means(rows)
            with milvus_errors():
                self._client.alter_collection_properties(self.collection, kept.properties())
        row_ids, row_labels = columns.ids.tolist(), columns.labels.tolist()
        row_attributes = {name: column.tolist() for name, column in columns.attributes.items()}
        for at in range(0, len(rows), BATCH):
            codes = kept.encoded(rows[at : at + BATCH])
            batch = [
                {
                    "id": row_ids[i],
                    "vector": codes[i - at],
                    "label": row_labels[i],
                    "attributes": {name: column[i] for name, column in row_attributes.items()},
                }
                for i in range(at, min(at + BATCH, len(rows)))
            ]
            with milvus_errors():
                self._client.upsert(self._collection, batch)
        if len(rows) >= FLUSH_FROM and "://" not in self.uri:
            self._flush()  # milvus-lite searches unflushed rows several times slower

    def _flush(self) -> None:
        with milvus_errors():
            self._client.flush(self._collection)

    def wait_until_indexed(self) -> None:
        """Wait until everything that was added is in the files and the index of the database.

        Before that a server finds much less (of the true 10 nearest of 100,000 vectors 78 % instead
        of 99 %). `save` and `publish` wait too.
        """
        self._flush()
        if "://" in self.uri:
            wait_until_indexed(self._client, self._collection)

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""
        removed = check_ids("ids", ids).tolist()
        before = len(self)
        for at in range(0, len(removed), BATCH):
            with milvus_errors():
                self._client.delete(self._collection, ids=removed[at : at + BATCH])
        return before - len(self)

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and cosines of about the k nearest of each query; Milvus allows k to 16,384."""
        checks.integer("k", k, at_least=1)
        kept = self._current()
        vectors = unit_vectors(queries, kept.dim, name="queries").numpy()
        ids, cosines = empty_result(len(vectors), k)
        if kept.lacks_means:
            return ids, cosines
        options = {
            "limit": k,
            "filter": "" if where is None else filter_expression(where),
            "output_fields": ["id"],
            "search_params": kept.search_params(self.effort, k),
            "consistency_level": "Session",  # "Strong" waits for the cluster's clock
        }
        for at in range(0, len(vectors), BATCH):
            data = kept.encoded(vectors[at : at + BATCH])
            with milvus_errors():
                found = self._client.search(self._collection, data, **options)
            for row, hits in enumerate(found, at):
                ids[row, : len(hits)] = [hit["id"] for hit in hits]
                cosines[row, : len(hits)] = kept.cosines([hit["distance"] for hit in hits])
        return ids, cosines

    def versions(self) -> list[str]:
        """The existing collections of this name, NAME_v1, NAME_v2 and so on, in any order."""
        with milvus_errors():
            taken = self._client.list_collections()
        pattern = re.compile(re.escape(self.name) + r"_v\d+")
        return [name for name in taken if pattern.fullmatch(name)]

    @classmethod
    def beside_damaged(
        cls, address: Mapping[str, str], folder: Path, dim: int, *, token: str | None = None
    ) -> MilvusIndex:
        """A new, empty version at an `address` whose current one can no longer be loaded.

        milvus-lite, killed while it writes the file of an index, cannot read that collection again.
        """
        index = object.__new__(cls)
        uri = address["milvus"]
        index.uri = uri if "://" in uri else str(folder / uri)
        index.name, index.effort, index._index_type = address["name"], 256, None
        index._collection = index.name
        index._vectors = MilvusVectors(dim, address.get("precision", "float32"))
        index._client = connect(index.uri, token or os.environ.get("MILVUS_TOKEN", ""))
        return index.next_version(dim)

    def next_version(self, dim: int | None = None, *, precision: str | None = None) -> MilvusIndex:
        """A new, empty collection for the vectors of another model; `publish` puts it in use."""
        used = map(_version_number, self.versions())
        fresh = object.__new__(MilvusIndex)
        fresh.__dict__ |= self.__dict__  # shares the connection
        fresh._collection = f"{self.name}_v{max(used, default=0) + 1}"
        before = self._vectors
        length = before.dim if dim is None else dim
        fresh._create(fresh._collection, length, precision or before.precision)
        fresh._vectors = fresh._described()
        return fresh

    def pinned(self) -> MilvusIndex:
        """An index of the current collection, also when another is published under the name.

        A gallery searches in this way: its pictures are those of one collection.
        """
        same = object.__new__(MilvusIndex)
        same.__dict__ |= self.__dict__  # shares the connection
        same._collection = self.collection
        return same

    def finish_publish(self) -> None:
        """Publish a pinned version if its process ended before it could.

        A name that refers to a later version stays: another model has taken it over.
        """
        with milvus_errors():
            current = str(self._client.describe_alias(self.name)["collection_name"])
        if _version_number(current) < _version_number(self._collection):
            self.publish()

    def labels_of(self, ids: Any) -> dict[int, int]:
        """The labels of those of the ids that are in the index.

        >>> index = MilvusIndex("gallery.db", 2)  # doctest: +SKIP
        >>> index.labels_of([10, 12])  # doctest: +SKIP
        {10: -1}
        """
        asked, found = check_ids("ids", ids).tolist(), dict[int, int]()
        options = {"output_fields": ["id", "label"], "consistency_level": "Strong"}
        for at in range(0, len(asked), BATCH):
            with milvus_errors():
                rows = self._client.get(self._collection, asked[at : at + BATCH], **options)
            found |= {int(row["id"]): int(row["label"]) for row in rows}
        return found

    def all_ids(self) -> NDArray[np.int64]:
        """The ids of all vectors, in order."""
        found: list[int] = []
        last = -1
        while True:  # each page begins behind the one before
            options = {"output_fields": ["id"], "limit": PAGE, "consistency_level": "Strong"}
            with milvus_errors():
                rows = self._client.query(self._collection, filter=f"id > {last}", **options)
            if not rows:
                return np.array(sorted(found), np.int64)
            page = [int(row["id"]) for row in rows]
            found += page
            last = max(page)

    def publish(self, *, drop_old: bool = False) -> None:
        """Make the name refer to this version, in one step, and drop all versions but the previous.

        drop_old: drop the previous version too; safe if no search is running.
        """
        len(self)  # waits until everything that was added is visible to all
        with milvus_errors():
            old = str(self._client.describe_alias(self.name)["collection_name"])
        self.wait_until_indexed()
        if self._collection in (self.name, old):  # already published
            return
        with milvus_errors():
            self._client.alter_alias(self._collection, self.name)
            for version in self.versions():
                if _version_number(version) < _version_number(old) + drop_old:
                    self._client.drop_collection(version)

    def drop(self) -> None:
        """Remove the name and all its versions from the database."""
        versions = self.versions()
        with milvus_errors():
            self._client.drop_alias(self.name)
            for version in versions:
                self._client.drop_collection(version)

    def address(self, folder: Path) -> dict[str, str]:
        """Where the vectors are, for `at`: the path of a database file relative to a folder."""
        uri = self.uri if "://" in self.uri else os.path.relpath(self.uri, folder)
        address = {"milvus": uri, "name": self.name, "identity": self.identity}
        if (precision := self.precision) != "float32":
            address["precision"] = precision
        if self._collection != self.name:
            address["collection"] = self._collection
        return address

    @classmethod
    def at(
        cls, address: Mapping[str, str], folder: Path, *, where: str, token: str | None = None
    ) -> MilvusIndex:
        """The index at an `address`; where: its file, for messages."""
        uri, name = address["milvus"], address["name"]
        if "://" not in uri:
            uri = str(folder / uri)
            if not Path(uri).exists():
                raise ValueError(f"{uri}: expected the database of {where}, got no such file")
        index = cls(uri, name=name, token=token)
        if (collection := address.get("collection")) is None:
            return index
        with milvus_errors():
            known = bool(index._client.has_collection(collection))
        index._collection = collection
        if not known or index.identity != address["identity"]:
            raise ValueError(
                f"{where}: expected the collection {collection!r} in {uri}, got "
                f"{'another of this name' if known else 'none'}; another run may have taken the "
                f"name {name!r} over"
            )
        index._vectors = index._described()
        with milvus_errors():
            index._client.load_collection(collection)
        return index

    def save(self, file: str | Path) -> None:
        """Write the address of the vectors, which are in the database already.

        The path of a database file is written relative to `file`: both can be moved together.
        """
        self.wait_until_indexed()
        text = json.dumps(self.address(Path(file).parent))
        write_atomically(Path(file), lambda part: part.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, file: str | Path, *, token: str | None = None) -> MilvusIndex:
        """The index at the address in a file by `save`."""
        try:
            about = json.loads(Path(file).read_text(encoding="utf-8"))
            address = {str(name): str(value) for name, value in about.items()}
            address["milvus"], address["name"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: expected a saved Milvus index, got {error!r}") from None
        return cls.at(address, Path(file).parent, where=str(file), token=token)

    def close(self) -> None:
        """Close the connection; a database file stays locked until the process ends."""
        self._client.close()


def _version_number(version: str) -> int:
    """N of a collection NAME_vN."""
    return int(version.rpartition("_v")[2])
