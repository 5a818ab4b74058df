"""Every recipe of the package reads, builds and round-trips."""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from kinspace.clustering import ClusterIndex
from kinspace.losses import LOSSES
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.recipes import (
    Recipe,
    describe,
    read_recipe,
    recipe_names,
)
from kinspace.recipes.schema import SECTIONS
from kinspace.samplers import SAMPLERS
from recipe_texts import read_text

FOLDER = Path(__file__).parents[2] / "src/kinspace/recipes"
NAMES = recipe_names()


def test_every_loss_has_a_default_recipe_of_its_name() -> None:
    defaults = recipe_names("defaults")
    more = {"abe", "density", "skewed_mean", "skewed_mean_power", "smart_mining"}
    missing = set(LOSSES) - set(defaults)
    assert not missing, f"src/kinspace/recipes/defaults: expected a recipe NAME.toml of {missing}"
    assert set(defaults) == {*LOSSES} | more
    for name in LOSSES:
        assert read_recipe(name).loss.name == name


def test_the_names_are_the_files_and_no_name_is_in_both_folders() -> None:
    files = sorted(path.stem for path in FOLDER.glob("*/*.toml"))
    assert sorted(NAMES) == files
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_round_trips_exactly(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name
    assert recipe.about
    assert recipe.source
    for each in (recipe, recipe.resolved()):
        assert read_text(tmp_path, each.to_toml()) == each
        assert Recipe.from_dict(json.loads(json.dumps(each.to_dict()))) == each
    assert read_text(tmp_path, describe(recipe)) == recipe.resolved()
    assert recipe.resolved().resolved() == recipe.resolved()


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_builds_and_its_batches_give_a_finite_gradient(name: str) -> None:
    recipe = read_recipe(name)
    classes, each, dim = 64, 20, 8
    labels = torch.arange(classes).repeat_interleave(each)
    points = torch.randn(len(labels), dim) + torch.randn(classes, dim)[labels]
    points.requires_grad_()
    if recipe.index is None:
        sampler = SAMPLERS[recipe.sampler.name](labels, **recipe.sampler.options)
    else:
        index = ClusterIndex(recipe.index.clusters, max_clusters=recipe.index.max_clusters)  # type: ignore[arg-type]
        index.refresh(points.detach(), labels)
        sampler = SAMPLERS[recipe.sampler.name](index, **recipe.sampler.options)
    batch = torch.tensor(next(iter(sampler)))
    loss = make_loss(recipe.loss.name, recipe.loss.options, num_classes=classes, dim=dim)
    terms = [
        Term(
            part.name,
            make_regularizer(part.name, part.options, num_classes=classes, dim=dim),
            part.weight,
            part.centers,
        )
        for part in recipe.regularizers
    ]
    total, parts, _ = Objective(loss, terms)(points[batch], labels[batch])
    total.backward()
    assert set(parts) == {"loss", *(part.name for part in recipe.regularizers)}
    assert total.isfinite()
    assert points.grad is not None
    assert points.grad.isfinite().all()


@pytest.mark.parametrize("name", recipe_names("defaults"))
def test_a_default_says_only_what_differs(name: str) -> None:
    table = tomllib.loads((FOLDER / f"defaults/{name}.toml").read_text(encoding="utf-8"))
    options = read_recipe(name).loss.name
    assert len((FOLDER / f"defaults/{name}.toml").read_text().splitlines()) <= 36
    for key, part in SECTIONS.items():
        plain = asdict(part(options) if key == "loss" else part())
        for option, value in table.get(key, {}).items():
            same = option in plain and plain[option] == value
            assert not same or (key, option) == ("loss", "name"), f"{name}: {key}.{option}"


def test_the_papers_numbers_are_those_printed() -> None:
    def values(recipe: Recipe) -> tuple[Any, ...]:
        return recipe.optimizer.lr, recipe.loss.options.get("alpha"), recipe.schedule.factor

    magnet = {
        "pets": (0.00184, 7.18, 8, None),
        "flowers102": (0.0240, 2.43, 1, None),
        "dogs": (0.00292, 0.710, 1, None),
        "imagenet_attributes": (0.00459, 0.700, 2, 0.974),
        "hierarchy": (0.00177, 0.783, 16, 0.988),
    }
    for name, (lr, gap, clusters, factor) in magnet.items():
        recipe = read_recipe(f"magnet_{name}")
        assert values(recipe)[:2] == (lr, gap)
        assert recipe.index is not None
        assert recipe.index.clusters == clusters
        assert recipe.schedule.kind == ("annealed" if factor else "constant")
        assert factor in (None, recipe.schedule.factor)
        # M x D is at most 48 wherever the search goes
        most = [max(recipe.tune[f"sampler.{key}"].choices or ()) for key in ("clusters", "samples")]
        assert most[0] * most[1] == 48
    for name, lr in {"cub200": 1e-4, "cars196": 5e-4, "sop": 1e-3}.items():
        assert values(read_recipe(f"nra_{name}"))[:2] == (lr, 4.0)
    for name, lr in {"cub200": 1e-5, "cars196": 5e-4, "sop": 3e-5}.items():
        recipe = read_recipe(f"dml_da_triplet_{name}")
        assert (recipe.optimizer.lr, recipe.regularizers[0].weight) == (lr, 10.0)
    steps = {"cub200": 50_000, "cars196": 80_000, "flowers102": 50_000, "aircraft": 50_000}
    for name, count in steps.items():
        recipe = read_recipe(f"almn_{name}")
        assert (recipe.loss.options["beta"], recipe.schedule.steps) == (3.0, count)


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown recipe 'almn_cub'; did you mean 'almn_cub200'"):
        read_recipe("almn_cub")
    with pytest.raises(ValueError, match=r"none\.toml: cannot be read: No such file"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["nra", "magnet", "magnet_dogs"])
def test_reading_constructs_one_recipe(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where `fine_tuning` and `tune` hold dozens of values, each of which is checked."""
    constructed = []
    check = Recipe.__post_init__
    monkeypatch.setattr(Recipe, "__post_init__", lambda self: (constructed.append(1), check(self)))
    recipe = read_recipe(name)
    assert recipe.fine_tuning or recipe.tune
    assert len(constructed) == 1
