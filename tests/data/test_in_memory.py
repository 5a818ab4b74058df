"""None"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from kinspace.data import digits_dataset, from_arrays, load_dataset, moths_dataset
from kinspace.data.in_memory import from_samples


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


def test_samples_of_another_data_set_take_the_place_of_pictures() -> None:
    inputs = torch.randn(4, 3)
    data = from_samples(TensorDataset(inputs, torch.tensor([7, 5, 7, 5])))
    assert data.class_names == ("5", "7")
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert torch.equal(data[2][0], inputs[2])
    pairs = [(0.5, 3), (0.25, 1)]  # neither labels nor targets: each sample is read
    assert from_samples(pairs).labels.tolist() == [1, 0]
    with pytest.raises(ValueError, match="labels: expected one whole number for each of 4 samples"):
        from_samples(TensorDataset(inputs, torch.rand(4)))


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
