"""Splits, batches that the data can fill, and where the pictures are kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kinspace.data.load import load_dataset
from kinspace.recipes import Recipe, read_recipe, with_changes
from kinspace.recipes.overrides import fit_batch_size, with_batch_size
from kinspace.samplers import SAMPLERS
from kinspace.training.components import warm_start_recipe
from kinspace.training.data_parts import split_for, split_names
from kinspace.training.run_folder import read_checkpoint
from small_trainings import losses, net, pictures, trained, trained_net, vectors


@pytest.mark.parametrize(
    ("parts", "standard", "split"),
    [
        (None, True, "zero_shot"),
        (None, False, "random_classes"),
        ("tttt....", True, "zero_shot"),  # the first half trains anyway
        ("ttttt...", True, "official"),
        ("t.t.t.t.", True, "official"),
        ("t.t.t.t.", False, "random_classes"),
        ("mmmmmmmm", True, "zero_shot"),  # every class is in both parts
    ],
)
def test_auto_takes_official_classes_for_the_test_where_they_are_others(
    parts: str | None, standard: bool, split: str
) -> None:
    data, names = pictures(each=2), None
    if parts is not None:
        of = {"t": ("train", "train"), ".": ("query", "gallery"), "m": ("train", "test")}
        names = tuple(
            of[parts[label]][place % 2] for place, label in enumerate(data.labels.tolist())
        )
    data = replace(data, parts=names, standard=standard)
    assert split_for(data, "auto") == split


@pytest.mark.parametrize(
    ("split", "train", "validation", "test"),
    [
        ("zero_shot", "03", "12", "4567"),
        ("official", "02", "13", "4567"),
        ("stratified", "012346", "57", "01234567"),
        ("all", "012346", "57", None),
    ],
)
def test_each_split_trains_chooses_and_judges_by_its_own(
    split: str, train: str, validation: str, test: str | None, tmp_path: Path
) -> None:
    data = pictures(each=8)
    parts = tuple("train" if label < 4 else "test" for label in data.labels.tolist())
    run = trained(tmp_path, replace(data, parts=parts), split=split, changes={"schedule.steps": 2})
    classes = run.about["classes"]
    held_out = set(classes["validation"])
    assert len(held_out) == len(validation)
    assert set(classes["train"]) | held_out == set(train) | set(validation)
    assert not set(classes["train"]) & held_out
    assert classes.get("test") == (None if test is None else list(test))
    assert ("selected" in run.results) == (test is not None)
    assert 0 <= run.results["validation_recall@1"] <= 1
    if split == "stratified":  # no picture is in both
        assert run.about["pictures"]["test"] == 16
        assert sum(run.about["pictures"].values()) == 64


def test_the_seed_draws_the_validation_classes() -> None:
    data = pictures(classes=40, each=1)
    drawn = [split_names(data, "all", validation=0.2, seed=s)[1].class_names for s in (0, 0, 1)]  # type: ignore[union-attr]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 8


def test_without_validation_the_last_model_is_chosen_and_no_recall_is_made_up(
    tmp_path: Path,
) -> None:
    run = trained(tmp_path, changes={"validation.fraction": 0.0, "schedule.steps": 2})
    assert run.results["selected_step"] == 2
    assert "validation_recall@1" not in run.results
    assert run.results["selected"] == run.results["final"]
    assert "validation" not in run.about["classes"]


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"split: expected one of .*, got 'half'"):
        trained(tmp_path, split="half")
    with pytest.raises(ValueError, match="has no official parts"):
        trained(tmp_path, split="official")
    with pytest.raises(ValueError, match="data: expected a folder or name, a Dataset"):
        load_dataset(3)


@pytest.mark.parametrize(
    ("method", "changes", "counts", "key", "fits"),
    [
        ("contrastive", {}, [20] * 5, "classes", 5),
        ("contrastive", {"sampler.samples": 4}, [1] * 9, "classes", 2),
        ("contrastive", {"sampler.classes": 4}, [20] * 5, "classes", 4),
        ("n_pair", {"sampler.name": "n_pairs"}, [5, 5, 1], "pairs", 2),
        ("magnet", {"index.clusters": "auto", "sampler.clusters": 12}, [30] * 5, "clusters", 5),
        ("magnet", {"index.clusters": 2, "sampler.clusters": 12}, [30, 30, 1], "clusters", 4),
        (
            "softmax",
            {"sampler.name": "random", "sampler.drop_last": True},
            [9] * 4,
            "batch_size",
            36,
        ),
    ],
)
def test_batches_are_fitted_to_what_there_is(
    method: str, changes: dict[str, Any], counts: list[int], key: str, fits: int
) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    recipe = with_changes(read_recipe(method), changes) if changes else read_recipe(method)
    fitted, said = fit_batch_size(recipe, labels)
    assert fitted.resolved().sampler.options[key] == fits
    asked = recipe.resolved().sampler.options[key]
    if fits == asked:
        assert said is None
    else:
        assert said is not None
        assert said.startswith(f"batches of {fits} ")
        assert f"the recipe asks for {asked}" in said
    assert fit_batch_size(fitted, labels) == (fitted, None)


@pytest.mark.parametrize(
    ("sampler", "samples"),
    [
        ({"name": "classes_by_samples", "classes": 4, "samples": 3}, 12),
        ({"name": "neighborhoods", "clusters": 12, "samples": 4}, 48),
        ({"name": "n_pairs", "pairs": 5}, 10),
        ({"name": "whole_classes", "batch_size": 30}, 30),
        ({"name": "random", "batch_size": 50}, 50),
    ],
)
def test_batches_of_a_warm_start_are_as_large_as_those_after_it(
    sampler: dict[str, Any], samples: int
) -> None:
    method = "magnet" if sampler["name"] == "neighborhoods" else "triplet"
    parts = {"sampler": sampler, "warm_start": {"steps": 5}}
    recipe = Recipe.from_dict(read_recipe(method).to_dict() | parts)
    before = warm_start_recipe(recipe).sampler
    batches = SAMPLERS[before.name](torch.arange(300) % 20, **before.options)
    assert {len(batch) for batch in batches} == {samples}


def test_magnet_with_its_warm_start_runs_on_a_few_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes: dict[str, Any] = {"index.clusters": "auto", "sampler.clusters": 12}
    changes |= {"schedule.steps": 3, "warm_start.steps": 2}  # fewer samples than a softmax's batch
    run = trained_net(tmp_path, net(), "magnet", changes=changes, data=vectors(8), quiet=False)
    assert run.finished
    said = capsys.readouterr().err
    assert "the recipe asks for 12, and the training part fills no more" in said
    assert "warm start: softmax, 2 steps" in said
    assert "step 5/5" in said  # one bar over both


@pytest.mark.parametrize(("method", "seen"), [("cluster_nca", True), ("smart_mining", False)])
def test_neighborhoods_serve_losses_with_clusters_and_without(
    method: str, seen: bool, tmp_path: Path
) -> None:
    changes = {"sampler.clusters": 3, "schedule.steps": 3}
    run = trained_net(tmp_path, net(), method, changes=changes, data=vectors(8))
    assert run.finished
    remembered = read_checkpoint(tmp_path / "last.safetensors")[0]["index.losses"]
    assert bool(remembered.isfinite().any()) == seen  # else every cluster is as likely a seed


@pytest.mark.parametrize(
    ("method", "batch", "key", "value"),
    [
        ("contrastive", 32, "classes", 4),
        ("magnet", 60, "clusters", 12),
        ("contrastive", 36, "batch_size", 36),
        ("contrastive", 10, "pairs", 5),
    ],
)
def test_a_batch_keeps_its_composition(method: str, batch: int, key: str, value: int) -> None:
    samples = {"contrastive": 8, "magnet": 5}[method]
    recipe = with_changes(read_recipe(method), {"sampler.samples": samples})
    if key in ("batch_size", "pairs"):
        name = {"batch_size": "random", "pairs": "n_pairs"}[key]
        recipe = with_changes(recipe, {"sampler.name": name})
    assert with_batch_size(recipe, batch).sampler.options[key] == value


def test_a_batch_that_cannot_be_composed_is_an_error() -> None:
    recipe = with_changes(read_recipe("contrastive"), {"sampler.samples": 8})
    with pytest.raises(ValueError, match=r"--batch: expected a multiple of 8, .* got 33"):
        with_batch_size(recipe, 33)


def test_wherever_the_pictures_are_kept_the_losses_are_the_same(tmp_path: Path) -> None:
    one = losses(trained(tmp_path / "memory", cache="memory"))
    for run in ("folder", "folder again"):
        assert losses(trained(tmp_path / run, cache=str(tmp_path / "pictures"))) == one
    assert list((tmp_path / "pictures").iterdir())
    anew = [losses(trained(tmp_path / str(n), cache="none", workers=n)) for n in (0, 2)]
    assert anew[0] == anew[1]
    # files and cache draw their crops in ways of their own: without chance, they are the same
    plain = {"transform.resize": 16, "transform.mirror": False}
    one = losses(trained(tmp_path / "plain memory", cache="memory", changes=plain))
    other = losses(trained(tmp_path / "plain files", cache="none", changes=plain))
    assert other == pytest.approx(one, rel=1e-4)


def test_several_views_are_the_same_with_and_without_a_cache(tmp_path: Path) -> None:
    changes = {"test.views": 4, "transform.resize": 20}
    found = [
        trained(tmp_path / cache, cache=cache, changes=changes | {"schedule.steps": 1})
        for cache in ("memory", "none")
    ]
    recalls = [run.results["untrained"]["map"] for run in found]
    assert recalls[0] == pytest.approx(recalls[1], rel=1e-5)


def test_several_views_need_pictures_and_say_so_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test.views: expected 1, inputs are no pictures"):
        trained_net(tmp_path / "run", net(), changes={"test.views": 4})
    assert not (tmp_path / "run").exists()
