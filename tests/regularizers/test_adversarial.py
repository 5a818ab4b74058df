"""The adversarial regressors beyond the laws of every regularizer: the game that they play."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import kinspace
import loops
from batches import random_batch
from gradients import disagreement, evaluate
from kinspace.recipes import read_recipe, with_changes, with_regularizers
from kinspace.regularizers import Adversarial, adversarial_penalty
from kinspace.training import components
from kinspace.training.run_folder import read_checkpoint


def similarity(x: Tensor, module: Adversarial) -> float:
    """What the regressors raise and the embeddings lower."""
    return -adversarial_penalty(
        x, module.hidden, module.output, groups=module.groups, weight_penalty=0.0
    ).item()


@pytest.mark.parametrize("groups", [1, 2, 4, (1, 2, 4), (4, 1, 2), (2, 3, 2)], ids=str)
def test_any_groups_agree_with_the_loop(groups: int | tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = random_batch(1, dim=7).embeddings
    module = Adversarial(7, groups=groups, width=6).double()
    layers = {"hidden": 1.2 * module.hidden + 0.1, "output": 0.8 * module.output - 0.2}
    arguments, options = {"embeddings": x, **layers}, {"groups": groups, "weight_penalty": 3.0}
    found = evaluate(adversarial_penalty, arguments, options)
    expected = evaluate(loops.adversarial_penalty, arguments, options)
    problem = disagreement(found, expected, gradient=1e-10)
    assert problem is None, problem


def test_the_module_gives_its_regressors_to_the_function() -> None:
    torch.manual_seed(0)
    x, labels = random_batch(2, dim=6)
    module = Adversarial(6, groups=2, width=4, weight_penalty=7.0).double()
    loss = module(x, labels)
    layers = module.hidden, module.output
    assert torch.equal(loss, adversarial_penalty(x, *layers, groups=2, weight_penalty=7.0))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in module.parameters())


def test_fresh_regressors_have_rows_of_length_one_and_no_bias() -> None:
    torch.manual_seed(0)
    module = Adversarial(512, groups=(96, 160, 256))
    held = module(torch.zeros(1, 512)).item()  # nothing is similar: the penalty alone
    assert held == pytest.approx(0, abs=1e-6)
    first, second = module.hidden[:161], module.output[:, :96]
    for layer in (first, second):
        assert not layer[-1].any()
        torch.testing.assert_close(layer[:-1].norm(dim=1), torch.ones(len(layer) - 1))


def test_embeddings_and_regressors_step_against_each_other() -> None:
    """One step of descent for both: each moves the similarity its own way."""
    torch.manual_seed(0)
    x = random_batch(3, dim=9).embeddings.requires_grad_()
    module = Adversarial(9, width=16, weight_penalty=0.0).double()
    module(x).backward()
    before = similarity(x, module)
    assert x.grad is not None
    assert similarity(x.detach() - 0.1 * x.grad, module) < before
    with torch.no_grad():
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter -= 0.01 * parameter.grad
    assert similarity(x, module) > before


def test_the_penalty_on_the_weights_is_not_reversed_nor_felt_by_the_embeddings() -> None:
    torch.manual_seed(0)
    x = random_batch(3, dim=6).embeddings.requires_grad_()
    layers = [2 * p.detach().double() for p in Adversarial(6, width=4).parameters()]
    hidden, output = (layer.requires_grad_() for layer in layers)
    slopes = [
        torch.autograd.grad(
            adversarial_penalty(x, hidden, output, weight_penalty=c), (x, hidden, output)
        )
        for c in (0.0, 50.0)
    ]
    assert torch.equal(slopes[0][0], slopes[1][0])
    for free, held, layer in zip(slopes[0][1:], slopes[1][1:], (hidden, output), strict=True):
        assert ((held - free) * layer).sum() > 0  # descent makes the rows shorter


@pytest.mark.parametrize(
    ("wrong", "came"),
    [
        ({"hidden": torch.zeros(7, 5)}, "(7, 5)"),
        ({"hidden": torch.zeros(5)}, "(5,)"),
        ({"hidden": torch.zeros(8, 0)}, "(8, 0)"),
        ({"hidden": torch.zeros(8, 5).long()}, "int64"),
        ({"hidden": [1.0]}, "[1.0]"),
        ({"output": torch.zeros(5, 3)}, "(5, 3)"),
        ({"output": torch.zeros(6, 3).long()}, "int64"),
        ({"output": None}, "None"),
    ],
)
def test_wrong_layers_are_named_with_what_came(wrong: dict[str, Tensor], came: str) -> None:
    # sizes 2, 1, 1: three pairs, their larger learners of 1, 2 and 2, their smaller ones of 1
    layers = {"hidden": torch.zeros(8, 5), "output": torch.zeros(6, 3)} | wrong
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}: expected") as caught:
        adversarial_penalty(random_batch(5).embeddings, **layers)
    assert came in str(caught.value)


def test_a_module_names_its_layers_when_the_dimension_differs() -> None:
    with pytest.raises(ValueError, match=r"^hidden: expected .*sizes \[1, 1, 1\], got .*\(8, 5\)"):
        Adversarial(4, width=5)(random_batch(5, dim=3).embeddings)
    with pytest.raises(ValueError, match=r"^groups: expected sizes of sum 4, the dimension"):
        Adversarial(4, groups=(1, 2))


@pytest.mark.parametrize("groups", [0, -1, True, 2.0, "3", [], [2, 0, 1], [1.0, 2, 3]])
def test_wrong_groups_are_named(groups: object) -> None:
    with pytest.raises(ValueError, match=r"^groups: expected"):
        Adversarial(4, groups=groups)  # type: ignore[arg-type]


def test_a_run_trains_the_regressors_and_keeps_them(tmp_path: Path) -> None:
    recipe = with_regularizers(read_recipe("bier"), ["adversarial:0.5"])
    sizes = ("loss.groups", "model.groups", "regularizers.adversarial.groups")
    few = {"model.dim": 9, "schedule.steps": 3, "regularizers.adversarial.width": 8}
    recipe = with_changes(recipe, {key: [2, 3, 4] for key in sizes} | few)
    data = torch.utils.data.TensorDataset(torch.randn(48, 6), torch.arange(48) % 8)
    torch.manual_seed(0)
    run = kinspace.train(
        data,
        method=recipe,
        model=nn.Linear(6, 9),
        out=tmp_path,
        device="cpu",
        quiet=True,
        log_every=1,
    )
    assert sum("adversarial" in row for row in run.metrics) == 3
    last, _ = read_checkpoint(run.folder / "last.safetensors")
    fresh = components.make_objective(recipe, num_classes=3, dim=9, seed=0, original=None)
    assert len(fresh.state_dict()) == 2
    for name, before in fresh.state_dict().items():
        assert last[f"objective.{name}"].shape == before.shape
        assert not torch.equal(last[f"objective.{name}"], before)
