"""kinspace tune."""

from pathlib import Path

from typer.testing import CliRunner

from kinspace.cli import app
from kinspace.recipes import read_recipe, with_changes
from training_commands import QUICK


def test_prints_the_trials_and_the_best_recipe(photos: str, tmp_path: Path) -> None:
    out = tmp_path / "search"
    arguments = ["tune", photos, "--method", "contrastive", "--trials", "2", "--steps", "3"]
    arguments += ["--range", "optimizer.lr=1e-4:1e-2:log", *QUICK, "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    assert "trial 2/2: optimizer.lr 0.00" in done.stderr
    assert "Recall@1" in done.stdout
    assert f"kinspace train DATA --method {out / 'best.toml'}" in done.stderr
    best = read_recipe(str(out / "best.toml"))
    assert best.schedule.steps == 3
    assert best == with_changes(best, {})
    wrong = CliRunner().invoke(app, [*arguments, "--range", "optimizer.lr=3"])
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("--range: expected KEY=LOW:HIGH")
