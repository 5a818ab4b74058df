"""Every warning is given in a real training that goes wrong in its way, and not in a good one."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from kinspace.losses import NRA, Contrastive
from kinspace.run import Run
from kinspace.training.diagnostics import batch_statistics, small_classes_warning
from small_trainings import Net, net, pictures, trained, trained_net, vectors

STILL = {"optimizer.lr": 1e-12}


def warnings_of(run: Run) -> list[str]:
    return [row["warning"] for row in run.metrics if "warning" in row]


class Collapsed(Net):
    """All embeddings point one way, whatever comes in."""

    def odd(self, y: Tensor) -> Tensor:
        return torch.ones_like(y) + 1e-3 * y


class Growing(Net):
    """Ten times as long in each step."""

    def odd(self, y: Tensor) -> Tensor:
        return y * 10.0**self.passes


def test_a_good_training_has_no_warning(tmp_path: Path) -> None:
    data = vectors(spread=0.1)
    assert warnings_of(trained_net(tmp_path, net(), "contrastive", data=data)) == []


def test_collapse_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"changes": STILL | {"schedule.steps": 12}, "quiet": False}
    run = trained_net(tmp_path, net(Collapsed), "proxy_anchor", **options)
    [warning] = warnings_of(run)
    assert warning.startswith(
        "the embeddings have collapsed: two samples have a mean cosine of 1.0"
    )
    assert capsys.readouterr().err.count(f"warning: {warning}") == 1
    [row] = [row for row in run.metrics if "warning" in row]
    assert row["step"] == 5  # five rows in a row


@pytest.mark.parametrize("method", ["triplet", "contrastive"])
def test_a_loss_at_its_margin_is_said(method: str, tmp_path: Path) -> None:
    changes = STILL | {"loss.margin": 0.7}
    if method == "contrastive":
        changes["loss.reduction"] = "mean_each"
    run = trained_net(tmp_path, net(Collapsed), method, changes=changes)
    assert any(
        text.startswith("the loss stays at 0.7, its value when") for text in warnings_of(run)
    )


def test_nra_says_how_many_anchors_have_no_gradient(tmp_path: Path) -> None:
    noise = vectors(each=20, spread=50.0)
    run = trained_net(tmp_path / "noise", net(), "nra", data=noise, changes=STILL)
    [warning] = warnings_of(run)
    last = run.metrics[-1]
    assert last["nearest_is_negative"] > 0.5
    assert warning.startswith("NRA: ")
    assert "have a negative as their nearest sample" in warning
    # the two samples of a class are opposite: nothing is farther
    directions = (
        torch.eye(12).repeat(2, 1) * torch.tensor([1.0, -1.0]).repeat_interleave(12)[:, None]
    )
    opposite = TensorDataset(directions, torch.arange(24) % 12)
    run = trained_net(
        tmp_path / "opposite",
        net(dim=12, out=12),
        "nra",
        data=opposite,
        changes=STILL | {"sampler.samples": 2},
    )
    assert any("have a positive as their farthest sample" in text for text in warnings_of(run))


def test_growing_norms_are_said(tmp_path: Path) -> None:
    run = trained_net(tmp_path, net(Growing), "proxy_anchor", changes=STILL)
    [warning] = warnings_of(run)
    assert warning.startswith("the embeddings' norm has grown from ")


def test_few_pictures_a_class_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, pictures(each=3), changes={"schedule.steps": 1}, quiet=False)
    assert run.finished
    said = capsys.readouterr().err
    assert "batches of 2 classes with 3 pictures of each: the recipe asks for" in said
    assert str(small_classes_warning([4, 3, 3], 4)).startswith("2 of 3 classes have fewer than 4")
    assert small_classes_warning([4, 4, 3], 4) is None


def test_statistics_are_those_of_a_loop() -> None:
    embeddings, labels = torch.randn(7, 3), torch.tensor([0, 0, 1, 1, 1, 2, 2])
    found = batch_statistics(embeddings, labels, Contrastive())
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)
    pairs = [float(unit[i] @ unit[j]) for i in range(7) for j in range(7) if i != j]
    assert float(found["cosine"]) == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
    assert float(found["norm"]) == pytest.approx(float(embeddings.norm(dim=1).mean()))
    found = batch_statistics(embeddings, labels, NRA())
    distances = torch.cdist(embeddings.double(), embeddings.double())
    nearest_negative = farthest_positive = 0
    for i in range(7):
        others = [j for j in range(7) if j != i]
        nearest_negative += bool(labels[min(others, key=lambda j: distances[i, j])] != labels[i])
        farthest_positive += bool(labels[max(others, key=lambda j: distances[i, j])] == labels[i])
    assert float(found["nearest_is_negative"]) == pytest.approx(nearest_negative / 7)
    assert float(found["farthest_is_positive"]) == pytest.approx(farthest_positive / 7)
