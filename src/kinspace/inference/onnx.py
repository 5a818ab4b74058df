"""A model as an ONNX file, checked against PyTorch on pictures. Needs the extra `onnx`.

The file takes `pictures` (batch, 3, size, size), made as its metadata "transform" says in words and
"transform_settings" in JSON, and gives `embeddings` (batch, dim) of length 1. The batch is free.
Where the model takes the mean over several views (`test.views`), `pictures` are whole squares of
8 bit and the file has the crops in it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinspace._core.atomic_files import write_atomically
from kinspace.inference.export import (
    EmbeddingNetwork,
    description,
    example_inputs,
    require_close,
)
from kinspace.inference.model import EmbeddingModel

__all__ = ["export_onnx"]


def export_onnx(model: EmbeddingModel, file: str | Path, pictures: Any) -> float:
    """Write the model to an ONNX file and compare the two on pictures; the largest difference.

    pictures: what `EmbeddingModel.encode` takes, real ones. A difference above 1e-4 is an error,
    and then there is no file.
    """
    file = Path(file)
    _needed()
    inputs, apart = example_inputs(model, pictures), 0.0

    def write(part: Path) -> None:
        nonlocal apart
        _export(model, inputs, part)
        _describe(model, part)
        apart = _difference(model, part, inputs)
        require_close(file, apart, len(inputs))

    write_atomically(file, write)
    return apart


@torch.no_grad()
def _export(model: EmbeddingModel, inputs: Tensor, file: Path) -> None:
    example = torch.cat([inputs, inputs])[:2].to(model.device)  # a batch of 1 would be taken for 1
    with _quiet():
        torch.onnx.export(
            EmbeddingNetwork(model).eval(),
            (example,),
            str(file),
            input_names=["pictures"],
            output_names=["embeddings"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _describe(model: EmbeddingModel, file: Path) -> None:
    import onnx

    written = onnx.load(str(file))
    onnx.helper.set_model_props(written, description(model))
    onnx.save(written, str(file))


def _difference(model: EmbeddingModel, file: Path, inputs: Tensor) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    ours = model.embed_inputs(inputs).cpu().numpy()
    given = (inputs if inputs.dtype == torch.uint8 else inputs.float()).numpy()
    theirs = session.run(["embeddings"], {"pictures": given})[0]
    alone = session.run(["embeddings"], {"pictures": given[:1]})[0]
    return float(max(np.abs(theirs - ours).max(), np.abs(alone - ours[:1]).max()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on its own insides."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _needed() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"onnx: expected the packages it takes, got no {error.name}; "
            "pip install 'kinspace[onnx]'"
        ) from None
