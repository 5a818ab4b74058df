"""Ensembles: attention masks and depths against a plain loop, saved, loaded, exported, trained."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import kinspace
from bundles import QUICK, digits
from kinspace.inference import EmbeddingModel, export_onnx
from kinspace.models import (
    Embedder,
    Head,
    load_weights,
    make_backbone,
    make_embedder,
    save_weights,
)
from kinspace.recipes import read_recipe, with_changes
from kinspace.training.cuda_graphs import Graphed
from kinspace.training.step import Precision

SMALL = {"name": "small", "options": {"width": 4, "size": 28, "blocks": 2}}
GOOGLENET = {"name": "googlenet"}
NETS = [
    pytest.param(net, learners, id=f"{net['name']}-{next(iter(learners))}")
    for net in (SMALL, GOOGLENET)
    for learners in ({"attention": 3}, {"depths": True})
]
# where HDC's learners of each net sit, by the names of their submodules
BLOCKS = {
    "small": ["stages.3", "stages.5", "stages.7"],
    "googlenet": ["inception4a", "inception4d", "inception5b"],
}


def ensemble(net: dict[str, Any], learners: dict[str, Any], dim: int = 12) -> Embedder:
    return make_embedder({"backbone": {**net, **learners}, "head": {"dim": dim, "groups": 3}})


def pictures(count: int = 2, side: int = 48) -> Tensor:
    return torch.randn(count, 3, side, side)


def plain(model: Embedder, net: dict[str, Any]) -> Any:
    """The net of an ensemble as a net without one."""
    backbone = make_backbone(**net).to(next(model.parameters()).dtype)
    backbone.trunk.load_state_dict(model.backbone.trunk.state_dict())
    return backbone.eval()


@pytest.mark.parametrize("net", [SMALL, GOOGLENET], ids=lambda net: net["name"])
def test_attention_is_the_rest_of_the_net_on_each_masked_map(net: dict[str, Any]) -> None:
    model = ensemble(net, {"attention": 3}).double().eval()
    batch = pictures().double()
    attention, trunk = model.backbone.attention, plain(model, net).trunk
    [shared] = model.head.linear.layers
    middle = trunk.early(batch)
    channels = middle.shape[1]
    seen = attention.blocks(middle)
    features, groups = [], []
    for m in range(3):
        rows = slice(m * channels, (m + 1) * channels)
        weight, bias = attention.masks.weight[rows], attention.masks.bias[rows]
        mask = 1 / (1 + torch.exp(-functional.conv2d(seen, weight, bias)))
        assert mask.shape == middle.shape
        features.append(trunk.late(middle * mask)[-1].mean((2, 3)))
        vectors = features[-1] @ shared.weight.T + shared.bias
        groups.append(vectors / vectors.norm(dim=1, keepdim=True) / 3**0.5)
    torch.testing.assert_close(model.features(batch), torch.cat(features, 1))
    torch.testing.assert_close(model(batch), torch.cat(groups, 1))
    assert (model(batch)[:, :4] - model(batch)[:, 4:8]).abs().max() > 1e-3  # the masks differ


@pytest.mark.parametrize("net", [SMALL, GOOGLENET], ids=lambda net: net["name"])
def test_depths_are_the_maps_after_several_blocks(net: dict[str, Any]) -> None:
    model = ensemble(net, {"depths": True}).double().eval()
    batch, backbone = pictures().double(), plain(model, net)
    maps: list[Tensor] = []
    for name in BLOCKS[net["name"]]:
        backbone.trunk.get_submodule(name).register_forward_hook(
            lambda module, inputs, output: maps.append(output)
        )
    last = backbone(batch)
    assert maps[2] is last
    features, groups = [each.mean((2, 3)) for each in maps], []
    for layer, each in zip(model.head.linear.layers, features, strict=True):
        vectors = each @ layer.weight.T + layer.bias
        groups.append(vectors / vectors.norm(dim=1, keepdim=True) / 3**0.5)
    torch.testing.assert_close(model.features(batch), torch.cat(features, 1))
    torch.testing.assert_close(model(batch), torch.cat(groups, 1))
    assert model.backbone.features == tuple(each.shape[1] for each in features)


def test_depths_without_groups_go_through_one_layer() -> None:
    config = {"backbone": {**SMALL, "depths": True}, "head": {"dim": 6}}
    model, batch = make_embedder(config).eval(), pictures()
    features = model.features(batch)
    assert features.shape == (2, sum(model.backbone.features))
    vectors = model.head.linear(features)
    torch.testing.assert_close(model(batch), vectors / vectors.norm(dim=1, keepdim=True))
    again = make_embedder(model.config())
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()(batch), model(batch))


def test_an_embedding_over_scales_is_the_mean_over_them() -> None:
    config = {"backbone": SMALL, "head": {"dim": 6}, "test": {"scales": [0.8, 1, 1.5]}}
    model, batch = make_embedder(config).double().eval(), pictures().double()
    one = make_embedder({**config, "test": {}}).double().eval()
    one.load_state_dict(model.state_dict())
    mean = torch.zeros(2, 6, dtype=torch.float64)
    for side in (38, 48, 72):  # of 48
        view = functional.interpolate(batch, (side, side), mode="bilinear", antialias=True)
        mean += one(view, normalize=False).detach() / 3
    torch.testing.assert_close(model(batch), mean / mean.norm(dim=1, keepdim=True))
    assert make_embedder(model.config()).scales == (0.8, 1.0, 1.5)
    both = make_embedder({**config, "test": {"scales": [0.8, 1, 1.5], "mirror": True}}).double()
    both.load_state_dict(model.state_dict())
    torch.testing.assert_close(both.eval()(batch.flip(-1)), both(batch))
    assert model.train()(batch).shape == (2, 6)
    for scales, words in [
        ((), "one or more"),
        ((9.0,), "from 0.25 to 4, got 9"),
        (("x",), "a num"),
    ]:
        with pytest.raises(ValueError, match=words):
            make_embedder({**config, "test": {"scales": scales}})


def test_a_mirrored_embedding_is_the_mean_over_both_pictures() -> None:
    config = {"backbone": SMALL, "head": {"dim": 6}, "test": {"mirror": True}}
    model, batch = make_embedder(config).double().eval(), pictures().double()
    one = make_embedder({**config, "test": {}}).double().eval()
    one.load_state_dict(model.state_dict())
    mean = (one(batch, normalize=False) + one(batch.flip(-1), normalize=False)) / 2
    torch.testing.assert_close(model(batch), mean / mean.norm(dim=1, keepdim=True))
    torch.testing.assert_close(model(batch.flip(-1)), model(batch))
    assert make_embedder(model.config()).mirror
    assert "test" not in one.config()
    model.train()
    with torch.no_grad():  # as it is, in training
        assert not torch.allclose(model(batch.flip(-1)), model(batch))


@pytest.mark.parametrize(("net", "learners"), NETS)
def test_every_parameter_has_a_gradient_in_half_precision_too(
    net: dict[str, Any], learners: dict[str, Any]
) -> None:
    model = ensemble(net, learners).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = model(pictures(4))
    assert embeddings.dtype == torch.float32
    (embeddings * torch.randn_like(embeddings)).sum().backward()
    for name, value in model.named_parameters():
        assert value.grad is not None, name
        assert value.grad.isfinite().all(), name


@pytest.mark.parametrize(("net", "learners"), NETS)
def test_channels_last_gives_the_same_embeddings(
    net: dict[str, Any], learners: dict[str, Any]
) -> None:
    model = ensemble(net, learners).eval()
    batch = pictures()
    expected = model(batch)
    model.to(memory_format=torch.channels_last)
    batch = batch.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(batch), expected)
    if model.backbone.attention is not None:  # kernels of our own ask for it
        masked = model.backbone.attention(model.backbone.trunk.early(batch))
        assert masked.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
@pytest.mark.parametrize(("net", "learners"), NETS)
def test_a_compiled_model_gives_the_same_embeddings(
    net: dict[str, Any], learners: dict[str, Any]
) -> None:
    torch._dynamo.reset()
    model = ensemble(net, learners).eval()
    batch = pictures()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(batch), model(batch))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("net", "learners"), NETS)
def test_a_recorded_model_trains_as_it_does_unrecorded(
    net: dict[str, Any], learners: dict[str, Any]
) -> None:
    model = ensemble(net, learners).cuda().to(memory_format=torch.channels_last).train()
    again = copy.deepcopy(model)
    recorded = Graphed(model, Precision("float32", torch.device("cuda")))
    for _ in range(3):
        batch = pictures(8).cuda().to(memory_format=torch.channels_last)
        found, expected = recorded(batch), again(batch)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        pull = torch.randn_like(expected)
        for net_of, embeddings in ((model, found), (again, expected)):
            net_of.zero_grad(set_to_none=True)  # they are the graph's own memory
            (embeddings * pull).sum().backward()
        for mine, other in zip(model.parameters(), again.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-2, atol=1e-2)
    assert recorded._recorded is not None


# Files


@pytest.mark.parametrize(("net", "learners"), NETS)
def test_config_and_weights_restore_the_same_model(
    net: dict[str, Any], learners: dict[str, Any], tmp_path: Path
) -> None:
    model = ensemble(net, learners)
    batch = pictures()
    with torch.no_grad():
        model(batch)  # moves the running statistics
        for value in model.parameters():
            value.add_(0.01 * torch.randn_like(value))
    save_weights(model, tmp_path / "model.safetensors")
    again = make_embedder(json.loads(json.dumps(model.config())))
    assert again.config() == model.config()
    assert load_weights(again, tmp_path / "model.safetensors") == []
    assert torch.equal(again.eval()(batch), model.eval()(batch))


@pytest.mark.parametrize(("net", "learners"), NETS)
def test_the_same_seed_gives_the_same_start(net: dict[str, Any], learners: dict[str, Any]) -> None:
    first, again = ensemble(net, learners).state_dict(), ensemble(net, learners).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    other = make_backbone(**{**net, **learners, "seed": 1})
    assert not torch.equal(next(other.parameters()), first["backbone.trunk." + _first(other)])


def _first(backbone: Any) -> str:
    return next(iter(backbone.trunk.state_dict()))


def test_a_net_without_learners_starts_as_one_with_them() -> None:
    alone = make_backbone(**SMALL).state_dict()
    masked = make_backbone(**SMALL, attention=2).state_dict()
    assert all(torch.equal(value, masked[key]) for key, value in alone.items())
    assert {"name", "in_channels", "options", "seed"} == set(make_backbone(**SMALL).config())


@pytest.mark.parametrize(("net", "learners"), NETS)
def test_weights_of_a_net_without_learners_are_taken(
    net: dict[str, Any], learners: dict[str, Any], tmp_path: Path
) -> None:
    trained = make_backbone(**net, seed=5).trunk
    file = tmp_path / "net.safetensors"
    save_weights(trained, file)
    backbone = make_backbone(**net, **learners, weights=file)
    assert backbone.ignored == ()
    for key, value in trained.state_dict().items():
        assert torch.equal(backbone.trunk.state_dict()[key], value)
    if net is GOOGLENET and "attention" in learners:  # its blocks begin as those of the net
        for name, block in zip("abcde", backbone.attention.blocks, strict=True):
            expected = trained.get_submodule(f"inception4{name}").state_dict()
            assert all(torch.equal(v, expected[k]) for k, v in block.state_dict().items())
    model = ensemble(net, learners)
    save_weights(model, file)
    again = make_backbone(**net, weights=file)
    assert all(not key.startswith("backbone.trunk.") for key in again.ignored)
    assert all(
        torch.equal(v, model.state_dict()[f"backbone.{k}"]) for k, v in again.state_dict().items()
    )


# Heads and errors


def test_calibration_counts_the_layers_of_all_learners() -> None:
    for head in (Head([5, 7], 6, groups=[2, 4]), Head([6, 6], 8, groups=2, shared=True)):
        pooled = 40 * torch.rand(20, 12)
        before = head.embed(pooled, normalize=False).norm(dim=1).mean().item()
        assert head.calibrate(pooled, norm=0.5) == pytest.approx(before)
        after = head.embed(pooled, normalize=False).norm(dim=1).mean().item()
        assert after == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": 4}, r"model.groups: expected 4, a group .* learner of the net, got None"),
        ({"attention": 4, "groups": 3}, r"model.groups: expected 4, .*, got 3$"),
        ({"attention": 4, "groups": 4, "dim": 2}, r"expected 4, .*, got 4 of 2 dimensions"),
        ({"attention": 3, "groups": 3}, r"model.groups: expected 3 of one size.* \[43, 43, 42\]"),
        ({"attention": 2, "groups": [64, 64], "dim": "none"}, "model.dim: expected a number"),
        ({"attention": -1}, "model.attention: expected at least 0, got -1"),
        ({"depths": True, "groups": [100, 28]}, r"model.groups: expected 3, .* got \(100, 28\)"),
        (
            {"depths": True, "attention": 3, "groups": 3},
            "model.attention: expected 0 with depths, got 3: choose one",
        ),
        (
            {"backbone": "resnet50", "attention": 8, "groups": 8},
            "model.attention: it is for the backbones googlenet and small, got 'resnet50'; set att",
        ),
        (
            {"backbone": "mnist_convnet", "depths": True, "groups": 3},
            "model.depths: it is for the backbones googlenet and small, got 'mnist_convnet'",
        ),
    ],
)
def test_a_recipe_whose_learners_do_not_fit_says_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_changes(read_recipe("contrastive"), {f"model.{key}": v for key, v in changes.items()})


def test_a_model_whose_learners_do_not_fit_says_so() -> None:
    with pytest.raises(ValueError, match="groups: expected 4, a group of dimensions for each"):
        make_embedder({"backbone": {**SMALL, "attention": 4}, "head": {"dim": 8, "groups": 2}})
    with pytest.raises(ValueError, match="attention: it is for the backbones googlenet and small"):
        make_backbone("timm:resnet10t", attention=2)


# A whole run


def trained(method: str, changes: dict[str, Any], folder: Path) -> EmbeddingModel:
    run = kinspace.train(
        "digits",
        method=method,
        changes={**QUICK, "schedule.steps": 4, "validation.every": 4, **changes},
        out=folder / "run",
        device="cpu",
        workers=1,
        quiet=True,
    )
    return kinspace.load(run.folder, "cpu")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="abe", marks=pytest.mark.slow),
        pytest.param({"model.depths": True}, id="hdc"),
    ],
)
def test_a_run_is_loaded_and_exported(changes: dict[str, Any], tmp_path: Path) -> None:
    model = trained("hdc" if changes else "abe", {"model.dim": 24, **changes}, tmp_path)
    some = [digits().pictures.read(i) for i in range(3)]
    vectors = model.encode(some)
    assert vectors.shape == (3, 24)
    groups = torch.as_tensor(vectors).unflatten(1, (3 if changes else 8, -1))
    torch.testing.assert_close(
        groups.norm(dim=2), torch.full(groups.shape[:2], groups.shape[1] ** -0.5)
    )
    assert export_onnx(model, tmp_path / "model.onnx", some) < 1e-5


def test_a_run_with_views_at_test_is_loaded_and_exported_with_them(tmp_path: Path) -> None:
    views = {"test.mirror": True, "test.scales": [0.8, 1.0, 1.25]}
    model = trained("contrastive", views, tmp_path)
    some = [digits().pictures.read(i) for i in range(3)]
    assert isinstance(model.module, Embedder)
    assert (model.module.mirror, model.module.scales) == (True, (0.8, 1.0, 1.25))
    assert export_onnx(model, tmp_path / "model.onnx", some) < 1e-5
    seen = model.encode(some)
    model.module.scales = (1.0,)
    assert not np.allclose(model.encode(some), seen, atol=1e-4)
