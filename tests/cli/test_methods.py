"""`kinspace methods` as a user runs it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from kinspace.cli import app
from kinspace.losses import LOSSES
from kinspace.recipes import read_recipe, recipe_names

RUN = CliRunner(env={"COLUMNS": "200"})


def test_lists_every_recipe_with_its_loss_and_sampler() -> None:
    done = RUN.invoke(app, ["methods"])
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines() if line[:1].strip()]
    for name in recipe_names():
        (row,) = [row for row in rows if row and row[0] == name]
        recipe = read_recipe(name)
        assert recipe.loss.name in row
        assert recipe.sampler.name in row


def test_in_a_narrow_window_a_method_takes_a_few_lines() -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["methods"])
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines if line[:1].strip()} >= set(recipe_names())
    assert len(lines) < 4 * len(recipe_names())


def test_as_json_the_list_says_the_same() -> None:
    done = RUN.invoke(app, ["methods", "--json"])
    rows = json.loads(done.stdout)
    assert [row["method"] for row in rows] == recipe_names()
    missing = set(LOSSES) - {row["loss"] for row in rows}
    assert not missing, f"src/kinspace/recipes/defaults: expected a recipe NAME.toml of {missing}"
    assert all(list(row) == ["method", "paper", "loss", "sampler", "about"] for row in rows)


def test_one_method_is_printed_as_a_recipe_file_with_all_options_and_its_formula(
    tmp_path: Path,
) -> None:
    done = RUN.invoke(app, ["methods", "almn"])
    path = tmp_path / "mine.toml"
    path.write_text(done.stdout, encoding="utf-8")
    assert read_recipe(path) == read_recipe("almn").resolved()
    assert "M_i = beta k_i ||x_i|| / ||x_i - c_i||" in done.stdout
    assert 'margin = "clipped"' in done.stdout
    again = RUN.invoke(app, ["methods", str(path)])
    assert again.stdout == done.stdout


def test_one_method_as_json() -> None:
    table = json.loads(RUN.invoke(app, ["methods", "density", "--json"]).stdout)
    assert table["loss"] == {
        "name": "triplet",
        "margin": 0.2,
        "reduction": "mean_active",
        "mining": "all",  # not in the file: a default
        "squared": True,
        "distance": None,
        "virtual_points": 0.0,
    }
    assert set(table["formulas"]) == {"triplet", "density"}


def test_an_unknown_method_exits_with_2_and_the_nearest_name() -> None:
    done = RUN.invoke(app, ["methods", "magnett"])
    assert done.exit_code == 2
    assert done.output.startswith("method: unknown recipe 'magnett'; did you mean 'magnet'?")
