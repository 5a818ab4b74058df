"""Invalid recipes are errors that name file, key and expected value."""

from pathlib import Path

import pytest
import torch

from kinspace.recipes import (
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    Range,
    Recipe,
    RegularizerConfig,
    read_recipe,
    with_changes,
    with_loss,
    with_regularizers,
)
from recipe_texts import MINIMAL, read_text

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
    (
        MINIMAL + "[optimizer]\nname = 'adan'\n",
        r"optimizer.name: .* did you mean 'adam'\?",
    ),
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
    (MINIMAL + "[model]\nlora = -1\n", r"model.lora: expected at least 0, got -1"),
    (MINIMAL + "[model]\nlora = 4\n", r"model.lora: it is for transformers of timm, got 'small'"),
    (MINIMAL + "[optimizer]\nlayer_decay = 2\n", r"optimizer.layer_decay: .* at most 1, got 2.0"),
    (MINIMAL + "[optimizer]\nlayer_decay = 0\n", r"optimizer.layer_decay: .*above 0"),
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
        read_text(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


def test_parts_made_in_python_are_checked_alike() -> None:
    with pytest.raises(ValueError, match="lr: expected a finite number, got '3'"):
        OptimizerConfig(lr="3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="centers: unknown centers 'proxy'"):
        RegularizerConfig("density", centers="proxy")
    with pytest.raises(ValueError, match="choices: expected one or more, and no log"):
        Range(choices=())


def test_the_learners_of_a_loss_are_those_of_the_model() -> None:
    recipe = read_recipe("bier")
    with pytest.raises(
        ValueError, match=r"model\.groups: expected the learners of the loss 'bier', 4"
    ):
        with_changes(recipe, {"loss.groups": 4})
    new = with_changes(recipe, {"loss.groups": [32, 96], "model.groups": [32, 96]})
    assert new.model.groups == new.loss.options["groups"] == (32, 96)


def test_fine_tuning_sets_what_a_recipe_has() -> None:
    table = read_recipe("nra").to_dict() | {"fine_tuning": {"optimizer.lrr": 1.0}}
    with pytest.raises(ValueError, match=r"fine_tuning.optimizer.lrr: .*did you mean 'lr'"):
        Recipe.from_dict(table)


def test_none_is_written_none_and_whole_numbers_pass_for_numbers(tmp_path: Path) -> None:
    recipe = read_text(
        tmp_path, MINIMAL + "alpha = 2\n[model]\nstart_norm = 'none'\ndim = 'none'\n"
    )
    assert (recipe.model.start_norm, recipe.model.dim) == (None, None)
    assert isinstance(recipe.loss.options["alpha"], float)
    assert recipe.name == "mine"


def test_batch_norm_is_frozen_where_the_backbone_starts_from_weights() -> None:
    recipe = read_recipe("nra")
    assert not recipe.model.batch_norm_frozen
    pretrained = with_changes(recipe, {"model.backbone": "resnet50"})
    assert pretrained.model.batch_norm_frozen
    assert with_changes(recipe, {"model.weights": "net.safetensors"}).model.batch_norm_frozen
    for value in (True, False):
        chosen = with_changes(pretrained, {"model.freeze_batch_norm": value})
        assert chosen.model.batch_norm_frozen == value


def test_building_a_recipe_takes_no_random_numbers() -> None:
    before = torch.random.get_rng_state()
    with_regularizers(with_loss(read_recipe("skewed_mean"), "proxy_nca"), ["uniform_spread"])
    assert torch.equal(torch.random.get_rng_state(), before)


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
