"""A model as an ONNX file, checked against PyTorch on pictures. Needs the extra `onnx`.

The file takes `pictures` (batch, 3, size, size), made as its metadata "transform" says in words and
"transform_settings" in JSON, and gives `embeddings` (batch, dim) of length 1. The batch is free.
Where the model takes the mean over several views (`test.views`), `pictures` are whole squares of
8 bit and the file has the crops in it.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from kinspace import __version__
from kinspace._core.atomic_files import write_atomically
from kinspace._core.vectors import unit
from kinspace.data import load_dataset
from kinspace.data.transforms import TransformSettings, view_crops
from kinspace.inference.inputs import as_list, network_input
from kinspace.inference.model import EmbeddingModel, load
from kinspace.run import load_run_data

__all__ = ["Exported", "export_onnx", "export_run"]

CLOSE = 1e-4  # what the two may differ by, of vectors of length 1
FITS = {
    "squash": "resize both sides to {0}, bilinear",
    "short": "crop the largest square in the middle, resize it to {0}, bilinear",
    "long": "resize the longer side to {0}, bilinear, centered on a square of RGB 124, 116, 104",
}


def export_onnx(model: EmbeddingModel, file: str | Path, pictures: Any) -> float:
    """Write the model to an ONNX file and compare the two on pictures; the largest difference.

    pictures: what `EmbeddingModel.encode` takes, real ones. A difference above 1e-4 is an error,
    and then there is no file.
    """
    file = Path(file)
    _needed()
    asked = as_list(pictures, pictures=model.settings is not None)
    if not asked:
        raise ValueError("pictures: expected at least one to check the file on, got none")
    inputs = torch.stack([network_input(picture, model.transform) for picture in asked])
    apart = 0.0

    def write(part: Path) -> None:
        nonlocal apart
        _export(model, inputs, part)
        _describe(model, part)
        apart = _difference(model, part, inputs)
        if not apart <= CLOSE:
            raise ValueError(
                f"{file}: expected embeddings as PyTorch gives them, got a difference of "
                f"{apart:.1e} on {len(asked)} pictures; nothing was written"
            )

    write_atomically(file, write)
    return apart


@dataclass(frozen=True)
class Exported:
    """An ONNX file, its largest difference to PyTorch, and the number of pictures compared."""

    file: Path
    difference: float
    pictures: int


def export_run(
    run: EmbeddingModel | str | Path,
    file: str | Path | None = None,
    data: Any = None,
    *,
    count: int = 32,
) -> Exported:
    """Export a run's model by `export_onnx`, compared on pictures of its data.

    file: by default RUN/model.onnx. data: other pictures, a name or folder. count: how many of
    them are compared, evenly spaced.
    """
    model = run if isinstance(run, EmbeddingModel) else load(run, "cpu")
    target = model.run.folder / "model.onnx" if file is None else Path(file)
    pictures = (load_run_data(model.about) if data is None else load_dataset(data)).pictures
    step = max(1, len(pictures) // count)
    some = [pictures.read(row) for row in range(0, len(pictures), step)][:count]
    return Exported(target, export_onnx(model, target, some), len(some))


class _Embeddings(nn.Module):
    """The network with one input and unit vectors out, whatever it is."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.network, self.settings = model.module, model.settings
        self.crops: list[list[int]] = []
        if self.settings is not None and model.views > 1:
            self.crops = view_crops(model.views, self.settings).T.tolist()

    def forward(self, pictures: Tensor) -> Tensor:
        if not self.crops:
            return unit(self.network(pictures))
        views = torch.cat(list(self._views(pictures)))  # (views * batch, 3, size, size)
        return unit(self.network(views).unflatten(0, (len(self.crops), -1)).mean(0))

    def _views(self, squares: Tensor) -> Iterator[Tensor]:
        """`augmented_views` by what ONNX has: resize, cut, flip."""
        settings = self.settings
        assert settings is not None
        mean, std = torch.tensor([settings.mean, settings.std], device=squares.device)[
            ..., None, None
        ]
        images = squares.float() / 255
        for side, top, left, mirrored in self.crops:
            image = images
            if side != settings.resize:
                image = interpolate(images, (side, side), mode="bilinear", align_corners=False)
            image = image[..., top : top + settings.size, left : left + settings.size]
            yield ((image.flip(-1) if mirrored else image) - mean) / std


@torch.no_grad()
def _export(model: EmbeddingModel, inputs: Tensor, file: Path) -> None:
    example = torch.cat([inputs, inputs])[:2].to(model.device)  # a batch of 1 would be taken for 1
    with _quiet():
        torch.onnx.export(
            _Embeddings(model).eval(),
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
    settings = model.settings
    about = {
        "kinspace": __version__,
        "trained_on": str(model.about.get("data", "")),
        "method": str(model.about["recipe"].get("name", "")),
        "transform": "none: inputs as they were trained on"
        if settings is None
        else _words(settings, model.views),
        "transform_settings": json.dumps(None if settings is None else settings.to_dict()),
        "similarity": "cosine",
    }
    onnx.helper.set_model_props(written, about)
    onnx.save(written, str(file))


def _words(settings: TransformSettings, views: int = 1) -> str:
    fit = FITS[settings.fit].format(settings.resize)
    if views > 1:
        return f"RGB, upright; {fit}; 8 bit; channels first; the file takes {views} crops of it"
    side = settings.at_test().size
    mean, std = (", ".join(f"{v:g}" for v in values) for values in (settings.mean, settings.std))
    return (
        f"RGB, upright; {fit}; crop the middle {side} x {side}; divide by 255; "
        f"subtract {mean}; divide by {std}; channels first"
    )


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
