"""What modules remember: saved, restored, moved, and left alone in evaluation."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from batches import NUM_CLASSES, varied_batch
from gradients import identical
from kinspace.losses import Margin
from kinspace.regularizers import HypersphericalEnergy, LogExpSpread, PowerSpread, UniformSpread
from modules import EVERY_MODULE, MODULES

DIM = 4

# What each module keeps; a module that is not here keeps nothing.
KEPT: dict[str, set[str]] = {
    "adversarial": {"hidden", "output"},
    "adacos": {"weight", "scale"},
    "almn": {"class_centers.centers", "class_centers.seen"},
    "arcface": {"weight"},
    "center": {"class_centers.centers", "class_centers.seen"},
    "cosface": {"weight"},
    "density": {"targets", "original"},
    "fixed_margin": {"class_centers.centers", "class_centers.seen"},
    "hierarchical_triplet": {"class_centers.centers", "class_centers.seen"},
    "hist": {"means", "log_variances", "hidden", "norm", "output"},
    "hyperspherical_energy": {"sample.rng._extra_state"},
    "log_exp_spread": {"sample.rng._extra_state"},
    "magnet": {"variance", "batches"},
    "margin": {"boundary", "rng._extra_state"},
    "ncm": {"class_centers.centers", "class_centers.seen"},
    "normalized_softmax": {"weight"},
    "pddm": {"pairwise", "joint"},
    "pfml": {"centers"},
    "power_spread": {"sample.rng._extra_state"},
    "proxy_anchor": {"proxies"},
    "proxy_nca": {"proxies"},
    "soft_triple": {"centers"},
    "softmax": {"weight", "bias"},
    "sphereface": {"weight"},
    "sub_center_arcface": {"centers"},
    "uniform_spread": {"sample.rng._extra_state"},
}

# Beside the modules of the registries, those whose draws are part of their state.
BUILDERS: dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda module=module: module.build(NUM_CLASSES, DIM)
        for name, module in MODULES.items()
    },
    "margin without a boundary weight": lambda: Margin(NUM_CLASSES, seed=3),
    "log_exp_spread of a sample": lambda: LogExpSpread(max_centers=6),
    "power_spread of a sample": lambda: PowerSpread(max_centers=6, seed=5),
    "hyperspherical_energy of a sample": lambda: HypersphericalEnergy(max_centers=6),
    "uniform_spread of a sample": lambda: UniformSpread(max_centers=6),
}
EVERY_BUILDER = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


def train(module: nn.Module, seed: int) -> tuple[Tensor, list[Tensor]]:
    """One step of training, its optimizer's step included; the loss and all gradients."""
    batch = varied_batch(seed)
    leaf = batch.embeddings.clone().requires_grad_()
    module.zero_grad()
    loss = module(leaf, batch.labels)
    loss.backward()
    assert leaf.grad is not None
    gradients = [leaf.grad, *(p.grad.clone() for p in module.parameters() if p.grad is not None)]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return loss.detach(), gradients


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


# --- saved and restored --------------------------------------------------------------------------


@EVERY_MODULE
def test_the_state_holds_what_the_module_learns_and_remembers(name: str) -> None:
    module = MODULES[name].build(NUM_CLASSES, DIM)
    assert set(module.state_dict()) == KEPT.get(name, set()), "KEPT: expected the state, by name"


@EVERY_BUILDER
def test_a_restored_module_goes_on_with_the_same_next_steps(
    build: Callable[[], nn.Module],
) -> None:
    module = build().double()
    for seed in range(3):
        train(module, seed)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)  # new proxies start elsewhere
    restored = build().double()
    restored.load_state_dict(torch.load(file, weights_only=True))
    for seed in range(3, 6):
        identical(train(restored, seed), train(module, seed))
        identical(snapshot(restored), snapshot(module))


@EVERY_BUILDER
def test_a_copy_lives_a_life_of_its_own(build: Callable[[], nn.Module]) -> None:
    module = build().double()
    train(module, 0)
    before = snapshot(module)
    twin = copy.deepcopy(module)
    first = train(twin, 1)
    identical(snapshot(module), before)
    identical(train(module, 1), first)


@EVERY_BUILDER
def test_everything_moves_to_another_dtype(build: Callable[[], nn.Module]) -> None:
    module = build().to(torch.float64)
    for value in module.state_dict().values():
        assert value.dtype in (torch.float64, torch.int64, torch.bool)
    loss, gradients = train(module, 0)
    assert loss.dtype == torch.float64
    for value in (*gradients, *(v for v in snapshot(module).values() if v.is_floating_point())):
        assert value.dtype == torch.float64


@EVERY_BUILDER
def test_float32_state_serves_embeddings_of_other_dtypes(build: Callable[[], nn.Module]) -> None:
    """As in evaluation in float64, or under autocast with half precision embeddings."""
    module = build()
    kinds = {name: value.dtype for name, value in module.state_dict().items()}
    batch = varied_batch(0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        leaf = batch.embeddings.to(dtype, copy=True).requires_grad_()
        loss = module(leaf, batch.labels)
        loss.backward()
        assert loss.isfinite()
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
    assert {name: value.dtype for name, value in module.state_dict().items()} == kinds


# --- in evaluation, and with several calls before a backward -------------------------------------


@EVERY_BUILDER
def test_evaluation_changes_nothing_and_repeats_itself(build: Callable[[], nn.Module]) -> None:
    module = build().double()
    train(module, 0)
    before = snapshot(module)
    module.eval()
    batch = varied_batch(1)
    first, again = module(*batch), module(*batch)
    identical(first, again)
    identical(snapshot(module), before)


@EVERY_BUILDER
def test_two_calls_may_come_before_one_backward(build: Callable[[], nn.Module]) -> None:
    """Gradients are accumulated so; state that moves in place must not spoil the first call's."""
    module, other = build().double(), build().double()
    other.load_state_dict(module.state_dict())
    leaves = [varied_batch(seed).embeddings.clone().requires_grad_() for seed in (0, 1)]
    losses = [module(leaf, varied_batch(seed).labels) for seed, leaf in enumerate(leaves)]
    torch.stack(losses).sum().backward()
    for seed, leaf in enumerate(leaves):
        alone = varied_batch(seed).embeddings.clone().requires_grad_()
        other(alone, varied_batch(seed).labels).backward()
        identical(leaf.grad, alone.grad)
