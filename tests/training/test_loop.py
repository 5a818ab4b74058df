"""A step that is not finite ends the run: its batch named, the last good checkpoint kept."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kinspace.recipes import recipe_names
from kinspace.training.run_folder import read_checkpoint
from small_trainings import Net, net, trained_net

AT = 5


class Nan(Net):
    """NaN in step 5."""

    def odd(self, y: Tensor) -> Tensor:
        return y * torch.nan if self.passes == AT else y


class Explodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.inf


class Infinite(Net):
    """A finite loss in step 5, and a gradient that is not."""

    def odd(self, y: Tensor) -> Tensor:
        return Explodes.apply(y) if self.passes == AT else y  # type: ignore[no-any-return]


def assert_good(path: Path, step: int) -> None:
    tensors, rest = read_checkpoint(path)
    assert rest["step"] == step
    # the index keeps NaN for samples it has no loss of yet
    kept = [value for name, value in tensors.items() if not name.startswith("index.")]
    assert all(value.isfinite().all() for value in kept)


@pytest.mark.parametrize("method", recipe_names("defaults"))
def test_every_method_stops_at_the_step_and_names_its_batch(method: str, tmp_path: Path) -> None:
    # rows are rare: other steps, and other errors, come before the loss is read
    options = {"log_every": 100, "save_every": 2, "changes": {"schedule.steps": 30}}
    with pytest.raises(
        ValueError, match="not finite: the loss of step 5, on the batch of"
    ) as error:
        trained_net(tmp_path / "run", net(Nan), method, **options)
    last = tmp_path / "run" / "last.safetensors"
    assert f"the last good checkpoint is {last}" in str(error.value)
    assert re.search(r"batch of sample \d+, .* and \d+ more; the last", str(error.value))
    assert_good(last, 4)
    assert not (tmp_path / "run" / "results.json").exists()


def test_the_run_goes_on_from_the_checkpoint_with_a_model_that_is_well(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not finite"):
        trained_net(tmp_path, net(Nan), save_every=1)
    run = trained_net(tmp_path, net(), save_every=1, resume=True)
    assert run.finished
    whole = trained_net(tmp_path / "whole", net(), save_every=1)
    keys = ("step", "loss")
    assert [[row.get(k) for k in keys] for row in run.metrics] == [
        [row.get(k) for k in keys] for row in whole.metrics
    ]


@pytest.mark.parametrize("save", [1, 5])
def test_weights_spoilt_by_a_finite_loss_are_not_saved(save: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not finite: the weights after step 5, on the batch"):
        trained_net(tmp_path, net(Infinite), save_every=save, changes={"validation.every": 5})
    if save == 1:
        assert_good(tmp_path / "last.safetensors", 4)
    else:
        assert not (tmp_path / "last.safetensors").exists()
    best, _ = read_checkpoint(tmp_path / "model.safetensors")
    assert all(value.isfinite().all() for value in best.values())


def test_before_the_first_checkpoint_none_is_promised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no checkpoint"):
        trained_net(tmp_path, net(Nan))
