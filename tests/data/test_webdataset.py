"""Shards of WebDataset, written as its own writer does: the files of a sample side by side."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from kinspace.data import load_dataset
from odd_pictures import scene


def write_shard(file: Path, samples: dict[str, dict[str, bytes]]) -> Path:
    with tarfile.open(file, "w") as packed:
        for key, files in samples.items():
            for suffix, content in files.items():
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
    return file


def picture(number: int) -> bytes:
    out = io.BytesIO()
    scene(number).save(out, "png")
    return out.getvalue()


def sample(number: int, label: object) -> dict[str, bytes]:
    return {"cls": str(label).encode(), "png": picture(number)}


def test_a_shard_has_the_classes_of_its_cls_files(tmp_path: Path) -> None:
    labels = [10, 2, 10]
    samples = {f"{place:04}": sample(place, label) for place, label in enumerate(labels)}
    data = load_dataset(write_shard(tmp_path / "moths-000.tar", samples))
    assert data.class_names == ("2", "10")
    assert data.labels.tolist() == [1, 0, 1]
    assert data.pictures.read(1).tobytes() == scene(1).convert("RGB").tobytes()
    assert not load_dataset(tmp_path / "moths-000.tar", labeled=False).labeled


def test_braces_name_all_shards_in_their_order(tmp_path: Path) -> None:
    for shard in range(3):
        samples = {f"{shard}{at}": sample(10 * shard + at, f"kind {at}") for at in range(2)}
        write_shard(tmp_path / f"moths-{shard:02}.tar", samples)
    data = load_dataset(f"{tmp_path}/moths-{{00..02}}.tar")
    assert (len(data), data.num_classes) == (6, 2)
    assert data.pictures.name(4) == "moths-02.tar/20.png"
    assert data.pictures.read(4).tobytes() == scene(20).convert("RGB").tobytes()


def test_json_and_text_are_classes_too(tmp_path: Path) -> None:
    samples = {
        "a/1.left": {"png": picture(1), "json": json.dumps({"label": "io"}).encode()},
        "a/2": {"png": picture(2), "txt": b"luna\n"},
    }
    assert load_dataset(write_shard(tmp_path / "s.tar", samples)).class_names == ("io", "luna")


def test_a_picture_without_a_class_is_an_error_that_names_it(tmp_path: Path) -> None:
    samples = {"1": sample(1, "io"), "2": {"png": picture(2)}}
    file = write_shard(tmp_path / "s.tar", samples)
    with pytest.raises(ValueError, match=r"expected a class for each .*, got none for 1: .*2\.png"):
        load_dataset(file)
    with pytest.raises(ValueError, match=r"s-1\.tar: expected a tar archive"):
        load_dataset(f"{tmp_path}/s-{{1..2}}.tar")


def test_a_tar_of_class_folders_is_no_shard(tmp_path: Path) -> None:
    samples = {f"{kind}/{at}": {"png": picture(at)} for kind in ("io", "luna") for at in range(2)}
    data = load_dataset(write_shard(tmp_path / "photos.tar", samples))
    assert data.class_names == ("io", "luna")
