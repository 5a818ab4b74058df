import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from kinspace.data import from_arrays
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
