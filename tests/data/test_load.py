from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from kinspace.data import digits_dataset, load_dataset
from kinspace.data.dataset import Dataset
from kinspace.data.standard import STANDARD_SETS
from odd_pictures import scene, write_clean


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
        ("cub200", r"standard set, and those are not built in; give its folder, cub200:FOLDER"),
        ("cub20:{}", r"unknown standard set 'cub20'; did you mean 'cub200'.*choose from: aircraft"),
        (
            "{}/one.png",
            "got a file of another kind; expected a folder of class folders",
        ),
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


def test_data_sets_and_samples_are_taken_as_they_are() -> None:
    digits = digits_dataset()
    assert load_dataset(digits) is digits
    assert load_dataset(TensorDataset(torch.zeros(2, 3), torch.tensor([4, 2]))).num_classes == 2
    with pytest.raises(ValueError, match=r"data: expected a folder or name, a Dataset, .* got int"):
        load_dataset(3)  # type: ignore[arg-type]
