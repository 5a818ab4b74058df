"""A model as a file that runs without kinspace, compared with the model on pictures.

`onnx.py` writes ONNX, `program.py` a program of torch.export. Both take `pictures` (batch, 3, size,
size), made as the description in the file says, and give `embeddings` (batch, dim) of length 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from kinspace import __version__
from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.data import load_dataset
from kinspace.data.transforms import TransformSettings, view_crops
from kinspace.inference.inputs import as_list, network_input
from kinspace.inference.loader import load
from kinspace.inference.model import EmbeddingModel
from kinspace.run import load_run_data

__all__ = [
    "FORMATS",
    "EmbeddingNetwork",
    "Exported",
    "description",
    "example_inputs",
    "export_run",
    "require_close",
]

FORMATS = {"onnx": "model.onnx", "program": "model.pt2"}
CLOSE = 1e-4  # what the two may differ by, of vectors of length 1
FITS = {
    "squash": "resize both sides to {0}, bilinear",
    "short": "crop the largest square in the middle, resize it to {0}, bilinear",
    "long": "resize the longer side to {0}, bilinear, centered on a square of RGB 124, 116, 104",
}


@dataclass(frozen=True)
class Exported:
    """A file, its largest difference to PyTorch, and the number of pictures compared."""

    file: Path
    difference: float
    pictures: int


def export_run(
    run: EmbeddingModel | str | Path,
    file: str | Path | None = None,
    data: Any = None,
    *,
    format: str | None = None,  # noqa: A002 - the name of the option
    count: int = 32,
) -> Exported:
    """Export a run's model by `export_onnx` or `export_program`, compared on pictures of its data.

    format: "onnx" or "program" (torch.export, which needs no extra); None: by the file's ending,
    .onnx or .pt2, without a file "onnx". file: by default RUN/model.onnx or RUN/model.pt2. data:
    other pictures, a name or folder. count: how many of them are compared, evenly spaced.
    """
    chosen = _format(file, format)
    model = run if isinstance(run, EmbeddingModel) else load(run, "cpu")
    target = model.run.folder / FORMATS[chosen] if file is None else Path(file)
    pictures = (load_run_data(model.about) if data is None else load_dataset(data)).pictures
    step = max(1, len(pictures) // count)
    some = [pictures.read(row) for row in range(0, len(pictures), step)][:count]
    if chosen == "onnx":
        from kinspace.inference.onnx import export_onnx as export
    else:
        from kinspace.inference.program import export_program as export
    return Exported(target, export(model, target, some), len(some))


def _format(file: str | Path | None, given: str | None) -> str:
    if given is not None:
        return checks.choice("format", given, FORMATS)
    endings = {Path(name).suffix: name_of for name_of, name in FORMATS.items()}
    return "onnx" if file is None else endings.get(Path(file).suffix.lower(), "onnx")


def example_inputs(model: EmbeddingModel, pictures: Any) -> Tensor:
    """What the network takes for pictures, as `EmbeddingModel.encode` takes them."""
    asked = as_list(pictures, pictures=model.settings is not None)
    if not asked:
        raise ValueError("pictures: expected at least one to check the file on, got none")
    return torch.stack([network_input(picture, model.transform) for picture in asked])


def require_close(file: Path, apart: float, pictures: int) -> None:
    """A ValueError if the file differs from the model by more than rounding."""
    if not apart <= CLOSE:
        raise ValueError(
            f"{file}: expected embeddings as PyTorch gives them, got a difference of "
            f"{apart:.1e} on {pictures} pictures; nothing was written"
        )


class EmbeddingNetwork(nn.Module):
    """The network with one input and unit vectors out, whatever it is."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.network, self.settings = model.module, model.settings
        self.crops: list[list[int]] = []
        if self.settings is not None and model.views > 1:
            self.crops = view_crops(model.views, self.settings).T.tolist()

    def forward(self, pictures: Tensor) -> Tensor:
        """Unit vectors (batch, dim) of pictures (batch, 3, size, size)."""
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


def description(model: EmbeddingModel) -> dict[str, str]:
    """What a file says of itself: where it is from, and how its pictures are made."""
    settings = model.settings
    return {
        "kinspace": __version__,
        "trained_on": str(model.about.get("data", "")),
        "method": str(model.about["recipe"].get("name", "")),
        "transform": "none: inputs as they were trained on"
        if settings is None
        else _words(settings, model.views),
        "transform_settings": json.dumps(None if settings is None else settings.to_dict()),
        "similarity": "cosine",
    }


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
