"""Weights of samples, an ignored class and singletons in a recipe, and counts of what was mined."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kinspace.data import Attributes, Dataset, load_dataset
from kinspace.losses import MultiSimilarity, Triplet
from kinspace.miners import batch_hard
from kinspace.objective import Objective, Term
from kinspace.recipes import Recipe, read_recipe, with_changes
from kinspace.recipes.sections import SamplesConfig
from kinspace.regularizers import Orthogonal
from kinspace.run import Run
from kinspace.training.diagnostics import mined_by_loss
from kinspace.training.samples import sample_options
from small_trainings import pictures, trained

CPU = torch.device("cpu")


def losses_of(run: Run) -> list[float]:
    return [row["loss"] for row in run.metrics if "loss" in row]


def weights_of(config: SamplesConfig, data: Dataset) -> torch.Tensor:
    options = sample_options(config, data, CPU)
    assert options is not None
    assert options.weights is not None
    return options.weights


def test_balanced_weights_give_each_class_the_same_sum() -> None:
    data = load_dataset("digits")
    data = data.subset([*(data.labels != 3).nonzero()[:, 0].tolist(), 3, 13])
    weights = weights_of(SamplesConfig("balanced"), data)
    sums = torch.zeros(10).index_add(0, data.labels, weights)
    torch.testing.assert_close(sums, sums.mean().expand(10), rtol=1e-5, atol=0.0)
    assert weights.mean().item() == pytest.approx(1.0)


def test_weights_of_classes_and_of_an_attribute_are_multiplied() -> None:
    data = pictures()
    quality = torch.linspace(0, 1, len(data))[:, None]
    data = replace(data, attributes=Attributes(("quality",), quality))
    weights = weights_of(SamplesConfig({"2": 3.0}, attribute="quality"), data)
    wanted = quality[:, 0] * torch.where(data.labels == 2, 3.0, 1.0)
    torch.testing.assert_close(weights, wanted)


def test_a_class_without_weight_leaves_no_trace_in_a_loss_of_proxies(tmp_path: Path) -> None:
    nothing = {f"{label}": 0.0 for label in range(8)}
    run = trained(
        tmp_path / "none", method="proxy_nca", changes={"samples.weights": nothing, **STEPS}
    )
    assert losses_of(run) == [0.0] * len(losses_of(run))
    plain, doubled = (
        losses_of(trained(tmp_path / name, method="proxy_nca", changes=STEPS | changes))
        for name, changes in (
            ("plain", {}),
            ("doubled", {"samples.weights": dict.fromkeys(nothing, 2.0)}),
        )
    )
    assert doubled == pytest.approx(plain)  # the mean divides by the sum of the weights


STEPS = {"schedule.steps": 3, "sampler.classes": None, "sampler.samples": None}


def test_samples_of_an_ignored_class_are_no_anchors(tmp_path: Path) -> None:
    data = pictures(classes=16)  # of which 5 train
    whole = trained(tmp_path / "whole", data, "triplet", changes=ALL)
    part = whole.splits(data).train
    assert part is not None
    name = part.class_names[0]
    ignored = trained(tmp_path / "run", data, "triplet", changes=ALL | {"samples.ignore": name})
    assert [row["anchors"] for row in whole.metrics if "anchors" in row] == [12] * 6
    # the class is in most of the batches of four
    assert {row["anchors"] for row in ignored.metrics if "anchors" in row} == {9, 12}


ALL = {"loss.mining": "batch_hard", "sampler.classes": 4, "sampler.samples": 3}


def test_regularizers_do_not_see_samples_that_are_ignored() -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(9, 4), torch.arange(9) % 3
    objective = Objective(Triplet(), [Term("orthogonal", Orthogonal(), 0.5)])
    kept = labels != 1
    whole = objective(x, labels, samples={"ignore_label": 1})
    part = objective(x[kept], labels[kept])
    torch.testing.assert_close(whole.total, part.total)
    torch.testing.assert_close(whole.parts, part.parts)


def test_names_that_the_data_lacks_are_errors(tmp_path: Path) -> None:
    for changes, words in (
        ({"samples.ignore": "swan"}, r"samples\.ignore: unknown class 'swan'"),
        ({"samples.weights": {"swan": 2}}, r"samples\.weights: unknown class 'swan'"),
        ({"samples.attribute": "quality"}, r"samples\.attribute: unknown attribute 'quality'"),
    ):
        with pytest.raises(ValueError, match=words):
            trained(tmp_path / "run", changes=changes)


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("proxy_anchor", {"samples.weights": "balanced"}, "expected no weights .*'proxy_anchor'"),
        ("softmax", {"samples.singletons": "skip"}, "expected no singletons .*'softmax'"),
        ("magnet", {"samples.ignore": "3"}, "expected no ignore_label .*'magnet'"),
        ("nra", {"samples.singletons": "maybe"}, "singletons: expected 'count' or 'skip'"),
        ("nra", {"samples.weights": {"3": -1}}, "weights.3"),
        ("nra", {"samples.weigths": "balanced"}, "did you mean 'weights'"),
    ],
)
def test_what_a_loss_does_not_take_is_an_error_of_the_recipe(
    method: str, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        with_changes(read_recipe(method), changes)


def test_a_recipe_with_options_of_samples_is_written_and_read() -> None:
    config = SamplesConfig({"house sparrow": 2}, "quality", "unknown", "skip")
    recipe = with_changes(
        read_recipe("nra"),
        {f"samples.{name}": value for name, value in vars(config).items()},
    )
    assert recipe.samples == config
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert '[samples.weights]\n"house sparrow" = 2.0' in recipe.to_toml()


def test_a_training_with_every_option_resumes_where_it_was(tmp_path: Path) -> None:
    options = {"samples.weights": "balanced", "samples.ignore": "1", "samples.singletons": "skip"}
    run = trained(tmp_path / "run", method="nra", changes=options)
    assert run.recipe.samples == SamplesConfig("balanced", None, "1", "skip")
    again = trained(tmp_path / "run", method="nra", changes=options, resume=True)
    assert losses_of(again) == losses_of(run)


def test_a_row_of_metrics_counts_what_was_mined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {**ALL, "schedule.steps": 2}
    run = trained(tmp_path / "run", pictures(classes=16), "triplet", changes=changes, quiet=False)
    rows = [row for row in run.metrics if "triplets" in row]
    assert [(row["triplets"], row["anchors"]) for row in rows] == [(12, 12)] * 2
    assert "triplets 12  anchors 12" in capsys.readouterr().err


def test_counts_are_those_of_the_miner() -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(12, 4), torch.arange(12) % 3
    assert mined_by_loss(x, labels, Triplet(mining="batch_hard")) == {"triplets": 12, "anchors": 12}
    assert mined_by_loss(x, labels, Triplet(mining=batch_hard), ignore_label=0)["triplets"] == 8
    found = mined_by_loss(x, labels, MultiSimilarity())
    assert found["pairs"] == found["positive_pairs"] + found["negative_pairs"] > 0
    for loss in (Triplet(), MultiSimilarity(mining_margin=None), torch.nn.Identity()):
        assert mined_by_loss(x, labels, loss) == {}
    assert mined_by_loss(x, labels, Triplet(mining="semi_hard", distance="cosine")) == {}
