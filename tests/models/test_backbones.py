"""Backbones by name, and their weights in files."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from kinspace.models import (
    BACKBONES,
    Preprocessing,
    load_weights,
    make_backbone,
    make_embedder,
    read_weights,
    save_weights,
)
from kinspace.models.external import from_timm

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("in_channels", [1, 3])
def test_our_own_nets_say_what_they_give_and_what_they_want(name: str, in_channels: int) -> None:
    backbone = make_backbone(name, in_channels=in_channels)
    wanted = backbone.preprocessing
    assert len(wanted.mean) == len(wanted.std) == in_channels
    side = wanted.size if name != "googlenet" else 64
    features = backbone(torch.randn(2, in_channels, side, side))
    assert features.shape[:2] == (2, backbone.features)
    features.sum().backward()
    assert all(value.grad is not None for value in backbone.parameters())


def test_googlenet_wants_caffes_mean_at_227_pixels() -> None:
    assert make_backbone("googlenet").preprocessing == Preprocessing(
        (0.48235, 0.45882, 0.40784), (0.229, 0.224, 0.225), 227
    )


@pytest.mark.parametrize(("size", "side"), [(28, 4), (32, 4), (48, 3), (64, 2), (96, 3), (128, 4)])
def test_the_small_net_ends_in_a_few_positions(size: int, side: int) -> None:
    backbone = make_backbone("small", options={"size": size, "width": 4, "blocks": 2})
    assert backbone(torch.randn(2, 3, size, size)).shape == (2, 32, side, side)
    assert backbone.preprocessing.size == size


def test_the_mnist_convnet_hands_on_where_things_are() -> None:
    backbone = make_backbone("mnist_convnet", in_channels=1)
    assert backbone(torch.zeros(3, 1, 28, 28)).shape == (3, 3136, 1, 1)
    with pytest.raises(ValueError, match=r"expected pictures of 28x28, got \(3, 1, 32, 32\)"):
        backbone(torch.zeros(3, 1, 32, 32))


def test_torchvisions_map_is_what_its_pooling_gets() -> None:
    backbone = make_backbone("torchvision:resnet18", seed=5).eval()
    torch.manual_seed(5)
    whole = models.resnet18(weights=None).eval()
    seen: list[Tensor] = []
    whole.avgpool.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    pictures = torch.randn(2, 3, 64, 64)
    whole(pictures)
    assert torch.equal(backbone(pictures), seen[0])
    assert backbone.features == 512
    assert backbone.preprocessing == Preprocessing(*IMAGENET, 224)


@pytest.mark.parametrize(
    ("name", "features"), [("squeezenet1_1", 512), ("shufflenet_v2_x0_5", 1024)]
)
def test_torchvision_families_are_cut_at_their_map(name: str, features: int) -> None:
    backbone = make_backbone(f"torchvision:{name}", in_channels=1).eval()
    assert backbone.features == features
    assert backbone(torch.randn(1, 1, 64, 64)).shape[:2] == (1, features)
    assert all(value.requires_grad for value in backbone.parameters())


def test_torchvisions_transformer_points_to_timms() -> None:
    with pytest.raises(ValueError, match="tokens cannot be had; use timm's"):
        make_backbone("torchvision:vit_b_16")


def test_timms_map_is_what_its_pooling_gets() -> None:
    backbone = make_backbone("resnet10t", seed=5).eval()
    torch.manual_seed(5)
    whole = timm.create_model("resnet10t", num_classes=0).eval()
    pictures = torch.randn(2, 3, 64, 64)
    features = backbone(pictures)
    assert features.shape == (2, 512, 2, 2)
    torch.testing.assert_close(features.mean((2, 3)), whole(pictures))
    config = whole.pretrained_cfg
    assert backbone.preprocessing == Preprocessing(
        config["mean"], config["std"], config["input_size"][-1]
    )


def test_a_transformer_gives_tokens_and_says_which_are_patches() -> None:
    options = {"img_size": 32, "depth": 2}
    config = {"backbone": {"name": "timm:vit_tiny_patch16_224", "options": options}}
    model = make_embedder({**config, "head": {"dim": 8}}).eval()
    pictures = torch.randn(2, 3, 32, 32)
    tokens = model.backbone(pictures)
    assert tokens.shape == (2, 1 + 4, 192)
    assert model.backbone.features == 192
    assert model.backbone.prefix_tokens == 1
    assert model.preprocessing == Preprocessing((0.5,) * 3, (0.5,) * 3, 32)
    assert model.head.pooling == "token"  # as its own classifier
    assert torch.equal(model.features(pictures), tokens[:, 0])
    mean = make_embedder({**config, "head": {"dim": 8, "pooling": "avg"}}).eval()
    torch.testing.assert_close(mean.features(pictures), tokens[:, 1:].mean(1))


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "vit_base_patch16_siglip_224"])
def test_a_class_token_that_the_classifier_does_not_read_is_no_default(name: str) -> None:
    options = {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2}
    assert make_backbone(f"timm:{name}", options=options).pooling == "avg"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit_tiny_patch16_224", {"depth": 2}),
        ("eva02_tiny_patch14_224", {"depth": 2}),
        ("deit_tiny_distilled_patch16_224", {"depth": 2}),
    ],
)
def test_position_embeddings_are_resampled_to_the_size_of_the_picture(
    name: str, options: dict[str, int]
) -> None:
    backbone = make_backbone(f"timm:{name}", options=options, seed=3).eval()
    fixed = timm.create_model(name, num_classes=0, dynamic_img_size=False, **options).eval()
    fixed.load_state_dict(backbone.trunk.state_dict())
    native = torch.randn(1, 3, 224, 224)
    torch.testing.assert_close(backbone(native), fixed.forward_features(native))
    patch = fixed.patch_embed.patch_size[0]
    for side in (4 * patch, 10 * patch):
        tokens = backbone(torch.randn(1, 3, side, side))
        assert tokens.shape[1] == backbone.prefix_tokens + (side // patch) ** 2


def test_windows_of_swin_are_fitted_to_the_size_of_the_picture() -> None:
    options = {"depths": (1, 1), "embed_dim": 16, "num_heads": (1, 2)}
    name = "swin_tiny_patch4_window7_224"
    backbone = make_backbone(f"timm:{name}", options=options).eval()
    fixed = timm.create_model(name, num_classes=0, **options).eval()
    fixed.load_state_dict(backbone.trunk.state_dict())
    native = torch.randn(1, 3, 224, 224)
    expected = fixed.forward_features(native).permute(0, 3, 1, 2)
    torch.testing.assert_close(backbone(native), expected)
    assert backbone(torch.randn(1, 3, 160, 160)).shape == (1, 32, 20, 20)


def test_the_seed_of_a_net_without_position_embeddings_is_as_before() -> None:
    torch.manual_seed(5)
    own = timm.create_model("resnet10t", num_classes=0).state_dict()
    made = make_backbone("timm:resnet10t", seed=5).trunk.state_dict()
    assert all(torch.equal(value, own[key]) for key, value in made.items())


def test_channels_that_come_last_are_put_second() -> None:
    options = {"img_size": 64, "depths": (1, 1), "embed_dim": 16, "num_heads": (1, 2)}
    backbone = make_backbone(
        "timm:swin_tiny_patch4_window7_224", options={**options, "window_size": 4}
    )
    raw = backbone.trunk.forward_features(torch.randn(2, 3, 64, 64))  # type: ignore[operator]
    assert raw.shape == (2, 8, 8, 32)
    assert backbone(torch.randn(2, 3, 64, 64)).shape == (2, 32, 8, 8)


def test_what_timm_has_behind_the_map_is_frozen_and_the_rest_learns() -> None:
    trunk = from_timm("mobilenetv3_small_050", options={}).module
    frozen = {key for key, value in trunk.named_parameters() if not value.requires_grad}
    assert frozen == {"conv_head.weight", "conv_head.bias"}
    trunk.forward_features(torch.randn(2, 3, 64, 64)).sum().backward()  # type: ignore[operator]
    without = {key for key, value in trunk.named_parameters() if value.grad is None}
    assert without == frozen


def test_a_backbone_can_be_built_where_gradients_are_off() -> None:
    with torch.no_grad():
        backbone = make_backbone("timm:resnet10t")
    assert all(value.requires_grad for value in backbone.parameters())


@pytest.mark.parametrize("name", ["small", "torchvision:squeezenet1_1", "timm:resnet10t"])
def test_the_seed_decides_the_weights_and_nothing_else_does(name: str) -> None:
    first = make_backbone(name, seed=1).state_dict()
    torch.manual_seed(99)
    before = torch.get_rng_state()
    again = make_backbone(name, seed=1).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    other = make_backbone(name, seed=2).state_dict()
    assert any(not torch.equal(value, other[key]) for key, value in first.items())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("googlnet", "'googlenet'"),
        ("resnet5", "'resnet50'"),
        ("timm:smal", "'small'"),
        ("tim:resnet18", "'resnet18'"),
        ("torchvision:resnet10t", "'resnet10t'"),  # timm has it
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"unknown backbone '{name}'; did you mean .*{nearest}"):
        make_backbone(name)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="small: unknown option 'widht'; choose from: width, bl"):
        make_backbone("small", options={"widht": 8})
    with pytest.raises(ValueError, match="googlenet: unknown option 'num_classes'; choose from: i"):
        make_backbone("googlenet", options={"num_classes": 10})
    with pytest.raises(ValueError, match=r"torchvision:resnet18: wrong options \{'widht': 8\}"):
        make_backbone("torchvision:resnet18", options={"widht": 8})
    with pytest.raises(ValueError, match="width: expected at least 1, got 0"):
        make_backbone("small", options={"width": 0})


# Weights


def test_a_file_with_a_classifier_loads_and_the_classifier_is_named(tmp_path: Path) -> None:
    whole = models.resnet18(weights=None)
    save_weights(whole, tmp_path / "resnet18.safetensors")
    backbone = make_backbone("torchvision:resnet18", weights=tmp_path / "resnet18.safetensors")
    assert backbone.ignored == ("fc.bias", "fc.weight")
    expected = whole.state_dict()
    for key, value in backbone.trunk.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_the_classifier_may_be_missing_and_so_may_the_counts_of_batches(tmp_path: Path) -> None:
    state = timm.create_model("resnet10t", num_classes=0).state_dict()
    kept = {key: value for key, value in state.items() if not key.endswith("batches_tracked")}
    assert len(kept) < len(state)
    save_file(kept, tmp_path / "net.safetensors")
    backbone = make_backbone("resnet10t", weights=tmp_path / "net.safetensors")
    assert backbone.ignored == ()
    assert torch.equal(backbone.state_dict()["trunk.conv1.0.weight"], state["conv1.0.weight"])


def test_weights_of_a_saved_embedder_warm_start_a_backbone(tmp_path: Path) -> None:
    model = make_embedder({"backbone": {"name": "small", "seed": 7}, "head": {"dim": 4}})
    save_weights(model, tmp_path / "model.safetensors")
    backbone = make_backbone("small", weights=tmp_path / "model.safetensors")
    assert backbone.ignored == ("head.linear.bias", "head.linear.weight")
    expected = model.backbone.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in backbone.state_dict().items())


def test_a_gray_backbone_sees_a_gray_picture_as_the_colored_one_did(tmp_path: Path) -> None:
    colored = make_backbone("small", options={"width": 4}, seed=3).eval()
    save_weights(colored.trunk, tmp_path / "net.safetensors")
    gray = make_backbone(
        "small", options={"width": 4}, in_channels=1, weights=tmp_path / "net.safetensors"
    ).eval()
    picture = torch.randn(1, 1, 96, 96)
    torch.testing.assert_close(gray(picture), colored(picture.expand(-1, 3, -1, -1)))


def test_keys_that_do_not_fit_are_counted_and_a_few_named(tmp_path: Path) -> None:
    save_weights(make_backbone("small").trunk, tmp_path / "small.safetensors")
    with pytest.raises(
        ValueError, match=r"small\.safetensors: lacks conv1\.conv\.weight, "
    ) as caught:
        make_backbone("googlenet", weights=tmp_path / "small.safetensors")
    text = str(caught.value)
    assert "and 110 more" in text
    assert "has unexpected" in text
    assert "Are these weights of another model?" in text


def test_a_shape_that_does_not_fit_is_named(tmp_path: Path) -> None:
    save_weights(make_backbone("small").trunk, tmp_path / "small.safetensors")
    expected = r"another shape of stem.0.0.weight \(\(16, 3, 3, 3\), expected \(8, 3, 3, 3\)\)"
    with pytest.raises(ValueError, match=expected):
        make_backbone("small", options={"width": 8}, weights=tmp_path / "small.safetensors")


def test_a_failed_load_changes_nothing(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.clone()
    save_file({"weight": torch.zeros(2, 2), "bias": torch.zeros(3)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="another shape of bias"):
        load_weights(layer, tmp_path / "a.safetensors")
    assert torch.equal(layer.weight, before)


def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1)}, tmp_path / "net.pth")
    with pytest.raises(ValueError, match="expected a safetensors file, got a pickle") as caught:
        make_backbone("small", weights=tmp_path / "net.pth")
    assert "save_file(torch.load(" in str(caught.value)
    assert "net.safetensors" in str(caught.value)


def test_the_advice_for_a_pickle_works(tmp_path: Path) -> None:
    torch.save({"weight": torch.arange(3.0)}, tmp_path / "net.pth")
    with pytest.raises(ValueError, match="convert it once") as caught:
        read_weights(tmp_path / "net.pth")
    exec(str(caught.value).partition('python -c "')[2].removesuffix('"'))
    assert read_weights(tmp_path / "net.safetensors")["weight"].tolist() == [0, 1, 2]


def test_a_pickle_under_another_name_and_no_file_at_all_are_errors(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1)}, tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match="expected a safetensors file, cannot read it"):
        read_weights(tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match="expected a safetensors file, there is none"):
        read_weights(tmp_path / "absent.safetensors")


def test_channels_last_weights_are_saved_and_restored(tmp_path: Path) -> None:
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    save_weights(net, tmp_path / "net.safetensors")
    other = nn.Conv2d(3, 4, 3)
    load_weights(other, tmp_path / "net.safetensors")
    assert torch.equal(net.weight, other.weight)


def test_our_own_nets_have_nothing_to_fetch() -> None:
    with pytest.raises(
        ValueError, match=r"googlenet: there are no weights to fetch.*--weights FILE"
    ):
        make_backbone("googlenet", pretrained=True)
    with pytest.raises(ValueError, match="got both: choose one"):
        make_backbone("googlenet", pretrained=True, weights="x.safetensors")
