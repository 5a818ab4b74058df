"""Checkpoints: what goes in comes out, what is none is refused, a crash leaves the old one."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kinspace._core.atomic_files import clear_parts, write_atomically
from kinspace.training.run_folder import new_folder, read_checkpoint, write_checkpoint
from training_commands import same_bits

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_to_the_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.tensor([[0, 1, 2], [3, 100, 7]]).to(dtype)
    if dtype.is_floating_point:
        values = torch.tensor([[0.1, -0.0, torch.inf], [torch.nan, 1e-3, 3.0]]).to(dtype)
    tensors = {
        "matrix": values,
        "turned": values.T,  # not contiguous
        "row": values[0],  # shares memory
        "number": values[1, 2],
        "empty": values[:0],
    }
    write_checkpoint(tmp_path / "last", tensors, {})
    found, _ = read_checkpoint(tmp_path / "last")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        assert found[name].dtype == dtype
        assert same_bits(
            found[name].view(torch.uint8) if found[name].ndim else found[name].float(),
            tensor.contiguous().view(torch.uint8) if tensor.ndim else tensor.float(),
        )


def test_channels_last_weights_come_back_as_they_were(tmp_path: Path) -> None:
    weight = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    write_checkpoint(tmp_path / "last", {"w": weight}, {})
    assert torch.equal(read_checkpoint(tmp_path / "last")[0]["w"], weight)


def test_the_state_comes_back_as_json_has_it(tmp_path: Path) -> None:
    state = {
        "step": 3,
        "best": {"recall": 0.1 + 0.2},
        "names": ["Nachtfalter äöü 夜蛾", None, True],
    }
    write_checkpoint(tmp_path / "last", {"x": torch.ones(1)}, state)
    assert read_checkpoint(tmp_path / "last")[1] == state


def test_half_a_file_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, {"x": torch.ones(1000)}, {"step": 1})
    whole = path.read_bytes()
    for length in (0, 1, 8, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ValueError, match=r"last\.safetensors: expected a checkpoint, got another file"
        ):
            read_checkpoint(path)
    path.write_bytes(b"this is no checkpoint" * 100)
    with pytest.raises(ValueError, match="got another file"):
        read_checkpoint(path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="checkpoint of kinspace, got other safetensors"):
        read_checkpoint(path)
    with pytest.raises(ValueError, match="got no such file"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="expected a checkpoint"):
        read_checkpoint(tmp_path)


def test_what_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "last"
    write_checkpoint(path, {"x": torch.ones(1)}, {"step": 1})
    with pytest.raises(TypeError):
        write_checkpoint(path, {"x": torch.zeros(1)}, {"step": object()})
    with pytest.raises(RuntimeError, match="killed"):
        write_atomically(path, _half_of_it)
    assert read_checkpoint(path)[1] == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


def _half_of_it(part: Path) -> None:
    part.write_bytes(b"half")
    raise RuntimeError("killed")


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".last.safetensors.123.part").write_bytes(b"half")
    (tmp_path / "mine.part").write_bytes(b"not ours")
    clear_parts(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.part"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.123.part").write_bytes(b"{")
    assert new_folder(tmp_path / "run", "x") == tmp_path / "run"
    assert not list((tmp_path / "run").iterdir())


def test_a_folder_with_other_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="expected a new or empty folder, got one with other"):
        new_folder(tmp_path, "x")
    with pytest.raises(ValueError, match="expected a new or empty folder"):
        new_folder(tmp_path / "letter.txt", "x")
    with pytest.raises(ValueError, match="cannot be made: Not a directory"):
        new_folder(tmp_path / "letter.txt" / "run", "x")
