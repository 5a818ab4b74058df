"""kinspace embed."""

from pathlib import Path

from bundles import bare_run
from command_line import run
from kinspace.embeddings import EmbeddingTable


def test_writes_a_table(tmp_path: Path) -> None:
    out = tmp_path / "table.npz"
    said = run("embed", bare_run(tmp_path), "digits", "-o", out, "--shard", "1000")
    assert "1,797 vectors of 8 numbers" in said
    assert len(EmbeddingTable.load(out)) == 1797


def test_invalid_input_is_an_error_in_a_line(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    output = run("embed", bare, "digit", "-o", tmp_path / "t.npz", code=2)
    assert "did you mean 'digits'?" in output
    output = run("embed", bare, "digits", "-o", tmp_path / "t.txt", code=2)
    assert "expected a file ending in '.npz'" in output
