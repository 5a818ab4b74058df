"""Recipes: every file reads, builds and round-trips; every mistake is named."""

import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kinspace.clustering import ClusterIndex
from kinspace.losses import LOSSES
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.recipes import (
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    Range,
    Recipe,
    RegularizerConfig,
    SamplerConfig,
    describe,
    parse_set,
    read_recipe,
    recipe_names,
    with_changes,
    with_loss,
    with_regularizers,
)
from kinspace.recipes.schema import SECTIONS
from kinspace.samplers import SAMPLERS

FOLDER = Path(__file__).parents[2] / "src/kinspace/recipes"
NAMES = recipe_names()
MINIMAL = 'about = "a test"\n[loss]\nname = "nra"\n'


def _read(folder: Path, text: str) -> Recipe:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_recipe(path)


# Laws over all files


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
        assert _read(tmp_path, each.to_toml()) == each
        assert Recipe.from_dict(json.loads(json.dumps(each.to_dict()))) == each
    assert _read(tmp_path, describe(recipe)) == recipe.resolved()
    assert recipe.resolved().resolved() == recipe.resolved()


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_builds_and_its_batches_give_a_finite_gradient(name: str) -> None:
    recipe = read_recipe(name)
    classes, each, dim = 40, 20, 8
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


# Errors

BROKEN = [
    ('[loss]\nname = "nra"\n', r"mine.toml: about: expected, and not there"),
    ('about = "x"\n', r"mine.toml: loss: expected, and not there"),
    ('about = "x"\n[loss]\nalpha = 2\n', r"mine.toml: loss.name: expected, and not there"),
    ("about = \n", r"mine.toml: expected TOML: Invalid value \(at line 1"),
    ('abuot = "x"\n' + MINIMAL, r"abuot: unknown key 'abuot'; did you mean 'about'\?"),
    ('data = "cub20"\n' + MINIMAL, r"data: unknown data set 'cub20'; did you mean 'cub200'\?"),
    ('split = "zeroshot"\n' + MINIMAL, r"split: unknown split .* did you mean 'zero_shot'\?"),
    ("about = 3\n[loss]\nname = 'nra'\n", r"mine.toml: about: expected a text, got 3"),
    ('about = ""\nloss = "nra"\n', r"loss: expected a table, got 'nra'"),
    ('about = ""\n[loss]\nname = "triplets"\n', r"loss.name: unknown loss .* mean 'triplet'\?"),
    (MINIMAL + "alfa = 2\n", r"loss.alfa: unknown option of nra 'alfa'; did you mean 'alpha'\?"),
    (MINIMAL + "seed = 2\n", r"loss.seed: unknown option of nra 'seed'"),
    (MINIMAL + "alpha = '3'\n", r"mine.toml: loss.alpha: expected a finite number, got '3'"),
    (MINIMAL + "alpha = true\n", r"loss.alpha: expected a finite number, got True"),
    (MINIMAL + "alpha = nan\n", r"loss.alpha: expected a finite number, got nan"),
    (MINIMAL + "alpha = 0.5\n", r"loss.alpha: expected at least 1, got 0.5"),
    (MINIMAL + "detach_range = 1\n", r"loss.detach_range: expected true or false, got 1"),
    (
        MINIMAL + "[[regularizers]]\nname = 'orthogonal'\nalpha = 1.0\n",
        r"unknown option of orthogonal 'alpha'; there is none",
    ),
    (MINIMAL + "[sampler]\nname = 'randm'\n", r"sampler.name: unknown sampler .* 'random'\?"),
    (MINIMAL + "[sampler]\nclases = 2\n", r"sampler.clases: .* did you mean 'classes'\?"),
    (MINIMAL + "[sampler]\nclasses = 0\n", r"sampler.classes: expected at least 1, got 0"),
    (MINIMAL + "[sampler]\nclasses = 2.0\n", r"sampler.classes: expected a whole number, got 2.0"),
    (MINIMAL + "[sampler]\nname = 'neighborhoods'\n", r"index: expected a table with the sampler"),
    (MINIMAL + "[index]\nclusters = 2\n", r"index: expected none with the sampler 'classes_by_s"),
    (MINIMAL + "[optimizer]\nlr = 0\n", r"optimizer.lr: expected a number above 0, got 0.0"),
    (
        MINIMAL + "[optimizer]\nmomentum = 1\n",
        r"optimizer.momentum: expected a number from 0 to bel",
    ),
    (MINIMAL + "[optimizer]\nname = 'adan'\n", r"optimizer.name: .* did you mean 'adam'\?"),
    (MINIMAL + "[optimizer]\nbeta = 1\n", r"optimizer.beta: unknown key 'beta'; .*choose from: "),
    (MINIMAL + "[schedule]\nsteps = 0\n", r"schedule.steps: expected at least 1, got 0"),
    (MINIMAL + "[schedule]\nkind = 'cosin'\n", r"schedule.kind: .* did you mean 'cosine'\?"),
    (MINIMAL + "[schedule]\nmilestones = [3, 2]\n", r"schedule.milestones: expected growing steps"),
    (MINIMAL + "[schedule]\nmilestones = ['2']\n", r"schedule.milestones: expected a list, each a"),
    (
        MINIMAL + "[validation]\nfraction = 1.0\n",
        r"validation.fraction: expected .* below 1, got 1.0",
    ),
    (
        MINIMAL + "[model]\nbackbone = 'smal'\n",
        r"model.backbone: unknown .* did you mean 'small'\?",
    ),
    (MINIMAL + "[model]\nbackbone = 'torchvision:resnet5'\n", r"model.backbone: .* 'resnet50'\?"),
    (MINIMAL + "[model.options]\nwidht = 8\n", r"model.options.widht: .* did you mean 'width'\?"),
    (MINIMAL + "[model]\npool = 'mean'\n", r"model.pool: unknown pooling 'mean'"),
    (MINIMAL + "[model]\ngroups = [64, 32]\n", r"model.groups: expected sizes of sum 128"),
    (MINIMAL + "[model]\ngroups = 0\n", r"model.groups: expected at least 1, got 0"),
    (MINIMAL + "[model]\ngroups = 2.5\n", r"model.groups: expected a whole number or a list"),
    (
        "about = 'a test'\n[loss]\nname = 'hdc'\nshares = [1, 0.5]\n",
        r"loss.shares: expected one for",
    ),
    (
        MINIMAL + "[transform]\nsize = 9\nresize = 8\n",
        r"transform.size: expected at most resize, 8",
    ),
    (MINIMAL + "[transform]\nfit = 'squish'\n", r"transform.fit: .* did you mean 'squash'\?"),
    (MINIMAL + "[warm_start]\nloss = 'sotfmax'\n", r"warm_start.loss: .* did you mean 'softmax'\?"),
    (MINIMAL + "[test]\nviews = 0\n", r"test.views: expected at least 1, got 0"),
    (MINIMAL + "[[regularizers]]\nname = 'densty'\n", r"regularizers.densty.name: .* 'density'\?"),
    (MINIMAL + "[[regularizers]]\nweight = 2\n", r"regularizers.0.name: expected, and not there"),
    (
        MINIMAL + "[[regularizers]]\nname = 'density'\netta = 2\n",
        r"regularizers.density.etta: unknown option of density 'etta'; did you mean 'eta'\?",
    ),
    (
        MINIMAL + "[[regularizers]]\nname = 'power_spread'\n",
        r"regularizers: power_spread: expected a loss with proxies .* centers = 'batch'",
    ),
    (
        MINIMAL + "[[regularizers]]\nname = 'entropy'\n" * 2,
        r"regularizers: terms: expected different names",
    ),
    (
        MINIMAL + "[tune]\n'loss.alfa' = { low = 1, high = 2 }\n",
        r"tune.loss.alfa: loss.alfa: unknow",
    ),
    (MINIMAL + "[tune]\n'loss.alpha' = { low = 0, high = 2 }\n", r"tune.loss.alpha: .* at least 1"),
    (MINIMAL + "[tune]\n'loss.alpha' = { low = 1 }\n", r"tune.loss.alpha.*: expected low and high"),
    (
        MINIMAL + "[tune]\n'loss.alpha' = { low = 3, high = 2 }\n",
        r"low: expected less than high, 2",
    ),
    (
        MINIMAL + "[tune]\n'loss.alpha' = { choices = ['a'] }\n",
        r"expected a finite number, got 'a'",
    ),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_a_mistake_is_named_with_file_key_and_what_was_expected(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        _read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown recipe 'almn_cub'; did you mean 'almn_cub200'"):
        read_recipe("almn_cub")
    with pytest.raises(ValueError, match=r"none\.toml: cannot be read: No such file"):
        read_recipe(tmp_path / "none.toml")


def test_parts_made_in_python_are_checked_alike() -> None:
    with pytest.raises(ValueError, match="lr: expected a finite number, got '3'"):
        OptimizerConfig(lr="3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="centers: unknown centers 'proxy'"):
        RegularizerConfig("density", centers="proxy")
    with pytest.raises(ValueError, match="choices: expected one or more, and no log"):
        Range(choices=())


# Reading and writing


def test_none_is_written_none_and_whole_numbers_pass_for_numbers(tmp_path: Path) -> None:
    recipe = _read(tmp_path, MINIMAL + "alpha = 2\n[model]\nstart_norm = 'none'\ndim = 'none'\n")
    assert (recipe.model.start_norm, recipe.model.dim) == (None, None)
    assert isinstance(recipe.loss.options["alpha"], float)
    assert recipe.name == "mine"


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
    back = _read(tmp_path, recipe.to_toml())
    assert back == recipe
    assert isinstance(back.tune["optimizer.lr"].high, int)


def test_building_a_recipe_takes_no_random_numbers() -> None:
    before = torch.random.get_rng_state()
    with_regularizers(with_loss(read_recipe("skewed_mean"), "proxy_nca"), ["uniform_spread"])
    assert torch.equal(torch.random.get_rng_state(), before)


# Changing


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


def test_the_learners_of_a_loss_are_those_of_the_model() -> None:
    recipe = read_recipe("bier")
    with pytest.raises(
        ValueError, match=r"model\.groups: expected the learners of the loss 'bier', 4"
    ):
        with_changes(recipe, {"loss.groups": 4})
    new = with_changes(recipe, {"loss.groups": [32, 96], "model.groups": [32, 96]})
    assert new.model.groups == new.loss.options["groups"] == (32, 96)


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


def test_fine_tuning_sets_what_a_recipe_has() -> None:
    table = read_recipe("nra").to_dict() | {"fine_tuning": {"optimizer.lrr": 1.0}}
    with pytest.raises(ValueError, match=r"fine_tuning.optimizer.lrr: .*did you mean 'lr'"):
        Recipe.from_dict(table)


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
