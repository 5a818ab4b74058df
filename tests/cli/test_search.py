"""embed, index, search and export from the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bundles import bare_run, digits, run_with_gallery
from kinspace.cli import app
from kinspace.embeddings import EmbeddingTable


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    digits().pictures.read(20).save(tmp_path / "query.png")
    return tmp_path / "query.png"


def test_index_then_search(tmp_path: Path, picture: Path) -> None:
    folder = bare_run(tmp_path)
    said = run("index", folder, "--device", "cpu")
    assert "a gallery of 1,797 pictures, searched by exact" in said
    assert "pairs of 2 validation classes" in said
    assert "on the test classes" in said
    table = run("search", folder, picture, "-k", "3", "--device", "cpu")
    assert "digit 20" in table
    assert "1.000" in table
    assert "of the votes" in table or "unknown; of the classes" in table
    found = json.loads(run("search", folder, picture, "-k", "3", "--json"))
    assert found["neighbors"][0]["id"] == "digit 20"
    assert found["neighbors"][0]["similarity"] == pytest.approx(1, abs=1e-5)
    assert len(found["neighbors"]) == 3


def test_the_recall_of_an_approximate_search_is_shown(tmp_path: Path, picture: Path) -> None:
    folder = run_with_gallery(tmp_path)
    said = run("index", folder, "--backend", "faiss", "--kind", "hnsw")
    assert "searched by faiss" in said
    assert "recall of the 10 exact neighbors" in said
    found = json.loads(run("search", folder, picture, "--json"))
    assert found["neighbors"][0]["id"] == "digit 20"


def test_embed_writes_a_table(tmp_path: Path) -> None:
    out = tmp_path / "table.npz"
    said = run("embed", bare_run(tmp_path), "digits", "-o", out, "--shard", "1000")
    assert "1,797 vectors of 8 numbers" in said
    assert len(EmbeddingTable.load(out)) == 1797


def test_export_writes_onnx(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    for file in ([], [tmp_path / "m.onnx"]):  # in the run folder, or where it is wanted
        assert "of PyTorch on 32 pictures" in run("export", bare, "--onnx", *file)
    for path in (bare / "model.onnx", tmp_path / "m.onnx"):
        assert path.stat().st_size > 10_000


def test_errors_are_told_in_a_line(tmp_path: Path, picture: Path) -> None:
    bare = bare_run(tmp_path)
    for arguments, said in (
        (("search", tmp_path / "none", picture), "expected a run folder, got no such folder"),
        (("search", bare, picture), "make one with: kinspace index"),
        (("index", bare, "--kind", "hnsw"), "--kind: expected with --backend faiss only"),
        (
            ("index", bare, "--backend", "faiss", "--kind", "ivf_pq"),
            "at least 9,984 vectors in the first `add`, to learn from, got 1,797",
        ),
        (("index", bare, "--backend", "faiss", "--kind", "flat"), "kind: expected one of"),
        (("index", bare, "--uri", "x.db"), "--uri: expected with --backend milvus only"),
        (("index", bare, "--name", "x"), "--name: expected with --backend milvus only"),
        (
            ("index", bare, "--backend", "milvus", "--uri", "http://localhost:1"),
            "name: expected one of your own",
        ),
        (("index", bare, "--backend", "fais"), "unknown search 'fais'; did you mean 'faiss'?"),
        (("embed", bare, "digit", "-o", tmp_path / "t.npz"), "did you mean 'digits'?"),
        (("embed", bare, "digits", "-o", tmp_path / "t.txt"), "ending in .npz"),
        (("export", bare, "--onnx", tmp_path / "m.onnx", "--data", "nowhere"), "cannot open"),
        (("export", bare), "--onnx: expected"),
    ):
        output = run(*arguments, code=2)
        assert said in output, (arguments, output)
        assert "Traceback" not in output
    run("search", run_with_gallery(tmp_path), tmp_path / "no.png", code=2)
