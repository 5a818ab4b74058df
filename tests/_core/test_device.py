"""The device is named, or the best there is."""

import pytest
import torch

from kinspace._core.device import pick_device


def test_takes_a_gpu_where_there_is_one_and_no_name() -> None:
    assert pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(ValueError, match="device: expected cpu, cuda or cuda:1, got 'gpu'"):
        pick_device("gpu")
    count = torch.cuda.device_count()
    with pytest.raises(ValueError, match=f"expected one that is there, got 'cuda:{count}'"):
        pick_device(f"cuda:{count}")
