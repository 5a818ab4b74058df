"""What a recipe's model section makes of a backbone."""

from __future__ import annotations

from typing import Any

import pytest

from kinspace.data import load_dataset
from kinspace.models import DEFAULT_BACKBONE, batch_norms
from kinspace.recipes import read_recipe, with_changes
from kinspace.training.components import make_model, make_state, transform_settings
from kinspace.training.data_parts import prepare
from kinspace.training.settings import RunSettings
from kinspace.training.state import State

VIT = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 2}


def state(changes: dict[str, Any]) -> State:
    recipe = with_changes(
        read_recipe("contrastive"), {"model.dim": 4, "sampler.classes": 4, **changes}
    )
    settings = RunSettings(device="cpu", workers=0)
    model = make_model(recipe, seed=0)
    data = load_dataset("digits")
    transform = transform_settings(recipe, model)
    parts = prepare(data, "zero_shot", transform, settings, validation=0.0)
    return make_state(recipe, settings, model, parts.train, dim=4)


def test_batch_norm_of_pretrained_weights_is_frozen_by_default() -> None:
    small = {"transform.size": 32, "transform.resize": 32}
    frozen = state({"model.backbone": DEFAULT_BACKBONE, **small}).model.train()
    layers = batch_norms(frozen).values()
    assert layers
    assert not any(layer.training or layer.weight.requires_grad for layer in layers)
    free = state({"model.backbone": DEFAULT_BACKBONE, "model.freeze_batch_norm": False, **small})
    assert all(layer.training for layer in batch_norms(free.model.train()).values())
    scratch = state({"model.backbone": DEFAULT_BACKBONE, "model.pretrained": False, **small})
    assert all(layer.training for layer in batch_norms(scratch.model.train()).values())


def test_a_transformer_embeds_pictures_of_the_recipes_size_by_its_class_token() -> None:
    changes = {"model.backbone": "timm:vit_tiny_patch16_224", "model.pretrained": False}
    changes |= {"model.options": VIT, "transform.size": 48, "transform.resize": 48}
    made = state(changes)
    assert made.model.head.pooling == "token"
    inputs, _, _ = next(iter(made.loader))
    assert inputs.shape[-1] == 48
    assert made.model(inputs).shape == (len(inputs), 4)
    mean = with_changes(read_recipe("contrastive"), {**changes, "model.pool": "avg"})
    assert make_model(mean, seed=0).head.pooling == "avg"


def test_layer_decay_gives_the_layers_of_the_backbone_rates_of_their_own() -> None:
    changes = {"model.backbone": "timm:vit_tiny_patch16_224", "model.pretrained": False}
    changes |= {"model.options": VIT, "transform.size": 32, "transform.resize": 32}
    changes |= {"optimizer.lr": 0.001, "optimizer.head": 10.0}
    made = state({**changes, "optimizer.layer_decay": 0.5})
    rates = {p: group["base"] for group in made.optimizer.param_groups for p in group["params"]}
    trunk = made.model.backbone.trunk
    assert rates[trunk.blocks[1].mlp.fc1.weight] == pytest.approx(0.001)
    assert rates[trunk.blocks[0].mlp.fc1.weight] == pytest.approx(0.0005)
    assert rates[trunk.patch_embed.proj.weight] == pytest.approx(0.00025)
    assert rates[made.model.head.linear.weight] == pytest.approx(0.01)
    plain = state(changes).optimizer.param_groups
    assert {g["base"] for g in plain if g["role"] == "backbone"} == {0.001}
