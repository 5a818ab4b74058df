"""How a collection of Milvus keeps its vectors: as float32, a byte of each number, or a bit.

    float32  the index that Milvus chooses, with full vectors
    int8     an index with a byte of each number: on a server IVF_SQ8, 1,024 cells of which a search
             visits 64; in a file HNSW_SQ, a graph. The vectors are on the disk in full
    binary   the bit of x > mean of each number, all compared. The means are those of the first
             `add`, and are kept as a property of the collection. milvus-lite has no such vectors

The cosines of int8 and binary are approximate, as those of `CompactIndex`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.search.compact import PRECISIONS, bit_codes, bit_cosines

__all__ = ["MilvusVectors", "check_milvus_precision"]

CELLS, VISITED = 1024, 64  # of IVF_SQ8
KEPT, MEANS = "kinspace.vectors", "kinspace.means"  # properties of a collection


def check_milvus_precision(uri: str, precision: str) -> str:
    """The precision, if the database at a path or URL has such vectors.

    >>> check_milvus_precision("gallery.db", "int8")
    'int8'
    """
    checks.choice("precision", precision, PRECISIONS)
    if precision == "binary" and "://" not in uri:
        raise ValueError(
            "precision: milvus-lite has no binary vectors; expected float32 or int8 with a file, "
            "or the URL of a server (--uri), or another index (--backend exact)"
        )
    return precision


@dataclass(frozen=True, eq=False)
class MilvusVectors:
    """The length of the vectors, how they are kept, and for bits the means once there are some.

    >>> kept = MilvusVectors(3, "binary").with_means(np.array([[0.5, 0.0, -1.0], [-0.5, 1.0, 1.0]]))
    >>> [f"{code[0]:08b}" for code in kept.encoded(np.array([[1.0, 0.0, 1.0]]))]
    ['10100000']
    >>> kept.cosines([0, 3]).tolist()
    [1.0, -1.0]
    """

    dim: int
    precision: str = "float32"
    means: NDArray[np.float32] | None = None

    @staticmethod
    def of_collection(description: Mapping[str, Any]) -> MilvusVectors:
        """Those of a collection as Milvus describes it."""
        found = {str(k): str(v) for k, v in dict(description.get("properties") or {}).items()}
        fields = {field["name"]: field["params"] for field in description["fields"]}
        if KEPT not in found:  # a collection of an earlier kinspace
            return MilvusVectors(int(fields["vector"]["dim"]))
        about = json.loads(found[KEPT])
        means = None
        if MEANS in found:
            means = np.frombuffer(base64.b64decode(found[MEANS]), np.float32)
        return MilvusVectors(int(about["dim"]), str(about["precision"]), means)

    def with_means(self, rows: NDArray[np.float32]) -> MilvusVectors:
        """The same with the means of these rows."""
        return MilvusVectors(self.dim, self.precision, rows.mean(0, dtype=np.float32))

    @property
    def lacks_means(self) -> bool:
        """Whether nothing can be compared before the first `add`."""
        return self.precision == "binary" and self.means is None

    def properties(self) -> dict[str, str]:
        """For `of_collection`, as properties of a collection."""
        found = {KEPT: json.dumps({"dim": self.dim, "precision": self.precision})}
        if self.means is not None:
            found[MEANS] = base64.b64encode(self.means.astype(np.float32).tobytes()).decode()
        return found

    def field(self) -> dict[str, Any]:
        """The type and the length of the field of the vectors."""
        from pymilvus import DataType

        if self.precision == "binary":
            return {"datatype": DataType.BINARY_VECTOR, "dim": -(-self.dim // 8) * 8}
        return {"datatype": DataType.FLOAT_VECTOR, "dim": self.dim}

    def index(self, index_type: str | None, *, on_server: bool) -> dict[str, Any]:
        """The kind of the index, its metric and its parameters; index_type: the kind, if given."""
        if self.precision == "binary":
            return {"index_type": index_type or "BIN_FLAT", "metric_type": "HAMMING"}
        quantized = "IVF_SQ8" if on_server else "HNSW_SQ"  # which servers have since Milvus 2.5
        kind = index_type or (quantized if self.precision == "int8" else "AUTOINDEX")
        params = {"params": {"nlist": CELLS}} if kind.startswith("IVF") else {}
        return {"index_type": kind, "metric_type": "COSINE", **params}

    def search_params(self, effort: int, k: int) -> dict[str, Any]:
        """What a search visits: candidates of a graph, cells otherwise."""
        if self.precision == "binary":
            return {}
        return {"params": {"ef": max(effort, k), "nprobe": VISITED}}

    def encoded(self, rows: NDArray[np.float32]) -> list[Any]:
        """The rows as the field takes them."""
        if self.precision != "binary":
            return list(rows)
        assert self.means is not None
        return [code.tobytes() for code in bit_codes(rows, self.means)]

    def cosines(self, distances: Any) -> NDArray[np.float32]:
        """Cosines, of int8 and binary approximate ones, from what a search returns."""
        found = np.asarray(distances, np.float32)
        return bit_cosines(found, self.dim) if self.precision == "binary" else found
