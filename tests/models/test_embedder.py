"""The Embedder: freezing, and the way to a file and back."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kinspace import use_kernels
from kinspace.models import (
    Embedder,
    Head,
    batch_norms,
    load_weights,
    make_backbone,
    make_embedder,
    save_weights,
)

SMALL = {"name": "small", "options": {"width": 4, "size": 28}}


def small(**head: Any) -> Embedder:
    return make_embedder({"backbone": SMALL, "head": {"dim": 8, **head}})


def pictures(count: int = 4, side: int = 28) -> torch.Tensor:
    return torch.randn(count, 3, side, side)


def test_an_embedding_is_the_head_of_the_pooled_features() -> None:
    model = small(pooling="both", normalize=True)
    batch = pictures()
    assert model.features(batch).shape == (4, 32)
    model.eval()
    torch.testing.assert_close(model(batch), model.head.embed(model.features(batch)))
    torch.testing.assert_close(model(batch), model.head(model.backbone(batch)))
    assert model.dim == 8
    plain = model(batch, normalize=False)
    torch.testing.assert_close(plain / plain.norm(dim=1, keepdim=True), model(batch))


@pytest.mark.parametrize(
    "backbone",
    [
        {"name": "googlenet", "in_channels": 1},
        {"name": "mnist_convnet", "seed": 4},
        SMALL,
        {"name": "timm:resnet10t"},
        {"name": "torchvision:squeezenet1_1"},
    ],
    ids=lambda backbone: backbone["name"],
)
def test_config_and_weights_restore_the_same_model(
    backbone: dict[str, Any], tmp_path: Path
) -> None:
    head = {"dim": 6, "pooling": "max", "dropout": 0.2, "normalize": True, "seed": 3}
    model = make_embedder({"backbone": backbone, "head": head})
    side = 28 if backbone["name"] == "mnist_convnet" else 64
    batch = torch.randn(2, backbone.get("in_channels", 3), side, side)
    with torch.no_grad():
        model(batch)  # moves the running statistics
        for value in model.parameters():
            value.add_(0.01 * torch.randn_like(value))
    config = json.loads(json.dumps(model.config()))
    save_weights(model, tmp_path / "model.safetensors")
    again = make_embedder(config)
    assert not torch.equal(again.eval()(batch), model.eval()(batch))
    assert load_weights(again, tmp_path / "model.safetensors") == []
    assert torch.equal(again(batch), model(batch))
    assert again.config() == model.config() == {**config, "head": head}
    assert again.preprocessing == model.preprocessing


def test_the_same_config_gives_the_same_start() -> None:
    first, again = small().state_dict(), small().state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.items())


def test_a_backbone_of_ones_own_embeds_and_has_no_config() -> None:
    model = Embedder(nn.Linear(5, 7), Head(7, 3))
    assert model(torch.randn(2, 5)).shape == (2, 3)
    assert model.preprocessing is None
    with pytest.raises(
        ValueError, match="config: expected a backbone by make_backbone, got Linear"
    ):
        model.config()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"backbon": {}}, "unknown part of a model 'backbon'; did you mean 'backbone'?"),
        ({"head": {"dim": 4}}, "backbone: expected a name, there is none"),
        (
            {"backbone": {"nam": "small"}},
            "unknown option of the backbone 'nam'; did you mean 'name'?",
        ),
        (
            {"backbone": SMALL, "head": {"dimm": 4}},
            "unknown option of the head 'dimm'; did you mean 'di",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        make_embedder(config)


# Freezing


def test_a_frozen_batch_norm_keeps_its_statistics_in_training() -> None:
    model = small()
    model.freeze_batch_norm()
    before = copy.deepcopy(dict(model.named_buffers()))
    assert model.train() is model
    assert model.training
    assert model.backbone.training
    model(pictures())
    assert all(torch.equal(value, before[key]) for key, value in model.named_buffers())
    unfrozen = small()
    unfrozen(pictures())
    assert any(not torch.equal(value, before[key]) for key, value in unfrozen.named_buffers())


@pytest.mark.parametrize("affine", [False, True])
def test_scale_and_shift_learn_only_if_asked_for(affine: bool) -> None:
    model = small()
    model.freeze_batch_norm(affine=affine)
    model.train()
    model(pictures()).square().sum().backward()
    layers = batch_norms(model)
    assert len(layers) == 12
    inside = {f"{name}.{which}" for name in layers for which in ("weight", "bias")}
    for key, value in model.named_parameters():
        assert (value.grad is not None) == (affine or key not in inside), key


def test_a_copy_of_a_frozen_model_is_frozen() -> None:
    model = small()
    model.freeze_batch_norm()
    twin = copy.deepcopy(model).train()
    assert not any(layer.training for layer in batch_norms(twin).values())


def test_a_frozen_backbone_gets_no_gradient_and_thaws() -> None:
    model = small()
    model.freeze_backbone()
    model(pictures()).sum().backward()
    assert all(value.grad is None for value in model.backbone.parameters())
    assert all(value.grad is not None for value in model.head.parameters())
    model.freeze_backbone(False)
    model(pictures()).sum().backward()
    assert all(value.grad is not None for value in model.parameters())


@pytest.mark.parametrize("norm_first", [False, True])
def test_thawing_leaves_frozen_what_was_frozen_otherwise(norm_first: bool) -> None:
    model = small()
    stem = model.backbone.trunk.get_submodule("stem.0.0")  # type: ignore[operator,union-attr]
    stem.requires_grad_(False)
    if norm_first:
        model.freeze_batch_norm()
    model.freeze_backbone()
    model.freeze_backbone()  # twice is once
    if not norm_first:
        model.freeze_batch_norm()
    model.freeze_backbone(False)
    frozen = {key for key, value in model.named_parameters() if not value.requires_grad}
    inside = {f"{name}.{which}" for name in batch_norms(model) for which in ("weight", "bias")}
    assert frozen == {"backbone.trunk.stem.0.0.weight", *inside}


# Speed and precision


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "googlenet"])
def test_a_compiled_model_gives_the_same_embeddings(name: str) -> None:
    torch._dynamo.reset()
    model = make_embedder({"backbone": {"name": name}, "head": {"dim": 8}})
    batch = pictures(2, 48)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for mode in (model.train, model.eval):
        mode()
        with use_kernels(False):  # a graph has the formulas, which round otherwise than kernels
            expected = model(batch)
        torch.testing.assert_close(compiled(batch), expected)
        gap = (model(batch) - expected).norm() / expected.norm()
        assert gap < 1e-5


@pytest.mark.parametrize("name", ["small", "googlenet"])
def test_channels_last_gives_the_same_embeddings(name: str) -> None:
    model = make_embedder({"backbone": {"name": name}, "head": {"dim": 8}}).eval()
    batch = pictures(2, 48)
    expected = model(batch)
    model.to(memory_format=torch.channels_last)
    found = model(batch.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected)


def test_autocast_trains_in_bfloat16_and_gives_full_precision_embeddings() -> None:
    model = Embedder(make_backbone("googlenet"), Head(1024, 8)).train()
    batch = pictures(2, 48)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = model(batch)
    assert embeddings.dtype == torch.float32
    exact = model(batch)
    assert ((embeddings - exact).norm() / exact.norm()).item() < 0.05
    embeddings.square().sum().backward()
    assert all(
        value.grad is not None and value.grad.isfinite().all() for value in model.parameters()
    )
