"""What is no data set, or no picture, is an error in a line: nothing hangs, nothing is executed."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run
from kinspace.data import from_folder, load_dataset
from kinspace.data.pictures import FORMATS, UnreadablePicture, decode, known_formats
from odd_pictures import scene, write_clean


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_clean(tmp_path / "photos", classes=2, each=2)
    return tmp_path / "photos"


def test_a_pipe_among_the_pictures_is_a_bad_file(folder: Path) -> None:
    os.mkfifo(folder / "kind 0" / "pipe.png")
    said = run("check", folder, "--workers", "1", code=1)
    assert "not a regular file" in " ".join(said.split())


def test_a_pipe_or_a_device_is_no_data_set(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        assert "got no regular file" in run("check", path, code=2)
    os.mkfifo(tmp_path / "pipe.csv")
    assert "got no regular file" in run("check", tmp_path / "pipe.csv", code=2)


def test_file_names_that_are_no_text_are_named(folder: Path) -> None:
    scene(1).save(folder / "kind 0" / "good.png")
    bad = os.fsencode(folder / "kind 0") + b"/caf\xe9.png"
    os.rename(folder / "kind 0" / "good.png", bad)  # noqa: PTH104 - bytes
    said = run("check", folder, code=2)
    assert r"expected file names in UTF-8, got 'caf\udce9.png'; rename it" in said


def test_folders_far_down_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "photos"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    said = run("check", deep, code=2)
    assert "expected folders at most 64 deep" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("x" * 5000, "File name too long"),
        ("~nosuchuser/photos", "determine home directory"),
        ("cub200:~nosuchuser/photos", "determine home directory"),
        ("a\0b", "no such file or folder"),
    ],
)
def test_what_cannot_be_a_path_is_an_error_in_a_line(data: str, said: str) -> None:
    output = run("check", data, code=2)
    assert said in output
    assert len(output) < 1000


def test_a_format_that_calls_another_program_is_not_read(folder: Path) -> None:
    scene(4).save(folder / "kind 0" / "page.eps")
    assert "EPS" not in known_formats()
    dataset = from_folder(folder)
    place = [dataset.pictures.name(i) for i in range(len(dataset))].index("kind 0/page.eps")
    with pytest.raises(UnreadablePicture, match="not a picture in any known format"):
        dataset.pictures.read(place)


def test_every_format_of_the_list_that_this_pillow_writes_is_read(tmp_path: Path) -> None:
    written = 0
    for name in set(FORMATS) & set(Image.SAVE):
        file = tmp_path / name
        scene(6).save(file, format=name)
        with file.open("rb") as stream:
            assert decode(stream, name).size == (48, 48)
        written += 1
    assert written >= 10


def test_deep_pictures_are_as_before_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 65536, (37, 20)).astype(np.uint16),
        rng.integers(-5, 9000, (37, 20)).astype(np.int32),
        rng.standard_normal((37, 20)).astype(np.float32),
    ]
    for number, array in enumerate(arrays):
        file = tmp_path / f"{number}.tiff"
        Image.fromarray(array).save(file)
        found = []
        for rows in (2**20, 45):
            monkeypatch.setattr("kinspace._core.picture.DEEP_ROWS", rows)
            with file.open("rb") as stream:
                found.append(np.asarray(decode(stream, "deep")))
        assert (found[0] == found[1]).all()
        values = array.astype(np.float64)
        if number == 2:
            values = (values - values.min()) * 255 / (values.max() - values.min())
        else:
            values = values / 257
        assert np.abs(found[0][:, :, 0] - values.clip(0)).max() <= 0.51


def test_a_data_set_is_found_at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert len(load_dataset("~/photos")) == 4
