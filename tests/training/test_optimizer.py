"""Groups and their rates, schedules, clipping, and the average of the weights."""

import copy
import math

import pytest
import torch
from torch import nn

from kinspace.models import Embedder, layer_scales, make_embedder, parameter_groups
from kinspace.training.optimizer import (
    clip_gradients,
    make_optimizer,
    schedule_factor,
    set_learning_rates,
)
from kinspace.training.state import WeightAverage

MULTIPLIERS = {"head": 10.0, "loss": 100.0, "targets": 5.0}


def embedder() -> Embedder:
    backbone = {"name": "small", "options": {"width": 4, "size": 16}}
    return make_embedder({"backbone": backbone, "head": {"dim": 3}})


def optimizer(name: str = "adamw", weight_decay: float = 0.1) -> torch.optim.Optimizer:
    proxies, targets = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(4))
    parts = {**parameter_groups(embedder()), "loss": [proxies], "targets": [targets]}
    return make_optimizer(parts, MULTIPLIERS, name=name, lr=0.01, weight_decay=weight_decay)


def test_every_parameter_is_in_one_group_with_the_rate_of_its_role() -> None:
    model = embedder()
    made = make_optimizer(parameter_groups(model), MULTIPLIERS, name="sgd", lr=0.01)
    found = [id(p) for group in made.param_groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    of_head = {id(p) for p in model.head.parameters()}
    for group in made.param_groups:
        rate = 0.1 if group["role"] == "head" else 0.01
        assert group["lr"] == pytest.approx(rate)
        assert all((id(p) in of_head) == (group["role"] == "head") for p in group["params"])
    rates = {group["role"]: group["lr"] for group in optimizer().param_groups}
    assert rates == pytest.approx({"backbone": 0.01, "head": 0.1, "loss": 1.0, "targets": 0.05})


def test_layers_have_rates_of_their_own_and_the_schedule_keeps_their_ratio() -> None:
    model = embedder()
    scales = layer_scales(model, 0.5)
    made = make_optimizer(parameter_groups(model), MULTIPLIERS, name="sgd", lr=0.01, scales=scales)
    set_learning_rates(made, 0.1)
    rates = {p: group["lr"] for group in made.param_groups for p in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    for parameter in model.backbone.parameters():
        assert rates[parameter] == pytest.approx(0.001 * scales[parameter])
    assert all(rates[p] == pytest.approx(0.01) for p in model.head.parameters())
    for group in made.param_groups:
        assert group["weight_decay"] == 0  # none was set
    assert len(made.param_groups) == 6  # two layers and the head, matrices and the rest


def test_only_matrices_of_the_model_are_decayed() -> None:
    for group in optimizer().param_groups:
        decays = {p.ndim > 1 and group["role"] in ("backbone", "head") for p in group["params"]}
        assert decays == {group["weight_decay"] == 0.1}


def test_a_frozen_role_does_not_move() -> None:
    made = optimizer("sgd", weight_decay=0.0)
    set_learning_rates(made, 0.5, frozen=("backbone",))
    before = [[p.clone() for p in group["params"]] for group in made.param_groups]
    for group in made.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    made.step()
    for group, old in zip(made.param_groups, before, strict=True):
        step = 0.0 if group["role"] == "backbone" else 0.5 * group["base"]
        assert group["lr"] == step
        for parameter, value in zip(group["params"], old, strict=True):
            torch.testing.assert_close(value - parameter, torch.full_like(value, step))


def test_schedules_are_their_formulas() -> None:
    def at(step: int, kind: str, **options: object) -> float:
        return schedule_factor(step, kind=kind, steps=100, **options)  # type: ignore[arg-type]

    for step in range(100):
        assert at(step, "constant") == 1
        assert at(step, "cosine") == pytest.approx((1 + math.cos(math.pi * step / 100)) / 2)
        assert at(step, "annealed", factor=0.9, every=7) == pytest.approx(0.9 ** (step / 7))
        passed = (step >= 30) + (step >= 60)
        assert at(step, "step", factor=0.5, milestones=(30, 60)) == 0.5**passed
        warm = min(1, (step + 1) / 20)
        assert at(step, "constant", warm_up=20) == pytest.approx(warm)
    assert at(100, "cosine") == 0
    with pytest.raises(ValueError, match=r"schedule.kind: expected one of .*, got 'linear'"):
        at(0, "linear")


def test_clipping_limits_entries_first_and_then_the_length() -> None:
    one, other = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    one.grad, other.grad = torch.tensor([30.0, -0.3]), torch.tensor([0.0, 40.0])
    clip_gradients([one, other], value=4.0)
    assert one.grad.tolist() == pytest.approx([4.0, -0.3])
    assert other.grad.tolist() == [0.0, 4.0]
    one.grad, other.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    clip_gradients([one, other], norm=1.0)
    assert one.grad.tolist() + other.grad.tolist() == pytest.approx([0.6, 0.0, 0.0, 0.8])
    clip_gradients([one, other], norm=10.0)  # shorter already
    assert one.grad[0] == pytest.approx(0.6)


def test_the_average_follows_the_weights_by_its_formula() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = WeightAverage(model, 0.5)
    expected = copy.deepcopy(model[0].weight.detach().double())
    for step in range(20):
        with torch.no_grad():
            model[0].weight.add_(torch.randn(2, 2))
        model(torch.randn(4, 2))
        average.update(model, step=step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model[0].weight.detach().double()
    followed = average.model.get_submodule("0").weight.detach().double()
    torch.testing.assert_close(followed, expected, rtol=1e-5, atol=1e-6)
    assert average.model.get_submodule("1").num_batches_tracked == 20
    assert not any(p.requires_grad for p in average.model.parameters())


def test_an_unknown_optimizer_is_named() -> None:
    with pytest.raises(ValueError, match=r"optimizer.name: expected one of .*, got 'lion'"):
        optimizer("lion")
