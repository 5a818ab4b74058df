"""kinspace export."""

from pathlib import Path

import torch

from bundles import bare_run
from command_line import run


def test_writes_an_onnx_file(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    for rest in ([], ["--onnx", tmp_path / "m.onnx"]):  # in the run folder, or where it is wanted
        assert "of PyTorch on 32 pictures" in run("export", bare, *rest)
    for path in (bare / "model.onnx", tmp_path / "m.onnx"):
        assert path.stat().st_size > 10_000


def test_invalid_input_is_an_error_in_a_line(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    output = run("export", bare, "--onnx", tmp_path / "m.onnx", "--data", "nowhere", code=2)
    assert "cannot open" in output
    assert "format: expected one of 'onnx', 'program'" in run(
        "export", bare, "--format", "tflite", code=2
    )


def test_writes_a_program_of_pytorch(tmp_path: Path) -> None:
    bare = bare_run(tmp_path)
    said = run("export", bare, "--format", "program")
    assert f"{bare / 'model.pt2'}: within" in said
    program = torch.export.load(bare / "model.pt2").module()
    vectors = program(torch.randn(3, 3, 16, 16))
    assert vectors.shape == (3, 8)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
