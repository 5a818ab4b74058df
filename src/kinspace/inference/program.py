"""A model as a program of torch.export, checked against the model on pictures. Needs no extra.

    program = torch.export.load("model.pt2").module()
    embeddings = program(pictures)

The description is the extra file "kinspace.json" (`torch.export.load(..., extra_files=...)`).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from kinspace._core.atomic_files import write_atomically
from kinspace.inference.export import EmbeddingNetwork, description, example_inputs, require_close
from kinspace.inference.model import EmbeddingModel

__all__ = ["export_program"]


@torch.no_grad()
def export_program(model: EmbeddingModel, file: str | Path, pictures: Any) -> float:
    """Write the model as a program and compare the two on pictures; the largest difference.

    pictures: what `EmbeddingModel.encode` takes, real ones. A difference above 1e-4 is an error,
    and then there is no file.
    """
    file = Path(file)
    inputs, apart = example_inputs(model, pictures).to(model.device), 0.0
    network = EmbeddingNetwork(model).eval()

    def write(part: Path) -> None:
        nonlocal apart
        with warnings.catch_warnings():  # of the exporter, on its own insides
            warnings.simplefilter("ignore")
            batch = torch.cat([inputs, inputs])[:2]  # a batch of 1 would be taken for 1
            sizes = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(network, (batch,), dynamic_shapes=sizes)
            with part.open("wb") as out:
                extra = {"kinspace.json": json.dumps(description(model))}
                torch.export.save(program, out, extra_files=extra)
            with part.open("rb") as stored:
                loaded = torch.export.load(stored).module()
        found = loaded(inputs)
        ours = model.embed_inputs(inputs)
        apart = float((found - ours).abs().max())
        require_close(file, apart, len(inputs))

    write_atomically(file, write)
    return apart
