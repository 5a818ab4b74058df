"""kinspace index."""

import json
from pathlib import Path

import pytest

from bundles import bare_run, run_with_gallery
from command_line import run
from kinspace.data import digits_dataset
from kinspace.search import open_gallery


def test_prints_the_recall_of_an_approximate_search(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    assert "has a gallery; add pictures to it" in run("index", folder, "--backend", "faiss", code=2)
    said = run("index", folder, "--replace", "--backend", "faiss", "--kind", "hnsw")
    assert "searched by faiss" in said
    assert "recall of the 10 exact neighbors" in said


def test_builds_the_index_anew_from_what_the_gallery_has(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    run("remove", folder, "digit 7")
    said = run("index", folder, "--rebuild", "--backend", "faiss")
    assert "a gallery of 1,796 pictures, searched by faiss" in said
    next(folder.glob("search-faiss-*")).write_text("broken")
    assert "expected a saved index" in run("list", folder, code=2)
    assert "a gallery of 1,796 pictures, searched by faiss" in run("index", folder, "--rebuild")
    assert "expected without DATA" in run("index", folder, "digits", "--rebuild", code=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "hnsw"], "--kind: expected with --backend faiss only"),
        (
            ["--backend", "faiss", "--kind", "ivf_pq"],
            "at least 9,984 vectors in the first `add`, to train on, got 1,797",
        ),
        (["--backend", "faiss", "--kind", "flat"], "kind: expected one of"),
        (["--uri", "x.db"], "--uri: expected with --backend milvus only"),
        (["--name", "x"], "--name: expected with --backend milvus only"),
        (["--backend", "milvus", "--uri", "http://localhost:1"], "name: expected one, since"),
        (["--backend", "fais"], "unknown index 'fais'; did you mean 'faiss'?"),
    ],
    ids=" ".join,
)
def test_invalid_input_is_an_error_in_a_line(options: list[str], said: str, tmp_path: Path) -> None:
    output = run("index", bare_run(tmp_path), *options, code=2)
    assert said in output
    assert "Traceback" not in output


def test_another_order_and_precision_change_no_decision(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    picture = tmp_path / "one.png"
    digits_dataset().pictures.read(5).save(picture)
    before = json.loads(run("search", folder, str(picture), "-k", "30", "--json"))
    options = ["--backend", "milvus", "--precision", "int8", "--rerank", "k_reciprocal"]
    said = run("index", folder, "--rebuild", *options)
    assert "searched by milvus on int8 vectors, re-scored exactly, shown by k_reciprocal" in said
    after = json.loads(run("search", folder, str(picture), "-k", "30", "--json"))
    shown = [[one["id"] for one in found.pop("neighbors")] for found in (before, after)]
    assert shown[0] != shown[1]
    for name in ("similarity", "confidence"):  # computed in another order
        assert after.pop(name) == pytest.approx(before.pop(name), abs=1e-5)
    assert after == before
    said = run("index", folder, "--rebuild", "--backend", "milvus", "--precision", "binary", code=2)
    assert "milvus-lite has no binary vectors" in said


def test_an_index_in_milvus_is_built_anew_where_it_is(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    elsewhere = tmp_path / "elsewhere.db"
    options = ["--backend", "milvus", "--uri", str(elsewhere), "--name", "digits"]
    run("index", folder, "--rebuild", *options)
    assert "searched by milvus" in run("index", folder, "--rebuild")
    address = open_gallery(folder).address
    assert (folder / address["milvus"]).resolve() == elsewhere
    assert address["name"] == "digits"
    assert not (folder / "milvus.db").exists()
