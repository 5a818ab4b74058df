"""Recipes written as TOML are read back exactly."""

from pathlib import Path

from kinspace.recipes import (
    LossConfig,
    ModelConfig,
    Range,
    Recipe,
)
from recipe_texts import read_text


def test_odd_texts_and_numbers_survive_the_round_trip(tmp_path: Path) -> None:
    recipe = Recipe(
        name='a "quoted" \\ name',
        about="tab\t, line\n, delete \x7f, é, 蛾, #no comment",
        source="= [loss]",
        loss=LossConfig("multi_similarity", {"mining_margin": None, "beta": 1e22}),
        model=ModelConfig(
            backbone="timm:resnet18", options={"drop rate": 1e-300, "deep": {"a": [1]}}
        ),
        tune={"optimizer.lr": Range(low=1e-5, high=1, log=True)},
    )
    back = read_text(tmp_path, recipe.to_toml())
    assert back == recipe
    assert isinstance(back.tune["optimizer.lr"].high, int)
