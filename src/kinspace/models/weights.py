"""Weights in safetensors files. Never a pickle: opening one can run any code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kinspace.models.lora import A, merge_lora

__all__ = ["load_weights", "read_weights", "save_weights", "take_weights"]

NAMED = 4  # keys that an error names at most
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")


def save_weights(module: nn.Module, path: str | PathLike[str]) -> None:
    """Write a module's parameters and buffers to a safetensors file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(nn.Linear(2, 3), f"{folder}/layer.safetensors")
    ...     sorted(read_weights(f"{folder}/layer.safetensors"))
    ['bias', 'weight']
    """
    # as they lie in memory would be an error for channels-last weights
    save_file({key: value.contiguous() for key, value in module.state_dict().items()}, path)


def read_weights(path: str | PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU.

    >>> read_weights("net.pth")
    Traceback (most recent call last):
    ValueError: net.pth: expected a safetensors file, got a pickle, which can run any code ...
    """
    path = Path(path)
    if path.suffix.lower() in PICKLES:
        raise ValueError(
            f"{path}: expected a safetensors file, got a pickle, which can run any code when it is "
            "opened. If you trust it, convert it once: "
            'python -c "import torch, safetensors.torch as s; '
            f"s.save_file(torch.load('{path}', weights_only=True), "
            f"'{path.with_suffix('.safetensors')}')\""
        )
    if not path.is_file():
        raise ValueError(f"{path}: expected a safetensors file, there is none")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file, cannot read it ({error})") from None


def load_weights(
    module: nn.Module, path: str | PathLike[str], *, spare: Iterable[str] = ()
) -> list[str]:
    """Load a safetensors file into a module; every key must fit, see `take_weights`.

    >>> import tempfile
    >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(a, f"{folder}/a.safetensors")
    ...     load_weights(b, f"{folder}/a.safetensors")
    []
    >>> bool((a.weight == b.weight).all())
    True
    """
    return take_weights(module, read_weights(path), source=str(path), spare=spare)


def take_weights(
    module: nn.Module, weights: Mapping[str, Tensor], *, source: str, spare: Iterable[str] = ()
) -> list[str]:
    """Load tensors by their keys; returns the keys that were left out as spare, sorted.

    spare: the modules whose weights may be there without a place ("fc": a classifier that was cut
    off). A missing, unexpected or misshapen tensor is an error that names it and `source`. Weights
    with LoRA are merged where the module has none (`kinspace.models.lora`).

    >>> layer = nn.Linear(2, 3)
    >>> take_weights(layer, {**layer.state_dict(), "fc.bias": layer.bias}, source="x", spare=["fc"])
    ['fc.bias']
    >>> take_weights(layer, {"weight": layer.weight}, source="x.safetensors")
    Traceback (most recent call last):
    ValueError: x.safetensors: lacks bias. Are these weights of another model?
    """
    own = module.state_dict()
    if any(key.endswith(A) and key not in own for key in weights):
        weights = merge_lora(weights)
    prefixes = tuple(f"{name}." for name in spare)
    extra = [key for key in weights if key not in own]
    ignored = sorted(key for key in extra if key.startswith(prefixes))
    # the batches a batch norm has seen: older files lack them, and they change no output
    missing = [key for key in own if key not in weights and not key.endswith("batches_tracked")]
    problems = [
        _some("lacks", missing),
        _some("has unexpected", [key for key in extra if key not in ignored]),
        _some(
            "has another shape of",
            [
                f"{key} ({tuple(weights[key].shape)}, expected {tuple(value.shape)})"
                for key, value in own.items()
                if key in weights and weights[key].shape != value.shape
            ],
        ),
    ]
    if found := [problem for problem in problems if problem]:
        raise ValueError(f"{source}: {'; '.join(found)}. Are these weights of another model?")
    module.load_state_dict({key: weights.get(key, value) for key, value in own.items()})
    return ignored


def _some(what: str, keys: list[str]) -> str:
    if not keys:
        return ""
    more = f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else ""
    return f"{what} {', '.join(keys[:NAMED])}{more}"
