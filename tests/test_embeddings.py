"""The embedding table: its checks, its files, and files that something else wrote."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

from kinspace.embeddings import EmbeddingTable


def table() -> EmbeddingTable:
    return EmbeddingTable(
        np.arange(6.0, dtype=np.float32).reshape(3, 2),
        np.array([1, 0, 1]),
        ("a", "b", "ü"),
        ("x/1.png", "x/2.png", "y/3.png"),
        np.array([[1, 0.5], [0, 0], [0, 1]]),
        ("spots", "size"),
        ("io", "luna"),
    )


def assert_same(found: EmbeddingTable, expected: EmbeddingTable) -> None:
    for name in ("vectors", "labels", "attributes"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
    for name in ("ids", "paths", "attribute_names", "class_names"):
        assert getattr(found, name) == getattr(expected, name)


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    for kept in (table(), EmbeddingTable(np.eye(2))):
        kept.save(tmp_path / "t.npz")
        assert_same(EmbeddingTable.load(tmp_path / "t.npz"), kept)
    with np.load(tmp_path / "t.npz", allow_pickle=False) as stored:
        assert set(stored.files) == {"vectors", "table"}


def test_tensors_halves_and_integers_become_arrays() -> None:
    assert EmbeddingTable(torch.ones(2, 3, dtype=torch.bfloat16)).vectors.dtype == np.float32
    assert EmbeddingTable(torch.ones(2, 3, dtype=torch.float64)).vectors.dtype == np.float64
    assert EmbeddingTable(np.ones((2, 3), np.uint8)).vectors.dtype == np.float32
    found = EmbeddingTable(torch.ones(2, 3, requires_grad=True), torch.tensor([0, 4]))
    assert found.labels is not None
    assert found.labels.tolist() == [0, 4]
    assert found.class_name(4) == "4"
    assert table().class_name(1) == "luna"


def test_select_by_places_and_by_mask() -> None:
    whole = table()
    found = whole.select([2, 0])
    assert found.ids == ("ü", "a")
    assert found.paths == ("y/3.png", "x/1.png")
    assert found.vectors.tolist() == [[4, 5], [0, 1]]
    assert_same(whole.select(np.array([True, False, True])), whole.select([0, 2]))


def test_concat_joins_classes_by_name() -> None:
    first = table()
    second = EmbeddingTable(
        np.ones((1, 2), np.float32),
        [1],
        ("d",),
        ("z",),
        [[0, 1]],
        ("spots", "size"),
        ("atlas", "io"),
    )
    found = EmbeddingTable.concat([first, second])
    assert found.class_names == ("io", "luna", "atlas")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1, 0]
    assert found.ids == ("a", "b", "ü", "d")
    assert found.attributes is not None
    assert found.attributes.shape == (4, 2)
    plain = EmbeddingTable.concat(
        [EmbeddingTable(np.eye(2), [3, 1], "ab"), EmbeddingTable(np.eye(2), [1, 1], "cd")]
    )
    assert plain.labels is not None
    assert plain.labels.tolist() == [3, 1, 1, 1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: EmbeddingTable(np.ones(3)), r"expected a matrix of numbers \(rows, dim\)"),
        (lambda: EmbeddingTable(np.ones((0, 3))), "at least one row and one column"),
        (lambda: EmbeddingTable(np.eye(2), [0]), "labels: expected 2, one for each vector, got 1"),
        (lambda: EmbeddingTable(np.eye(2), [0.5, 1]), "labels: expected a row of integers"),
        (lambda: EmbeddingTable(np.eye(2), [0, -1]), "labels: expected 0 or more, got -1"),
        (
            lambda: EmbeddingTable(np.eye(2), [0, 2], class_names=("a", "b")),
            "expected 0 to 1, got 2",
        ),
        (lambda: EmbeddingTable(np.eye(2), ids=("a", "a")), "ids: .* got 'a' twice"),
        (lambda: EmbeddingTable(np.eye(2), paths=("a",)), "paths: expected 2"),
        (
            lambda: EmbeddingTable(np.eye(2), attributes=np.eye(2), attribute_names=("a",)),
            "one column for each of 1 attribute_names",
        ),
        (lambda: EmbeddingTable.concat([]), "at least one table"),
        (
            lambda: EmbeddingTable.concat([EmbeddingTable(np.eye(2)), EmbeddingTable(np.eye(3))]),
            "tables of one dim",
        ),
        (
            lambda: EmbeddingTable.concat([EmbeddingTable(np.eye(2)), EmbeddingTable(np.eye(2))]),
            "ids: expected a name of its own",
        ),
        (
            lambda: EmbeddingTable.concat(
                [EmbeddingTable(np.eye(2)), EmbeddingTable(np.eye(2), [0, 1], "cd")]
            ),
            "labels in all tables or in none",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


# --- files of others -----------------------------------------------------------------------------


def test_npz_of_others(tmp_path: Path) -> None:
    x = np.eye(3)
    np.savez(tmp_path / "a.npz", embeddings=x, y=np.array([2, 0, 0]))
    found = EmbeddingTable.load(tmp_path / "a.npz")
    assert found.labels is not None
    assert found.labels.tolist() == [2, 0, 0]
    np.savez(
        tmp_path / "b.npz",
        anything=x,
        labels=np.array(["luna", "io", "io"]),
        ids=np.array([7, 8, 9]),
    )
    found = EmbeddingTable.load(tmp_path / "b.npz")
    assert found.class_names == ("io", "luna")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 0]
    assert found.ids == ("7", "8", "9")
    np.savez(tmp_path / "c.npz", one=x, other=x)
    with pytest.raises(ValueError, match="expected a matrix named 'vectors', got arrays"):
        EmbeddingTable.load(tmp_path / "c.npz")


def test_pickled_objects_are_never_read(tmp_path: Path) -> None:
    bad = np.array([{"a": 1}, None], dtype=object)
    np.savez(tmp_path / "a.npz", vectors=np.eye(2), labels=bad)
    with pytest.raises(ValueError, match=r"array 'labels': .* pickled objects, which are not read"):
        EmbeddingTable.load(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", bad)
    with pytest.raises(ValueError, match=r"expected numbers, got pickled objects"):
        EmbeddingTable.load(tmp_path / "a.npy")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut", b"\x93NUMPY\x01\0v\0{"])
def test_broken_numpy_files(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"expected a readable {suffix} file, got"):
        EmbeddingTable.load(file)


def test_npy_with_a_csv(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.eye(3))
    assert EmbeddingTable.load(tmp_path / "v.npy").labels is None
    (tmp_path / "v.csv").write_text("path,label,color\na.png,luna,red\nb.png,io,blue\nc.png,io,red")
    found = EmbeddingTable.load(tmp_path / "v.npy")
    assert found.class_names == ("io", "luna")
    assert found.paths == ("a.png", "b.png", "c.png")
    assert found.attribute_names == ("color=blue", "color=red")
    assert found.attributes is not None
    assert found.attributes.tolist() == [[0, 1], [1, 0], [0, 1]]
    (tmp_path / "v.csv").write_text("label\n1\n")
    with pytest.raises(ValueError, match=r"v\.csv: expected 3 lines"):
        EmbeddingTable.load(tmp_path / "v.npy")
    (tmp_path / "v.csv").write_text("label\n1\n0,5\n7\n")
    with pytest.raises(ValueError, match="lines of as many cells"):
        EmbeddingTable.load(tmp_path / "v.npy")


def test_safetensors(tmp_path: Path) -> None:
    save_file(
        {"features": np.eye(2, dtype=np.float32), "labels": np.array([4, 0])},
        tmp_path / "a.safetensors",
    )
    found = EmbeddingTable.load(tmp_path / "a.safetensors")
    assert found.labels is not None
    assert found.labels.tolist() == [4, 0]
    save_tensors({"vectors": torch.eye(2, dtype=torch.bfloat16)}, tmp_path / "b.safetensors")
    assert EmbeddingTable.load(tmp_path / "b.safetensors").vectors.tolist() == [[1, 0], [0, 1]]
    (tmp_path / "c.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"expected a readable \.safetensors file"):
        EmbeddingTable.load(tmp_path / "c.safetensors")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is an extra")
def test_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {"vectors": [[1.0, 0.0], [0.0, 1.0]], "label": ["b", "a"], "size": [0.5, 1.0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    found = EmbeddingTable.load(tmp_path / "a.parquet")
    assert found.vectors.tolist() == [[1, 0], [0, 1]]
    assert found.class_names == ("a", "b")
    assert found.attribute_names == ("size",)
    (tmp_path / "b.parquet").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"expected a readable \.parquet file"):
        EmbeddingTable.load(tmp_path / "b.parquet")
    for rows in ([[1.0, 0.0], [1.0]], [[1.0, 0.0], None]):
        pyarrow.parquet.write_table(pyarrow.table({"vectors": rows}), tmp_path / "c.parquet")
        with pytest.raises(ValueError, match=r"column 'vectors': expected lists of one length"):
            EmbeddingTable.load(tmp_path / "c.parquet")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is there")
def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"pip install 'kinspace\[parquet\]'"):
        EmbeddingTable.load(tmp_path / "a.parquet")


def test_other_endings_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"got '\.npzz'; did you mean '\.npz'\?"):
        EmbeddingTable.load(tmp_path / "a.npzz")
    with pytest.raises(ValueError, match="got nothing there"):
        EmbeddingTable.load(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"a\.npz: "):
        EmbeddingTable.load(tmp_path / "a.npz")
    words = np.frombuffer(json.dumps({"format": 99}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "b.npz", vectors=np.eye(2), table=words)
    with pytest.raises(ValueError, match="expected an embedding table of format 1, got 99"):
        EmbeddingTable.load(tmp_path / "b.npz")


def test_other_formats_come_back_too(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    kept = EmbeddingTable(
        np.arange(6.0, dtype=np.float32).reshape(3, 2),
        [1, 0, 1],
        ids=("x", "y, z", "w"),
        paths=("/a/x.jpg", "", "/a/w.jpg"),
        attributes=[[0.5], [1.0], [0.0]],
        attribute_names=("size",),
        class_names=("io", "luna"),
    )
    for name in ("t.npy", "t.parquet"):
        kept.save(tmp_path / name)
        assert_same(EmbeddingTable.load(tmp_path / name), kept)


def test_the_projector_of_tensorboard_has_a_line_for_each_vector(tmp_path: Path) -> None:
    table = EmbeddingTable([[0.5, 1.0], [2.0, 3.0]], [0, 1], class_names=("io", "luna"))
    table.save(tmp_path / "moths.tsv")
    assert (tmp_path / "moths.tsv").read_text() == "0.5\t1\n2\t3\n"
    metadata = (tmp_path / "moths-metadata.tsv").read_text()
    assert metadata == "id\tlabel\n0\tio\n1\tluna\n"


def test_an_ending_of_no_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"t.xlsx: expected a file ending in '.npz', '.npy'"):
        EmbeddingTable(np.eye(2)).save(tmp_path / "t.xlsx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:No uuidRepresentation:DeprecationWarning")  # of mongoengine
def test_fiftyone_gets_vectors_classes_ids_and_attributes() -> None:
    fiftyone = pytest.importorskip("fiftyone", reason="pip install 'kinspace[fiftyone]'")
    try:  # its own database comes with the package where it could be fetched
        fiftyone.list_datasets()
    except fiftyone.core.config.FiftyOneConfigError:
        pytest.skip("FiftyOne finds no MongoDB: FIFTYONE_DATABASE_URI names one")
    made = table().to_fiftyone()
    rows = {sample["kinspace_id"]: sample for sample in made}
    assert list(rows) == ["a", "b", "ü"]
    np.testing.assert_array_equal(rows["b"]["embedding"], [2, 3])
    assert rows["b"].filepath.endswith("x/2.png")
    assert rows["b"]["ground_truth"].label == "io"
    assert rows["a"]["attributes"] == {"spots": 1, "size": 0.5}
    assert len(made.match(fiftyone.ViewField("attributes.size") > 0.7)) == 1
    made.delete()
