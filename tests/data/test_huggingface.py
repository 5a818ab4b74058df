"""Data sets of the library Hugging Face datasets."""

import sys
from pathlib import Path

import pytest

from kinspace.data import load_dataset
from kinspace.data.huggingface import is_huggingface
from odd_pictures import scene


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'kinspace\[datasets\]'"):
        load_dataset("hf:user/moths")


def test_rows_become_pictures_with_the_names_of_their_classes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["io", "luna"])}
    )
    columns = {"image": [scene(n) for n in range(4)], "label": [1, 0, 1, 1]}
    rows = datasets.Dataset.from_dict(columns, features=features)
    assert is_huggingface(rows)
    data = load_dataset(rows)
    assert data.class_names == ("io", "luna")
    assert data.labels.tolist() == [1, 0, 1, 1]
    assert data.pictures.read(2).tobytes() == scene(2).convert("RGB").tobytes()
    rows.save_to_disk(tmp_path / "moths")
    again = load_dataset(tmp_path / "moths")
    assert (again.name, again.labels.tolist()) == ("moths", [1, 0, 1, 1])
    splits = datasets.DatasetDict({"train": rows, "validation": rows.select([0, 1])})
    assert load_dataset(splits).parts == ("train",) * 4 + ("val",) * 2


def test_columns_of_other_names_are_told(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(
        {"photo": [scene(n) for n in range(3)], "breed": ["pug", "collie", "pug"]},
        features=datasets.Features({"photo": datasets.Image(), "breed": datasets.Value("string")}),
    )
    assert not load_dataset(rows).labeled
    assert load_dataset(rows, columns={"label": "breed"}).class_names == ("collie", "pug")
    with pytest.raises(ValueError, match="expected a column 'race', got photo, breed"):
        load_dataset(rows, columns={"label": "race"})
