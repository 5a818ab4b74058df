"""Recipes made from others."""

from dataclasses import replace
from typing import Any

import pytest

from kinspace.recipes import (
    LossConfig,
    Recipe,
    RegularizerConfig,
    SamplerConfig,
    default_recipe,
    parse_set,
    read_recipe,
    with_changes,
    with_loss,
    with_regularizers,
)
from kinspace.recipes.overrides import method_changes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=2", 2),
        ("a.b = 2.5e-3", 2.5e-3),
        ("a.b=true", True),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b='3'", "3"),
        ("a.b=cosine", "cosine"),
        ("a.b=weights/a=b.safetensors", "weights/a=b.safetensors"),
        ("a.b=none", "none"),
        ("a.b=1\nc=2", "1\nc=2"),
    ],
)
def test_values_of_set_are_tomls_and_other_words_are_texts(text: str, value: Any) -> None:
    key, parsed = parse_set(text)
    assert (key, parsed, type(parsed)) == ("a.b", value, type(value))


@pytest.mark.parametrize("text", ["loss.beta", "=2", "loss.beta=", ""])
def test_set_without_key_or_value_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"--set: expected KEY=VALUE, like loss.beta=2, got"):
        parse_set(text)


def test_changes_are_made_in_the_copy_only() -> None:
    recipe = read_recipe("density")
    new = with_changes(
        recipe,
        {
            "loss.margin": 2,
            "regularizers.density.weight": 5,
            "regularizers.density.eta": 1,
            "schedule.steps": 7,
            "model.options.width": 8,
            "model.start_norm": "none",
        },
    )
    assert recipe == read_recipe("density")
    assert new.loss == LossConfig("triplet", {"margin": 2.0, "reduction": "mean_active"})
    assert new.regularizers == (RegularizerConfig("density", 5.0, options={"eta": 1.0}),)
    assert (new.schedule.steps, new.model.options, new.model.start_norm) == (7, {"width": 8}, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss.bta": 2}, "--set: loss.bta: unknown option of almn 'bta'; did you mean 'beta'"),
        ({"lr": 2}, "--set: unknown key 'lr'; did you mean 'optimizer.lr'?"),
        ({"los.beta": 2}, "--set: los.beta: unknown key 'los'; did you mean 'loss'"),
        ({"loss.beta": "2"}, "--set: loss.beta: expected a finite number, got '2'"),
        ({"loss.beta.x": 2}, "--set: loss.beta.x: unknown key; beta is a value, not a table"),
        ({"loss": 2}, "--set: loss: expected a table, got 2"),
        ({"name.x": 2}, "--set: name.x: unknown key; name is a value, not a table"),
        ({"regularizers.density.weight": 2}, "expected regularizers.NAME.OPTION .*--regularizer"),
        ({"regularizers": 2}, "--set: regularizers: expected a list"),
        ({"optimizer.lr": -1}, "--set: optimizer.lr: expected a number above 0, got -1.0"),
        ({"index.clusters": 2}, "--set: index: expected none with the sampler"),
    ],
)
def test_a_wrong_change_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_changes(read_recipe("almn_cub200"), changes)


def test_another_sampler_begins_with_its_own_options_and_takes_the_index_along() -> None:
    recipe = read_recipe("magnet_pets")
    new = with_changes(recipe, {"sampler.name": "random"})
    assert (new.sampler, new.index) == (SamplerConfig("random"), None)
    assert set(new.tune) == {"optimizer.lr", "loss.alpha"}
    back = with_changes(new, {"sampler.name": "neighborhoods", "index.clusters": "auto"})
    assert back.index is not None
    assert back.index.clusters == "auto"


def test_a_weights_file_goes_before_pretrained_weights() -> None:
    recipe = read_recipe("almn_cub200")
    assert recipe.model.pretrained
    new = with_changes(recipe, {"model.weights": "bvlc.safetensors"})
    assert (new.model.weights, new.model.pretrained) == ("bvlc.safetensors", False)


@pytest.mark.parametrize(
    "changes",
    [
        {"model.backbone": "googlenet", "model.weights": "bvlc.safetensors"},
        {"model.backbone": "resnet18"},
        {"model.backbone": "timm:resnet18", "model.pretrained": True},
    ],
)
def test_a_backbone_with_weights_is_tuned_not_trained_anew(changes: dict[str, Any]) -> None:
    recipe = with_changes(read_recipe("n_pair"), changes)
    assert recipe.model.pretrained == ("model.weights" not in changes)
    assert (recipe.optimizer.lr, recipe.optimizer.head, recipe.optimizer.loss) == (3e-5, 10, 100)
    assert (recipe.model.normalize, recipe.model.length) == (True, 6.0)  # n_pair's own
    assert with_changes(recipe, {"loss.norm_weight": 0.0}).optimizer == recipe.optimizer
    asked = with_changes(read_recipe("n_pair"), {**changes, "optimizer.lr": 0.01})
    assert (asked.optimizer.lr, asked.optimizer.head) == (0.01, 10)


def test_a_backbone_without_weights_is_trained_as_the_recipe_says() -> None:
    recipe = read_recipe("nra")
    for changes in (
        {"model.backbone": "googlenet"},
        {"model.backbone": "resnet18", "model.pretrained": False},
        {"model.dim": 64},
    ):
        new = with_changes(recipe, changes)
        assert not new.model.pretrained
        assert (new.optimizer, new.warm_start) == (recipe.optimizer, recipe.warm_start)


def test_another_loss_has_its_defaults_and_the_rest_stays() -> None:
    recipe = read_recipe("almn_cub200")
    assert with_loss(recipe, "n_pair") == replace(recipe, loss=LossConfig("n_pair"))
    assert with_changes(recipe, {"loss.name": "n_pair"}) == with_loss(recipe, "n_pair")
    with pytest.raises(ValueError, match="--loss: unknown loss 'npair'; did you mean 'n_pair'"):
        with_loss(recipe, "npair")


def test_spreads_follow_the_loss_to_the_centers_it_has() -> None:
    recipe = with_regularizers(read_recipe("proxy_nca"), ["log_exp_spread:0.1", "uniform_spread"])
    assert [(part.weight, part.centers) for part in recipe.regularizers] == [
        (0.1, "proxies"),
        (1.0, "proxies"),
    ]
    assert [part.centers for part in with_loss(recipe, "nra").regularizers] == ["batch"] * 2
    assert (
        with_regularizers(read_recipe("nra"), ["power_spread"]).regularizers[0].centers == "batch"
    )
    assert with_regularizers(recipe, []).regularizers == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("density:ten", "--regularizer: expected NAME or NAME:WEIGHT, like density:10, got"),
        ("density:", "--regularizer: expected NAME or NAME:WEIGHT, like density:10, got"),
        ("density:nan", "--regularizer: regularizers.density.weight: expected a finite number"),
        ("densty:10", "--regularizer: regularizers.densty.name: .* did you mean 'density'"),
    ],
)
def test_a_wrong_regularizer_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_regularizers(read_recipe("contrastive"), [text])


def test_a_recipe_takes_the_method_of_another_with_what_was_changed_in_it() -> None:
    net = {"model.backbone": "tf_efficientnet_lite0"}
    recipe = with_changes(default_recipe(), net | {"model.dim": 64, "optimizer.lr": 1e-6})
    taken = with_changes(recipe, method_changes(recipe, "proxy_nca"))
    other = with_changes(read_recipe("proxy_nca"), net)
    assert (taken.name, taken.loss, taken.sampler) == (other.name, other.loss, other.sampler)
    assert taken.model == replace(other.model, dim=64)
    assert taken.optimizer == replace(other.optimizer, lr=1e-6)
    assert taken.warm_start == other.warm_start


@pytest.mark.parametrize(
    "changed",
    [
        with_changes(default_recipe(), {"loss.alpha": 2}),
        with_loss(default_recipe(), "triplet"),
        with_regularizers(default_recipe(), ["entropy"]),
        with_changes(default_recipe(), {"samples.singletons": "skip"}),
    ],
    ids=["options", "loss", "regularizers", "samples"],
)
def test_a_recipe_with_another_loss_keeps_its_method(changed: Recipe) -> None:
    assert method_changes(changed, "proxy_nca") == {}
