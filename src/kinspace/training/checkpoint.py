"""Checkpoints: one safetensors file each, written atomically.

Tensors by name; the rest (step, positions, best validation) as JSON in the header. After a crash
there is the old file or the new one (`kinspace._core.atomic_files`). Reading runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from kinspace._core.atomic_files import write_atomically

__all__ = ["read_checkpoint", "write_checkpoint"]

_HEADER = "kinspace"


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors by name, and a state of JSON's types.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_checkpoint(Path(folder) / "last", {"x": torch.ones(2)}, {"step": 3})
    ...     read_checkpoint(Path(folder) / "last")
    ({'x': tensor([1., 1.])}, {'step': 3})
    """
    # memory of their own: safetensors refuses views of one tensor
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {_HEADER: json.dumps(state)}

    data = save(whole, metadata=header)  # its own writer hides the system's errors and the umask
    write_atomically(path, lambda part: part.write_bytes(data))


def read_checkpoint(
    path: Path, device: str | torch.device = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state that `write_checkpoint` wrote; a ValueError for other files."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:  # type: ignore[no-untyped-call]
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ValueError(f"{path}: expected a checkpoint, got no such file") from None
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: expected a checkpoint, got another file: {error}") from None
    if _HEADER not in header:
        raise ValueError(f"{path}: expected a checkpoint of kinspace, got other safetensors")
    return tensors, json.loads(header[_HEADER])
