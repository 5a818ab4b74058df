"""Ctrl-C in the middle of any step, and the run that goes on: the same bits, in this process."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kinspace.data import TransformSettings
from kinspace.data.cache import PictureCache
from kinspace.data.dataloader import CachedLoader
from kinspace.losses import Contrastive
from kinspace.objective import Objective
from kinspace.run import open_run
from kinspace.samplers import random
from kinspace.training.log import MetricsFile
from kinspace.training.loop import Stopped
from kinspace.training.run_folder import read_checkpoint, read_metrics, write_checkpoint
from kinspace.training.state import State, from_checkpoint, to_checkpoint
from kinspace.training.step import Precision
from small_trainings import Net, net, trained_net
from training_commands import assert_same_run

MAGNET: dict[str, Any] = {"sampler.clusters": 3, "sampler.samples": 10, "index.clusters": 2}


class Interrupted(Net):
    """Ctrl-C in the n-th training pass."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def odd(self, y: Tensor) -> Tensor:
        if self.passes == self.at:
            signal.raise_signal(signal.SIGINT)
        return y


@pytest.mark.parametrize("method", ["contrastive", "magnet", "density"])
def test_a_run_goes_on_from_any_step_to_the_same_bits(method: str, tmp_path: Path) -> None:
    changes = {"schedule.steps": 9, "validation.every": 4, "optimizer.ema": 0.9}
    changes |= MAGNET if method == "magnet" else {"sampler.classes": 5, "sampler.samples": 8}
    options = {"changes": changes, "save_every": 3}
    whole = trained_net(tmp_path / "whole", net(), method, **options)
    for step in (1, 2, 3, 4, 8):  # an epoch has 2 or 3 steps
        folder = tmp_path / str(step)
        with pytest.raises(Stopped):
            trained_net(folder, net(Interrupted, at=step), method, **options)
        assert not open_run(folder).finished
        trained_net(folder, net(), method, resume=True, **options)
        assert_same_run(whole.folder, folder)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_a_run_goes_on_on_a_gpu(optimizer: str, tmp_path: Path) -> None:
    changes = {"schedule.steps": 9, "sampler.classes": 5, "sampler.samples": 8}
    changes |= {"optimizer.name": optimizer}
    options = {"changes": changes, "save_every": 3, "device": "cuda"}
    whole = trained_net(tmp_path / "whole", net(), **options)
    folder = tmp_path / "stopped"
    with pytest.raises(Stopped):
        trained_net(folder, net(Interrupted, at=5), **options)
    gone_on = trained_net(folder, net(), resume=True, **options)
    ends = [read_checkpoint(run.folder / "last.safetensors")[0] for run in (whole, gone_on)]
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_moments_come_back_in_the_memory_order_of_the_weights(tmp_path: Path) -> None:
    """A fused optimizer on a GPU refuses others: channels last, and the file is not."""
    labels = torch.arange(8) % 4

    def made() -> State:
        model: nn.Module = nn.Conv2d(3, 4, 3)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        sampler = random(labels, batch_size=4)
        cache = PictureCache(torch.zeros(8, 3, 8, 8, dtype=torch.uint8), labels, "squash")
        loader = CachedLoader(cache, sampler, TransformSettings(size=8, resize=8))
        optimizer = torch.optim.AdamW(model.parameters())
        precision = Precision("float32", torch.device("cpu"))
        return State(model, Objective(Contrastive()), optimizer, precision, sampler, loader)

    before, after = made(), made()
    before.model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    before.optimizer.step()
    write_checkpoint(tmp_path / "last.safetensors", *to_checkpoint(before))
    from_checkpoint(
        after, *read_checkpoint(tmp_path / "last.safetensors"), device=torch.device("cpu")
    )
    pairs = zip(before.model.parameters(), after.model.parameters(), strict=True)
    for parameter, restored in pairs:
        for name in ("exp_avg", "exp_avg_sq"):
            moment = after.optimizer.state[restored][name]
            assert moment.stride() == restored.stride()
            assert torch.equal(moment, before.optimizer.state[parameter][name])


def test_stopped_between_two_rows_the_losses_are_in_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        trained_net(tmp_path, net(Interrupted, at=3), log_every=100)
    assert [row["step"] for row in open_run(tmp_path).metrics if "loss" in row] == [1]
    _, rest = read_checkpoint(tmp_path / "last.safetensors")
    assert [step for step, _, _ in rest["window"]] == [2, 3]


def test_the_warm_start_is_gone_on_with(tmp_path: Path) -> None:
    options = {"changes": {"schedule.steps": 4, "warm_start.steps": 6}, "save_every": 3}
    whole = trained_net(tmp_path / "whole", net(), **options)
    assert [(row["phase"], row["step"]) for row in whole.metrics] == [
        *((0, step) for step in range(1, 7)),
        *((1, step) for step in range(5)),
    ]
    for step in (2, 6, 7):
        folder = tmp_path / str(step)
        with pytest.raises(Stopped):
            trained_net(folder, net(Interrupted, at=step), **options)
        trained_net(folder, net(), resume=True, **options)
        assert_same_run(whole.folder, folder)


def test_rows_of_undone_steps_and_a_torn_line_are_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"phase": phase, "step": step} for phase in (0, 1) for step in (1, 2, 3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"phase": 1, "st')
    assert read_metrics(path) == rows
    file = MetricsFile(path, after=(1, 2))
    file.write({"phase": 1, "step": 3, "loss": 0.5})
    file.close()
    assert read_metrics(path) == [*rows[:5], {"phase": 1, "step": 3, "loss": 0.5}]
    MetricsFile(path, after=(0, 3)).close()
    assert read_metrics(path) == rows[:3]
    MetricsFile(path).close()
    assert path.read_text() == ""
    assert read_metrics(tmp_path / "nowhere") == []
