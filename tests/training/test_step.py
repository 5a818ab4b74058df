"""The gradient of a step is that of the whole batch, however it is cut."""

import copy

import pytest
import torch
from torch import Tensor, nn

from kinspace.losses import LOSSES
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.training.step import Precision, compute_gradients, frozen_statistics

CPU = torch.device("cpu")
CLASSES, DIM = 4, 6


class Net(nn.Module):
    """Convolution, dropout, linear: no batch norm, which sees the micro-batch."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(4 * 36, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.dropout(self.conv(x).relu().flatten(1)))  # type: ignore[no-any-return]


def batch(count: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64)
    return images, torch.arange(count) % CLASSES, torch.arange(count)


def objective(name: str) -> Objective:
    torch.manual_seed(1)
    loss = make_loss(name, {}, num_classes=CLASSES, dim=DIM)
    density = make_regularizer("density", {}, num_classes=CLASSES)
    return Objective(loss, [Term("density", density, 2.0)]).double()


def gradients(
    name: str, micro_batch: int | None, *, dropout: float = 0.0
) -> tuple[float, dict[str, Tensor]]:
    torch.manual_seed(0)
    model, aim = Net(dropout).double(), objective(name)
    precision = Precision("float32", CPU)
    result = compute_gradients(
        model, aim, batch(), precision=precision, micro_batch=micro_batch, seed=(5, 7)
    )
    both = {**dict(model.named_parameters()), **dict(aim.named_parameters())}
    found = {key: p.grad for key, p in both.items() if p.grad is not None}
    return float(result.total), found


@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_have_the_gradient_of_the_whole_batch(name: str) -> None:
    value, whole = gradients(name, None)
    for micro_batch in (1, 3, 8):
        same_value, parts = gradients(name, micro_batch)
        assert same_value == pytest.approx(value, rel=1e-6)
        assert parts.keys() == whole.keys()
        for key, expected in whole.items():
            torch.testing.assert_close(parts[key], expected, rtol=1e-4, atol=1e-7)


def test_the_gradient_is_that_of_plain_autograd() -> None:
    _, found = gradients("contrastive", 4)
    torch.manual_seed(0)
    model, aim = Net().double(), objective("contrastive")
    images, labels, _ = batch()
    aim(model(images).float(), labels).total.backward()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(found[key], parameter.grad, rtol=1e-4, atol=1e-7)


def test_dropout_draws_the_same_in_both_passes() -> None:
    torch.manual_seed(0)
    seen = []
    model = Net(0.5).double()
    model.dropout.register_forward_hook(lambda _, __, out: seen.append(out.detach() == 0))
    precision = Precision("float32", CPU)
    compute_gradients(
        model, objective("triplet"), batch(), precision=precision, micro_batch=8, seed=(0, 1)
    )
    first, second, first_again, second_again = seen
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)
    assert not torch.equal(first, second)


def test_running_statistics_move_once_a_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, momentum=0.5), nn.Linear(64, DIM))
    twin = copy.deepcopy(model)
    images = batch()[0].float()
    precision = Precision("float32", CPU)
    aim = objective("contrastive").float()
    compute_gradients(
        model, aim, (images, *batch()[1:]), precision=precision, micro_batch=8, seed=(0, 0)
    )
    for part in images.split(8):
        twin(part)
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
    torch.testing.assert_close(model[1].running_var, twin[1].running_var)
    assert model[1].num_batches_tracked == 2


def test_still_statistics_are_as_before_after_an_error() -> None:
    norm = nn.BatchNorm1d(2)
    with pytest.raises(RuntimeError, match="stop"), frozen_statistics(norm):
        raise RuntimeError("stop")
    assert norm.momentum == 0.1
    assert norm.num_batches_tracked == 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_near_the_full_one(precision: str) -> None:
    torch.manual_seed(0)
    images, labels, indices = batch()
    found = {}
    for name in ("float32", precision):
        torch.manual_seed(0)
        model, aim = Net(), objective("contrastive").float()
        one = Precision(name, CPU)
        result = compute_gradients(model, aim, (images.float(), labels, indices), precision=one)
        assert result.embeddings.dtype == torch.float32
        assert model.linear.weight.grad is not None
        found[name] = model.linear.weight.grad / one.scale
    scale = found["float32"].abs().max()
    assert ((found[precision] - found["float32"]).abs().max() / scale) < 0.05


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(ValueError, match="got 'half'"):
        Precision("half", CPU)
