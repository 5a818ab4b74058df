"""The backends that embed on a CPU: the numbers of the module, and what gives way to what."""

import copy
import sys
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kinspace.models import Embedder, Head, batch_norms, make_embedder
from kinspace.models.inference_network import VARIABLE, fuse_batch_norm, inference_network

SMALL = {"name": "small", "options": {"width": 4, "size": 32}}
BACKBONES = [
    SMALL,
    {"name": "googlenet"},
    {"name": "timm:resnet10t"},
    {"name": "timm:tf_efficientnet_lite0"},
    {"name": "torchvision:mobilenet_v3_small"},
    {"name": "timm:vit_tiny_patch16_224"},
]
MANY = 10_000  # pictures


def embedder(backbone: dict[str, Any] = SMALL, **options: Any) -> Embedder:
    """In eval mode, with statistics of batch norm as a training leaves them: not 0 and 1."""
    model = make_embedder({"backbone": backbone, "head": {"dim": 8}, **options}).eval()
    for norm in batch_norms(model).values():
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.uniform_(norm.running_mean, -0.2, 0.2)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.2, 0.2)
    return model


def pictures(count: int = 5, side: int = 32) -> Tensor:
    return torch.rand(count, 3, side, side)


@pytest.mark.parametrize("backend", ["fused", "onnxruntime"])
@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda backbone: backbone["name"])
def test_a_backend_gives_the_vectors_of_the_module(backbone: dict[str, Any], backend: str) -> None:
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")
    model = embedder(backbone)
    images = pictures(side=32 if backbone is SMALL else 224)
    with torch.no_grad():
        expected = model(images)
    with inference_network(model, pictures=MANY, backend=backend) as network:
        found = network(images)
    assert network.backend == backend
    assert not found.requires_grad
    assert float(1 - torch.cosine_similarity(found, expected).min()) < 1e-6
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("backend", ["fused", "onnxruntime"])
def test_features_and_views_at_test_are_those_of_the_module(backend: str) -> None:
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")
    scales = [1.0, 1.25] if backend == "fused" else [1.0]  # the exporter cannot round a size
    model = embedder(test={"mirror": True, "scales": scales})
    images = pictures()
    with inference_network(
        model, pictures=MANY, embed=Embedder.features, backend=backend
    ) as network:
        found = network(images)
    torch.testing.assert_close(found, model.features(images).detach(), atol=1e-5, rtol=1e-4)


def test_the_module_stays_as_it_is() -> None:
    model = embedder()
    before = copy.deepcopy(model.state_dict())
    layers = [type(part) for part in model.modules()]
    layout = [value.stride() for value in model.parameters()]
    with inference_network(model, pictures=MANY, backend="fused") as network:
        network(pictures())
    assert [type(part) for part in model.modules()] == layers
    assert [value.stride() for value in model.parameters()] == layout
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks for part in model.modules())
    assert all(value.requires_grad for value in model.parameters())


def test_every_batch_norm_after_a_convolution_is_folded() -> None:
    model = embedder({"name": "timm:resnet10t"})
    assert len(batch_norms(model)) > 10
    assert not batch_norms(fuse_batch_norm(model, pictures(1, 64)))


def test_batches_come_in_order_while_others_are_computed() -> None:
    model = embedder()
    batches = [pictures(count) for count in (3, 7, 1, 4, 300, 2)]
    with inference_network(model, pictures=MANY, backend="fused") as network:
        found = list(network.map(iter(batches)))
    assert [len(vectors) for vectors in found] == [3, 7, 1, 4, 300, 2]
    for vectors, images in zip(found, batches, strict=True):
        torch.testing.assert_close(vectors, model(images).detach(), atol=1e-5, rtol=1e-4)


def test_pictures_of_another_size_go_through_the_module() -> None:
    pytest.importorskip("onnxruntime")
    model = embedder({"name": "timm:resnet10t"})
    small, large = pictures(side=64), pictures(side=96)
    with inference_network(model, pictures=MANY, backend="onnxruntime") as network:
        network(small)
        torch.testing.assert_close(network(large), model(large).detach(), atol=1e-5, rtol=1e-4)


def test_the_number_of_pictures_chooses_the_backend() -> None:
    pytest.importorskip("onnxruntime")
    model, images = embedder(), pictures()
    for count, backend in ((100, "pytorch"), (2_000, "fused"), (20_000, "onnxruntime")):
        with inference_network(model, pictures=count, backend="auto") as network:
            network(images)
        assert network.backend == backend


def test_without_onnxruntime_the_copy_in_pytorch_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with inference_network(embedder(), pictures=20_000, backend="auto") as network:
        network(pictures())
    assert network.backend == "fused"
    (note,) = network.notes
    assert note.startswith("onnxruntime: ModuleNotFoundError")


class Standardized(nn.Conv2d):
    """Its weights have length 1 whatever they are: folding a scale into them is lost."""

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, nn.functional.normalize(self.weight, dim=0), self.bias)


def test_a_backbone_that_cannot_be_folded_is_called_as_it_is() -> None:
    norm = nn.BatchNorm2d(6)
    nn.init.uniform_(norm.weight, 0.1, 3.0)
    backbone = nn.Sequential(Standardized(3, 6, 3), norm, nn.ReLU())
    model = Embedder(backbone, Head(6, 4)).eval()
    images = pictures()
    with inference_network(model, pictures=2_000, backend="auto") as network:
        found = network(images)
    assert network.backend == "pytorch"
    assert "differ" in network.notes[0]
    torch.testing.assert_close(found, model(images).detach())
    with (
        pytest.raises(ValueError, match="KINSPACE_INFERENCE: expected a backend that can embed"),
        inference_network(model, pictures=2_000, backend="fused") as network,
    ):
        network(images)


def test_a_convolution_before_two_batch_norms_is_not_folded() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)
            self.first, self.second = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.convolution(x)
            return torch.cat([self.first(x), self.second(x)], dim=1)

    module, images = Twice().eval(), pictures()
    expected = module(images)
    assert len(batch_norms(fuse_batch_norm(module, images))) == 2
    torch.testing.assert_close(module(images), expected)


def test_other_modules_and_inputs_are_called_as_they_are() -> None:
    model = embedder()
    hooked = embedder()
    hooked.backbone.register_forward_hook(lambda *_: None)
    for module, inputs, note in (
        (nn.Flatten(), pictures(), "no Embedder"),
        (embedder().train(), pictures(), "training mode"),
        (model.double(), pictures().double(), "no pictures in float32"),
        (hooked, pictures(), "hooks"),
    ):
        with inference_network(module, pictures=MANY, backend="fused") as network:
            assert len(network(inputs)) == len(inputs)
        assert network.backend == "pytorch"
        assert note in network.notes[0]


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "pytorch")
    model, images = embedder(), pictures()
    with inference_network(model, pictures=MANY) as network:
        assert torch.equal(network(images), model(images).detach())
    assert network.backend == "pytorch"
    monkeypatch.setenv(VARIABLE, "fast")
    with (
        pytest.raises(ValueError, match=r"KINSPACE_INFERENCE: .*pytorch.*, got .fast"),
        inference_network(model, pictures=MANY),
    ):
        pass


def test_threads_end_and_their_number_is_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with inference_network(embedder(), pictures=MANY, backend="fused") as network:
            network(pictures())
            assert sum("kinspace-inf" in thread.name for thread in threading.enumerate()) == 3
        assert torch.get_num_threads() == 3
        assert not any("kinspace-inf" in thread.name for thread in threading.enumerate())
    finally:
        torch.set_num_threads(before)
