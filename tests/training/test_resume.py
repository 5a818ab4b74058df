"""A run that was killed, or stopped, and goes on: the same bits as one that was never."""

import resource
import signal
import sys
from pathlib import Path

import pytest
import torch

from kinspace.run import open_run
from kinspace.training.run_folder import read_checkpoint
from training_commands import (
    QUICK,
    assert_same_run,
    killed_after,
    rows,
    run,
    run_here,
    stopped_here,
)

# momentum, learned targets, an average of the weights, dropout: all that a checkpoint has to hold
DENSITY = [
    "--method", "density", "--steps", "40", "--save-every", "9", "--log-every", "1",
    "--set", "optimizer.ema=0.9", "--set", "model.dropout=0.2", *QUICK,
]  # fmt: skip
# a cluster index, its losses, and a warm start before it
MAGNET = [
    "--method", "magnet", "--steps", "40", "--save-every", "7", "--log-every", "1",
    "--set", "sampler.clusters=3", "--set", "index.clusters=2", "--set", "index.refresh=15",
    "--set", "warm_start.steps=12", *QUICK,
]  # fmt: skip
# a transformer with LoRA, and a rate for each of its layers
VIT = "{img_size=32, patch_size=8, depth=2, embed_dim=24, num_heads=2}"
LORA = [
    "--method", "contrastive", "--steps", "40", "--save-every", "7", "--log-every", "1", *QUICK,
    "--backbone", "timm:vit_tiny_patch16_224", "--set", f"model.options={VIT}",
    "--set", "model.pretrained=false", "--set", "model.lora=2", "--set", "optimizer.ema=0.9",
    "--set", "optimizer.layer_decay=0.7", "--set", "validation.fraction=0",
]  # fmt: skip


def finished(folder: Path, *arguments: str) -> Path:
    done = run_here(*arguments, "--out", str(folder))
    assert done.exit_code == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("method", "after"),
    [
        pytest.param(DENSITY, 14, id="density"),
        pytest.param(MAGNET, 5, id="magnet, in its warm start", marks=pytest.mark.slow),
        pytest.param(MAGNET, 37, id="magnet", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_to_the_same_bits(
    method: list[str], after: int, photos: str, tmp_path: Path
) -> None:
    whole = finished(tmp_path / "whole", photos, *method)
    killed = tmp_path / "killed"
    killed_after(after, killed, signal.SIGKILL, photos, *method)
    assert not (killed / "results.json").exists()
    done = run_here("--resume", str(killed))
    assert done.exit_code == 0, done.stderr
    assert_same_run(whole, killed)


@pytest.mark.slow
def test_ctrl_c_in_a_process_of_its_own_saves_too(photos: str, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    said = killed_after(14, stopped, signal.SIGINT, photos, *DENSITY)
    assert f"resume with: kinspace train --resume {stopped}" in said
    done = run("--resume", str(stopped))
    assert done.returncode == 0, done.stderr
    assert_same_run(finished(tmp_path / "whole", photos, *DENSITY), stopped)


def test_ctrl_c_saves_and_says_how_to_go_on(photos: str, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    told = stopped_here(14, stopped, photos, *DENSITY)
    assert told.exit_code == 130, told.stderr
    assert f"resume with: kinspace train --resume {stopped}" in told.stderr
    last = max(row["step"] for row in rows(stopped))
    done = run_here("--resume", str(stopped))
    assert done.exit_code == 0, done.stderr
    assert f"resuming at step {last} of 40" in done.stderr  # nothing is done twice
    assert_same_run(finished(tmp_path / "whole", photos, *DENSITY), stopped)


def test_lora_goes_on_to_the_same_bits_and_is_loaded_without_peft(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = tmp_path / "stopped"
    assert stopped_here(14, stopped, photos, *LORA).exit_code == 130
    done = run_here("--resume", str(stopped))
    assert done.exit_code == 0, done.stderr
    assert_same_run(finished(tmp_path / "whole", photos, *LORA), stopped)
    found = open_run(stopped)
    trained = read_checkpoint(stopped / "model.safetensors")[0]
    start = read_checkpoint(stopped / "start.safetensors")[0]
    moved = {name for name, value in trained.items() if not torch.equal(value, start[name])}
    assert moved == {name for name in trained if ".lora_" in name or name.startswith("head.")}
    monkeypatch.setitem(sys.modules, "peft", None)
    written = found.embeddings("test")
    again = found.model("cpu").encode([str(path) for path in written.paths[:4]])
    assert again == pytest.approx(written.vectors[:4], abs=1e-4)


def test_a_full_disk_is_an_error_that_harms_nothing(photos: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = [photos, "--method", "contrastive", "--steps", "30", "--save-every", "10"]
    arguments += ["--log-every", "1", *QUICK, "--cache", "none", "--workers", "0"]
    assert stopped_here(14, folder, *arguments).exit_code == 130
    before = (folder / "last.safetensors").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # a file that grows beyond this fails, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) - 1000, limits[1]))
    try:
        failed = run_here("--resume", str(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.exit_code == 1, failed.stderr
    assert f"cannot write {folder / 'last.safetensors'}: File too large" in failed.stderr
    assert "the file before it is unharmed" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert (folder / "last.safetensors").read_bytes() == before
    assert not list(folder.glob(".*.part"))
    done = run_here("--resume", str(folder))
    assert done.exit_code == 0, done.stderr


def test_no_room_for_a_checkpoint_says_so_and_keeps_the_one_before(tmp_path: Path) -> None:
    from kinspace._core.atomic_files import write_atomically
    from kinspace.training.run_folder import read_checkpoint

    path = tmp_path / "last"
    write_atomically(path, lambda part: part.write_bytes(b"old"))

    def fails(part: Path) -> None:
        part.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"cannot write .*last: No space left.*unharmed"):
        write_atomically(path, fails)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["last"]
    with pytest.raises(ValueError, match="expected a checkpoint"):
        read_checkpoint(path)


def test_a_run_of_another_recipe_is_not_gone_on_with(tmp_path: Path) -> None:
    import kinspace
    from kinspace.run import open_run

    folder = tmp_path / "run"
    quick = {"model.options": {"width": 4, "size": 16}, "transform.size": 16}
    quick |= {"transform.resize": 18, "schedule.steps": 2, "model.dim": 8}
    options = {"device": "cpu", "quiet": True, "workers": 1}
    kinspace.train("digits", method="contrastive", changes=quick, out=folder, **options)
    about = (folder / "run.json").read_bytes()
    with pytest.raises(ValueError, match="has a run already"):
        kinspace.train("digits", method="contrastive", changes=quick, out=folder, **options)
    other = quick | {"loss.margin": 0.123}
    with pytest.raises(ValueError, match=r"another recipe: recipe.loss.margin is .* 0.123 here"):
        kinspace.train(
            "digits", method="contrastive", changes=other, out=folder, resume=True, **options
        )
    assert (folder / "run.json").read_bytes() == about
    assert open_run(folder).finished
    with pytest.raises(ValueError, match="no such folder"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"without run\.json"):
        open_run(tmp_path / "empty")
