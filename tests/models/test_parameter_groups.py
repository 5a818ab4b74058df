"""Parameters by group for the optimizer, and the batch norm layers, of any module."""

import pytest
from torch import nn

from kinspace.models import freeze_batch_norm, layer_scales, make_embedder, parameter_groups

SMALL = {"name": "small", "options": {"width": 4, "size": 28}}


def test_groups_share_out_every_parameter_once() -> None:
    model = make_embedder({"backbone": SMALL, "head": {"dim": 8}})
    model.freeze_backbone()
    found = parameter_groups(model)
    assert list(found) == ["backbone", "head"]
    assert {id(value) for value in found["head"]} == {id(v) for v in model.head.parameters()}
    everything = [id(value) for values in found.values() for value in values]
    assert sorted(everything) == sorted(id(value) for value in model.parameters())


def test_a_plain_module_is_all_backbone_unless_it_has_a_head() -> None:
    plain = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    assert {name: len(values) for name, values in parameter_groups(plain).items()} == {
        "backbone": 4
    }
    headed = nn.ModuleDict({"body": nn.Linear(2, 3), "head": nn.Linear(3, 4)})
    assert {name: len(v) for name, v in parameter_groups(headed).items()} == {
        "backbone": 2,
        "head": 2,
    }
    plain.add_module("head", nn.Linear(4, 5, bias=False))
    assert {name: len(v) for name, v in parameter_groups(plain).items()} == {
        "backbone": 4,
        "head": 1,
    }
    plain.head = nn.Identity()
    assert list(parameter_groups(plain)) == ["backbone"]


def test_a_shared_parameter_is_in_one_group() -> None:
    tied = nn.Module()
    tied.body = nn.Linear(3, 3)
    tied.head = nn.Linear(3, 3)
    tied.head.weight = tied.body.weight
    found = parameter_groups(tied)
    assert [len(values) for values in found.values()] == [1, 2]


def test_batch_norm_of_a_plain_module_freezes_until_train_is_called() -> None:
    plain = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    freeze_batch_norm(plain, affine=True)
    assert not plain[1].training
    assert plain[1].weight.requires_grad
    assert plain.train()[1].training


def test_the_blocks_of_a_transformer_have_growing_rates() -> None:
    options = {"img_size": 32, "depth": 3}
    backbone = {"name": "timm:vit_tiny_patch16_224", "options": options}
    model = make_embedder({"backbone": backbone, "head": {"dim": 4}})
    scales = layer_scales(model, 0.5)
    names = {name.partition("trunk.")[2]: value for name, value in model.named_parameters()}
    expected = {
        "patch_embed.proj.weight": 0.125,
        "pos_embed": 0.125,
        "blocks.0.mlp.fc1.weight": 0.25,
        "blocks.2.attn.qkv.bias": 1.0,
        "norm.weight": 1.0,  # timm has it in the last block's layer
    }
    assert {name: scales[names[name]] for name in expected} == pytest.approx(expected)
    assert not any(value in scales for value in model.head.parameters())


@pytest.mark.parametrize("name", ["small", "googlenet", "torchvision:resnet18", "timm:resnet10t"])
def test_every_backbone_has_layers_and_the_last_has_the_whole_rate(name: str) -> None:
    model = make_embedder({"backbone": {"name": name}, "head": {"dim": 4}})
    scales = layer_scales(model, 0.5)
    values = [scales[value] for value in model.backbone.parameters()]
    assert values == sorted(values)
    assert values[-1] == 1
    assert len(set(values)) > 1
