"""The ONNX file says what PyTorch says, and what to do to a picture before."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

import kinspace
from bundles import bare_run, digits
from kinspace.inference import export as exporting
from kinspace.inference import export_onnx


def test_a_file_gives_the_embeddings_of_the_model(tmp_path: Path) -> None:
    model = kinspace.load(bare_run(tmp_path), "cpu")
    some = [digits().pictures.read(i) for i in range(6)]
    file = tmp_path / "model.onnx"
    assert export_onnx(model, file, some) < 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "model.onnx"]
    about = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert json.loads(about["transform_settings"]) == model.about["transform"]
    # a reader of the metadata alone gets there: squash to 18, the middle 16, numbers as said
    assert "resize both sides to 18, bilinear; crop the middle 16 x 16" in about["transform"]
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    settings = json.loads(about["transform_settings"])
    for count in (1, 5):
        squares = [p.resize((18, 18), Image.Resampling.BILINEAR) for p in some[:count]]
        pixels = np.stack([np.asarray(p)[1:17, 1:17] / 255 for p in squares])
        inputs = ((pixels - settings["mean"]) / settings["std"]).transpose(0, 3, 1, 2)
        found = session.run(None, {"pictures": inputs.astype(np.float32)})[0]
        assert found == pytest.approx(model.encode(some[:count]), abs=1e-5)


@pytest.mark.parametrize("rescale", [0.0, 0.5])
def test_a_file_takes_the_views_of_the_model(rescale: float, tmp_path: Path) -> None:
    model = kinspace.load(bare_run(tmp_path), "cpu")
    assert model.settings is not None
    model.views, model.settings = 3, replace(model.settings, rescale=rescale)
    some = [digits().pictures.read(i) for i in range(4)]
    file = tmp_path / "model.onnx"
    assert export_onnx(model, file, some) < 1e-5
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    squares = [np.asarray(p.resize((18, 18), Image.Resampling.BILINEAR)) for p in some]
    found = session.run(None, {"pictures": np.stack(squares).transpose(0, 3, 1, 2)})[0]
    assert found == pytest.approx(model.encode(some), abs=1e-5)
    about = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert about["transform"].endswith("8 bit; channels first; the file takes 3 crops of it")


def test_a_file_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = kinspace.load(bare_run(tmp_path), "cpu")
    real = model.embed_inputs
    monkeypatch.setattr(model, "embed_inputs", lambda inputs: -real(inputs))
    with pytest.raises(ValueError, match=r"got a difference of .* on 2 pictures; nothing was"):
        export_onnx(model, tmp_path / "m.onnx", [digits().pictures.read(i) for i in range(2)])
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]
    with pytest.raises(ValueError, match="pictures: expected at least one to check the file on"):
        export_onnx(model, tmp_path / "m.onnx", [])


def test_every_fit_has_its_words() -> None:
    for fit in exporting.FITS:
        words = exporting._words(kinspace.data.TransformSettings(fit=fit))
        assert "256" in words
        assert "crop the middle 224 x 224" in words
    assert set(exporting.FITS) == set(kinspace.data.transforms.FITS)
