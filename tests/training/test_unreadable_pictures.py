"""Files that are no pictures: all named before the first step, or left out and written down."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kinspace.cli import app
from kinspace.data import UnreadablePictures
from odd_pictures import write_bad, write_clean
from small_trainings import trained
from training_commands import QUICK


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    write_clean(tmp_path / "photos", classes=8, each=4)
    return tmp_path / "photos"


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_all_of_them_stop_the_run_before_it_begins(cache: str, mixed: Path, tmp_path: Path) -> None:
    bad = write_bad(mixed / "kind 1")
    with pytest.raises(UnreadablePictures) as error:
        trained(tmp_path / "run", str(mixed), cache=cache)
    said = str(error.value)
    assert f"{len(bad)} of {32 + len(bad)} pictures cannot be read" in said
    for name, reason in bad.items():
        assert any(name in line and reason in line for line in said.splitlines()), name
    assert "--skip-bad" in said
    assert not (tmp_path / "run").exists()


def test_left_out_they_are_said_and_written_down(mixed: Path, tmp_path: Path) -> None:
    bad = write_bad(mixed / "kind 1")
    arguments = ["train", str(mixed), "--method", "contrastive", "--steps", "2", *QUICK]
    arguments += ["--set", "sampler.samples=2", "--out", str(tmp_path / "run")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "truncated.jpg" in refused.stderr
    assert not (tmp_path / "run").exists()
    done = CliRunner().invoke(app, [*arguments, "--skip-bad"])
    assert done.exit_code == 0, done.stderr
    assert f"left out, unreadable: {len(bad)} pictures (run.json lists them)" in done.stderr
    from kinspace.run import open_run

    about = open_run(tmp_path / "run").about
    assert {Path(name).name for name, _ in about["skipped"]} == set(bad)
    assert all(bad[Path(name).name] in reason for name, reason in about["skipped"])
    assert sum(about["pictures"].values()) == 32
    # going on, it leaves out the same
    (tmp_path / "run" / "results.json").unlink()
    again = CliRunner().invoke(app, ["train", "--resume", str(tmp_path / "run")])
    assert again.exit_code == 0, again.stderr
