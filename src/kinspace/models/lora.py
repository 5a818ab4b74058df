"""LoRA: of a transformer only low-rank changes of its attention layers train.

    W + B A,    A: (rank, inputs), B: (outputs, rank), B = 0 at the start

for the layers that make queries, keys and values and the one behind the attention. peft (the extra
`lora`) puts A and B into the net; the scale alpha / rank of the paper is 1. Checkpoints have W, A
and B, so that a run resumes exactly. Where weights are loaded into a plain net, W + B A is computed
(`merge_lora`): a trained model needs no peft.

Hu et al., LoRA: low-rank adaptation of large language models, ICLR 2022 (arXiv 2106.09685).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace.models.external import Trunk, freeze_unused

__all__ = ["add_lora", "merge_lora"]

LAYERS = r".*\battn\d*\.(qkv|[qkv](_proj)?|proj)"  # timm's names, of the whole path
BASE, A, B = ".base_layer.", ".lora_A.default.weight", ".lora_B.default.weight"  # peft's names


def add_lora(trunk: Trunk, rank: int, *, seed: int = 0) -> None:
    """Put LoRA of this rank into a transformer, in place; all else of it is frozen.

    >>> from kinspace.models.external import from_timm
    >>> trunk = from_timm("vit_tiny_patch16_224", options={"img_size": 32, "depth": 1})
    >>> add_lora(trunk, 2)
    >>> sum(value.numel() for value in trunk.module.parameters() if value.requires_grad)
    2304
    """
    checks.integer("lora", rank, at_least=1)
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ValueError("lora: it needs peft: pip install 'kinspace[lora]'") from None
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=LAYERS)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            inject_adapter_in_model(config, trunk.module)
        except ValueError:  # no layer has such a name
            raise ValueError(
                f"lora: expected a transformer of timm with attention layers, got "
                f"{type(trunk.module).__name__}; set lora to 0"
            ) from None
    freeze_unused(trunk.module, trunk.preprocessing)


def merge_lora(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights for a net without LoRA: each W + B A in place of W, A and B.

    >>> weights = {"qkv.base_layer.weight": torch.zeros(2, 2), "qkv.base_layer.bias": torch.ones(2),
    ...            "qkv.lora_A.default.weight": torch.ones(1, 2),
    ...            "qkv.lora_B.default.weight": torch.tensor([[1.0], [2.0]])}
    >>> merge_lora(weights)
    {'qkv.weight': tensor([[1., 1.],
            [2., 2.]]), 'qkv.bias': tensor([1., 1.])}
    """
    merged: dict[str, Any] = {}
    for key, value in weights.items():
        layer, base, name = key.rpartition(BASE)
        if base and name == "weight" and layer + A in weights:
            value = value + (weights[layer + B] @ weights[layer + A]).to(value.dtype)
        if not key.endswith((A, B)):
            merged[f"{layer}.{name}" if base else key] = value
    return merged
