"""kinspace export."""

from pathlib import Path

from bundles import bare_run
from command_line import run


def test_writes_an_onnx_file(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    for file in ([], [tmp_path / "m.onnx"]):  # in the run folder, or where it is wanted
        assert "of PyTorch on 32 pictures" in run("export", bare, "--onnx", *file)
    for path in (bare / "model.onnx", tmp_path / "m.onnx"):
        assert path.stat().st_size > 10_000


def test_invalid_input_is_an_error_in_a_line(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    output = run("export", bare, "--onnx", tmp_path / "m.onnx", "--data", "nowhere", code=2)
    assert "cannot open" in output
    assert "--onnx: expected" in run("export", bare, code=2)
