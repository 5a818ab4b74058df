"""Parameters by group for the optimizer, and the batch norm layers, of any module."""

from torch import nn

from kinspace.models import freeze_batch_norm, make_embedder, parameter_groups

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
