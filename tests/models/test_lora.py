"""LoRA in transformers of timm, and what is left of it in a trained model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kinspace.models import Embedder, load_weights, make_backbone, make_embedder, save_weights

VIT: dict[str, Any] = {
    "name": "timm:vit_tiny_patch16_224",
    "options": {"img_size": 32, "depth": 2, "embed_dim": 48},
}


def with_lora(rank: int = 2) -> Embedder:
    return make_embedder({"backbone": {**VIT, "lora": rank}, "head": {"dim": 4}})


def trained(model: Embedder) -> Embedder:
    """The model after some steps on noise."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 32, 32)).square().sum().backward()
        optimizer.step()
    return model.eval()


def test_only_its_matrices_and_the_head_train() -> None:
    model = with_lora()
    learning = {name for name, value in model.named_parameters() if value.requires_grad}
    assert all(".lora_" in name or name.startswith("head.") for name in learning)
    adapted = {name.split(".lora_")[0] for name in learning if ".lora_" in name}
    blocks = "backbone.trunk.blocks"
    assert adapted == {f"{blocks}.{i}.attn.{name}" for i in (0, 1) for name in ("qkv", "proj")}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained(model)
    moved = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert moved == learning


def test_it_begins_as_the_net_it_is_put_into_and_by_its_seed() -> None:
    torch.manual_seed(1)
    pictures = torch.randn(2, 3, 32, 32)
    plain = make_backbone(**VIT, seed=3).eval()
    first, again = (make_backbone(**VIT, lora=2, seed=3).eval() for _ in range(2))
    torch.testing.assert_close(first(pictures), plain(pictures))
    states = first.state_dict(), again.state_dict()
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


def test_its_weights_load_where_there_is_no_peft(tmp_path: Path) -> None:
    model = trained(with_lora())
    save_weights(model, tmp_path / "model.safetensors")
    torch.manual_seed(2)
    pictures = torch.randn(3, 3, 32, 32)
    torch.save(pictures, tmp_path / "pictures.pt")
    code = f"""
import sys
sys.modules["peft"] = None  # importing it fails
import torch
from kinspace.models import load_weights, make_embedder
model = make_embedder({model.config()!r})
load_weights(model, sys.argv[1])
pictures = torch.load(sys.argv[2])
torch.save(model.eval()(pictures), sys.argv[3])
"""
    files = [str(tmp_path / name) for name in ("model.safetensors", "pictures.pt", "out.pt")]
    subprocess.run([sys.executable, "-c", code, *files], check=True)
    torch.testing.assert_close(torch.load(tmp_path / "out.pt"), model(pictures))


def test_its_weights_start_another_backbone(tmp_path: Path) -> None:
    model = trained(with_lora())
    save_weights(model, tmp_path / "model.safetensors")
    backbone = make_backbone(**VIT, weights=tmp_path / "model.safetensors").eval()
    pictures = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(backbone(pictures), model.backbone(pictures))


def test_a_net_with_lora_takes_back_exactly_what_it_saved(tmp_path: Path) -> None:
    model, other = trained(with_lora()), with_lora()
    save_weights(model, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    saved = model.state_dict()
    assert all(torch.equal(value, saved[key]) for key, value in other.state_dict().items())


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "eva02_tiny_patch14_224"])
def test_other_transformers_have_it_too(name: str) -> None:
    backbone = make_backbone(f"timm:{name}", lora=2)
    learning = [value for value in backbone.parameters() if value.requires_grad]
    size = backbone.preprocessing.size
    backbone(torch.randn(1, 3, size, size)).sum().backward()  # type: ignore[union-attr]
    assert learning
    assert all(value.grad is not None for value in learning)


def test_a_net_without_attention_and_a_missing_peft_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match=r"lora: expected a transformer of timm .* got ResNet"):
        make_backbone("timm:resnet10t", lora=2)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"lora: it needs peft: pip install 'kinspace\[lora\]'"):
        with_lora()
