"""The experiment files, and what is said of a wrong one."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from digit_experiment import TOML, written
from kinspace.data.in_memory import BUILT_IN_SETS
from kinspace.data.standard import STANDARD_SETS
from kinspace.recipes import Recipe, parse_set, read_recipe, with_changes, with_regularizers
from kinspace.reproduce import (
    experiment_from_dict,
    experiment_names,
    make_jobs,
    read_experiment,
    recipe_of,
)

WANTED = {
    *("almn", "baselines", "best", "density", "large_batch", "large_batch_moths"),
    *("magnet_attributes", "magnet_hierarchy", "magnet_pets", "nra", "nra_mnist"),
    *("spread", "sweeps", "spread_omniglot", "spread_omniglot_weight", "spread_printed"),
    *("almn_margin", "almn_printed", "virtual_points", "five", "magnet_pets_printed", "magnet_map"),
    *("density_lambda", "density_printed", "density_share"),
    *("nra_alpha", "nra_printed", "nra_trials"),
}


def test_every_experiment_of_the_plan_is_there() -> None:
    assert set(experiment_names()) == WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_all_rows_are_valid_recipes_on_every_set_with_numbers(name: str) -> None:
    experiment = read_experiment(name)
    printed = [each for row in experiment.rows for each in row.printed]
    printed += experiment.untrained or ()
    sets = {experiment.data, *experiment.sets, *(each.data for each in printed)}
    assert sets <= {*STANDARD_SETS, *BUILT_IN_SETS}
    for data in sets:
        for row in experiment.rows:
            recipe = recipe_of(experiment, row, data)
            assert isinstance(recipe, Recipe)
            dim = {**experiment.settings, **row.settings}.get("model.dim", recipe.model.dim)
            assert recipe.model.dim == dim or data in experiment.sets


@pytest.mark.parametrize("name", sorted(WANTED))
def test_printed_numbers_are_percent_of_measures_that_are_shown(name: str) -> None:
    experiment = read_experiment(name)
    for row in experiment.rows:
        for each in row.printed:
            shown = experiment.on(each.data).measures
            assert all(0 < number < 100 for number in each.numbers.values()), each
            assert set(each.numbers) & set(shown), each
            recalls = [v for m, v in each.numbers.items() if m.startswith("recall@")]
            assert recalls == sorted(recalls), each  # Recall@K grows with K


def test_beside_nra_are_as_many_single_losses_as_the_readme_says() -> None:
    """A loss joins the table with its runs, not when it is added to the registry."""
    experiment = read_experiment("nra")
    rows = {recipe_of(experiment, row, "cub200").loss.name for row in experiment.rows}
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"of {len(rows)} single losses at one schedule" in readme
    # center only pulls; the others are ensembles within one embedding
    assert rows.isdisjoint({"center", "bier", "hdc"})


def test_the_command_of_a_job_makes_its_very_recipe() -> None:
    """What is written down for a reader is what is run."""
    for name in ("density", "magnet_pets", "sweeps"):
        experiment = read_experiment(name)
        for job in make_jobs(experiment, experiment.data, [1], weights="folder/w.safetensors"):
            words = shlex.split(job.command)[3:]
            pairs = list(zip(words[::2], words[1::2], strict=True))
            given = {key: [v for k, v in pairs if k == key] for key in dict(pairs)}
            made = read_recipe(given["--method"][0])
            if "--regularizer" in given:
                made = with_regularizers(made, given["--regularizer"])
            made = with_changes(made, dict(parse_set(text) for text in given["--set"]))
            assert made == job.recipe, job.name
            assert given["--weights"] == ["w.safetensors"]
            assert given["--seed"] == ["1"]


def test_rows_on_all_classes_have_a_second_run_with_some_held_out() -> None:
    jobs = make_jobs(read_experiment("almn"), "cub200", [0, 1])
    assert [job.name for job in jobs[:2]] == ["beta0-seed0", "beta0-seed0-validation"]
    assert [job.recipe.validation.fraction for job in jobs[:2]] == [0.0, 0.2]
    assert len({job.name for job in jobs}) == len(jobs) == 16


def test_settings_of_the_user_go_before_the_rows_and_the_sets_before_the_experiments() -> None:
    experiment = read_experiment("magnet_attributes")
    row = experiment.rows[0]
    assert recipe_of(experiment, row, "moths").model.backbone == "small"
    assert recipe_of(experiment, row, "cub200_seen").model.backbone == "googlenet"
    changes = {"model.backbone": "mnist_convnet"}
    assert recipe_of(experiment, row, "cub200_seen", changes).model.backbone == "mnist_convnet"
    steps = {data: recipe_of(experiment, row, data).warm_start.steps for data in ("moths", "mnist")}
    assert steps == {"moths": 1200, "mnist": 1200}
    assert recipe_of(experiment, row, "cub200_seen").warm_start.steps == 1400


def test_a_sweep_has_a_row_for_each_value_with_its_printed_number() -> None:
    rows = [row for row in read_experiment("sweeps").rows if row.sweep == "batches"]
    assert [row.name for row in rows] == [
        *("batches-65x2", "batches-26x5", "batches-16x8", "batches-8x16")
    ]
    assert rows[1].settings["sampler.classes"] == 26
    assert rows[1].printed[0].numbers["recall@1"] == 52.4
    assert rows[0].x == "65x2"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title =", "titel =", "titel: unknown key 'titel'; did you mean 'title'?"),
        ('"nmi"', '"nmy"', "measures: unknown measure 'nmy'; did you mean 'nmi'?"),
        ('recipe = "triplet"', "", "rows.triplet.recipe: expected, and not there"),
        ('name = "triplet"', 'name = "a b"', "rows.a b.name: expected small letters"),
        ('name = "triplet"', 'name = "contrastive"', "expected one of that name, got several"),
        ('title = "triplet, 0.3"', 'recip = "triplet"', "did you mean 'recipe'?"),
        ("nmi = 45.6", 'nmi = "a"', "rows.contrastive.printed.nmi: expected a finite number"),
        ("settings.loss.margin = 0.3", "regularizers = []", "rows.triplet.regularizers: expected"),
        ("nmi = 45.6", "nmm = 1", "unknown measure 'nmm'; did you mean 'nmi'?"),
        ("[settings]", "validate = 2\n[settings]", "validate: expected a number from 0"),
        ("[settings]", "[curve]\nevery = 0\n[settings]", "curve.every: expected"),
        ("[settings]", '[curve]\nreach = ["tripel"]\n[settings]', "did you mean 'triplet'?"),
        ("[settings]", 'kind = "hierarchy"\n[settings]', "recall@1 is not of kind 'hierarchy'"),
        ("= {", "= ", "expected TOML"),
    ],
)
def test_a_wrong_file_is_an_error_with_the_key(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in TOML
    file = written(tmp_path, TOML.replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        read_experiment(file)
    assert str(file) in str(error.value)


def test_a_wrong_setting_of_a_row_is_an_error_with_the_row(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, TOML.replace("loss.margin", "loss.margn")))
    with pytest.raises(ValueError, match=r"small, triplet: loss.margn.*did you mean 'margin'"):
        make_jobs(experiment, "digits", [0])


def test_only_takes_rows_and_sweeps_by_name() -> None:
    experiment = read_experiment("spread")
    assert [row.name for row in experiment.only(["proxy_anchor+r1"]).rows] == ["proxy_anchor+r1"]
    assert len(experiment.only(["power"]).rows) == 4
    with pytest.raises(ValueError, match="--only: unknown row 'powr'; did you mean 'power'"):
        experiment.only(["powr"])


def test_values_of_several_keys_may_have_names() -> None:
    rows = [row for row in read_experiment("large_batch").rows if row.sweep == "nra"]
    assert [(row.name, row.x) for row in rows] == [
        ("nra-128", "128"),
        ("nra-512", "512"),
        ("nra-2048", "2048"),
    ]
    pictures = {
        row.settings["schedule.steps"]
        * row.settings["sampler.classes"]
        * row.settings["sampler.samples"]
        for row in rows
    }
    assert len(pictures) == 1
    table = {"name": "s", "label": "s", "key": "loss.alpha", "values": [1.0], "recipe": "nra"}
    content = {"name": "a", "title": "a", "paper": "", "data": "digits", "measures": ["nmi"]}
    with pytest.raises(ValueError, match=r"sweeps.s.shown: expected 1, one a value, got 2"):
        experiment_from_dict(content | {"sweeps": [{**table, "shown": ["a", "b"]}]})


def test_sweeps_of_several_keys_want_lists() -> None:
    table = {
        "name": "a",
        "title": "a",
        "paper": "",
        "data": "digits",
        "measures": ["nmi"],
        "sweeps": [{"name": "s", "label": "s", "key": ["a", "b"], "values": [1], "recipe": "nra"}],
    }
    with pytest.raises(
        ValueError, match=r"sweeps.s.values: expected a list of 2, one a key, got 1"
    ):
        experiment_from_dict(table)


def test_the_example_of_the_documentation_is_an_experiment() -> None:
    page = Path(__file__).parents[2] / "docs/reproduce.md"
    text = page.read_text(encoding="utf-8")
    [block] = re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    experiment = experiment_from_dict({"name": "mine", **tomllib.loads(block)})
    assert len(make_jobs(experiment, "moths", [0])) == 5  # it holds classes out anyway
    assert recipe_of(experiment, experiment.rows[0], "cub200").model.backbone == "googlenet"
    assert [name for name in experiment_names() if f"`{name}`" not in text] == []
