from pathlib import Path

import numpy as np
import pytest
import torch

from kinspace.data import digits_dataset, from_arrays, load_dataset, moths_dataset
from kinspace.data.dataset import Dataset
from kinspace.data.standard import STANDARD_SETS
from odd_pictures import scene, write_clean


def test_digits_are_built_in() -> None:
    digits = load_dataset("digits")
    assert digits.name == "digits"
    image, label, _ = digits[0]
    assert label == 0
    assert np.asarray(image).max() == 15 / 16 * 255 // 1
    assert digits_dataset().labels.bincount().min() == 174


def test_moths_have_species_genera_and_attributes(tmp_path: Path) -> None:
    moths = moths_dataset(tmp_path, species=9, per_species=2, size=16)
    assert (len(moths), moths.num_classes) == (18, 9)
    assert moths.parents is not None
    assert moths.attributes is not None
    assert all(
        name.startswith(moths.parent_names[parent])
        for name, parent in zip(moths.class_names, moths.parents, strict=True)
    )
    assert moths.attributes.values.unique().tolist() == [0, 1]


def test_folders_tables_and_paths_of_either_type_are_opened(tmp_path: Path) -> None:
    write_clean(tmp_path / "photos")
    (tmp_path / "photos.csv").write_text("path,label\nphotos/kind 0/0.png,a\n")
    assert len(load_dataset(tmp_path / "photos")) == 9
    assert len(load_dataset(f"{tmp_path}/photos/")) == 9
    assert len(load_dataset(str(tmp_path / "photos.csv"))) == 1


def test_a_folder_named_like_a_built_in_set_is_never_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clean(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"write '\./digits' for the one here, 'digits:' for"):
        load_dataset("digits")
    assert len(load_dataset("./digits")) == 9
    assert len(load_dataset("digits:")) == 1797


def test_a_standard_set_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(folder: Path) -> Dataset:
        assert folder == tmp_path
        return digits_dataset()

    monkeypatch.setitem(STANDARD_SETS, "cub200", fake)  # type: ignore[arg-type]
    assert len(load_dataset(f"cub200:{tmp_path}")) == 1797


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("digitz", "no such file or folder; did you mean 'digits'"),
        ("{}/photo", "did you mean '.*/photos'"),
        ("cub200", r"standard set, and those are not built in; say where it is, cub200:FOLDER"),
        ("cub20:{}", r"unknown standard set 'cub20'; did you mean 'cub200'.*choose from: aircraft"),
        ("{}/one.png", "got a file of another kind; expected a folder of class folders, a .csv"),
        ("nowhere/at/all", "no such file or folder; expected a folder"),
    ],
)
def test_what_cannot_be_opened_says_what_was_tried(
    source: str, message: str, tmp_path: Path
) -> None:
    write_clean(tmp_path / "photos")
    scene(0).save(tmp_path / "one.png")
    with pytest.raises(ValueError, match=message):
        load_dataset(source.format(tmp_path))


def test_arrays_and_tensors_are_pictures() -> None:
    images = torch.randint(256, (4, 5, 6, 3), dtype=torch.uint8)
    data = from_arrays(images, torch.tensor([2, 0, 2, 0]))
    assert data.class_names == ("0", "2")
    assert np.array_equal(np.asarray(data[3][0]), images[3].numpy())
    assert from_arrays(images.numpy(), list("baba")).class_names == ("a", "b")


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, 1], None, "expected 3 whole numbers or names"),
        ([0.0, 1.0, 2.0], None, "expected 3 whole numbers or names, .* got float64"),
        ([0, 1, 0], ["a", "b", "c"], r"expected all of 0 \.\. 2"),
        (["a", "b", "a"], ["a", "b"], "leave class_names out"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    labels: list[object], names: list[str] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        from_arrays(np.zeros((3, 4, 4), np.uint8), labels, names)  # type: ignore[arg-type]
