"""kinspace reproduce; the runs themselves are in tests/reproduce."""

from pathlib import Path

from typer.testing import CliRunner

from kinspace.cli import app


def test_lists_experiments_and_refuses_invalid_input(tmp_path: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["reproduce"])
    assert listed.exit_code == 0
    assert "almn" in listed.stdout
    assert "cub200" in listed.stdout
    for words, said in (
        (["almm"], "did you mean 'almn'?"),
        (["almn"], "which is not built in: kinspace reproduce almn cub200:FOLDER"),
        (["almn", "moths", "--only", "beta9"], "--only: unknown row 'beta9'"),
        (["almn", "moths", "--set", "loss.bta=1"], "did you mean 'beta'?"),
        (["--page", str(tmp_path / "p.md"), "--results", str(tmp_path)], "got none; make some"),
    ):
        done = runner.invoke(app, ["reproduce", *words])
        assert done.exit_code == 2, done.stdout
        assert said in done.stderr
