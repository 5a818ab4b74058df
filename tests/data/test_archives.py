import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from kinspace.data import from_archive, from_folder, load_dataset
from odd_pictures import scene, write_clean

KINDS = ("zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz")


def _pack(folder: Path, kind: str, *, inside: str = "", to: str = "packed") -> Path:
    """The folder's content as an archive, below `inside`."""
    archive = folder.parent / f"{to}.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for path in folder.rglob("*"):
                packed.write(path, inside + path.relative_to(folder).as_posix())
    else:
        mode = {"tar": "w", "tgz": "w:gz"}.get(kind, f"w:{kind[4:]}")
        with tarfile.open(archive, mode) as packed_tar:  # type: ignore[call-overload]
            packed_tar.add(folder, inside.rstrip("/") or ".")
    return archive


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    write_clean(tmp_path / "photos")
    return tmp_path / "photos"


def _content(dataset: Any) -> dict[str, tuple[str, bytes]]:
    """Class and pixels by the end of the name."""
    return {
        "/".join(dataset.pictures.name(i).split("/")[-2:]): (
            dataset.class_names[label],
            image.tobytes(),
        )
        for image, label, i in (dataset[i] for i in range(len(dataset)))
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inside", ["", "photos/", "my data/photos/"])
def test_an_archive_is_the_folder_it_holds(photos: Path, kind: str, inside: str) -> None:
    data = load_dataset(_pack(photos, kind, inside=inside))
    assert data.name == "packed"
    assert data.class_names == ("kind 0", "kind 1", "kind 2")
    assert _content(data) == _content(from_folder(photos))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inside", ["", "set/"])
def test_an_archive_may_hold_a_table_beside_its_pictures(
    tmp_path: Path, kind: str, inside: str
) -> None:
    (tmp_path / "set/pictures").mkdir(parents=True)
    for i in range(2):
        scene(i).save(tmp_path / f"set/pictures/{i} ä.png")
    (tmp_path / "set/labels.csv").write_text(
        "path,label,split\npictures/1 ä.png,luna,train\n./pictures/0 ä.png,io,test\n"
    )
    data = from_archive(_pack(tmp_path / "set", kind, inside=inside))
    assert data.class_names == ("io", "luna")
    assert data.parts == ("train", "test")
    assert np.array_equal(np.asarray(data[0][0]), np.asarray(scene(1)))


def test_clutter_is_left_out_and_parts_are_found(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    photos.rename(tmp_path / "all/train")
    write_clean(tmp_path / "all/test", classes=1)
    for name in ("__MACOSX/x.png", "train/.DS_Store"):
        (tmp_path / "all" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "all" / name).write_bytes(b"clutter")
    data = from_archive(_pack(tmp_path / "all", "zip", inside="all/"))
    assert len(data) == 12
    assert set(data.parts or ()) == {"train", "test"}


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_loader_with_workers_reads_an_archive_in_place(photos: Path, kind: str) -> None:
    data = from_archive(_pack(photos, kind))
    data[0]  # opened here first: the workers must not share the handle
    data = data.with_transform(_to_tensor)
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="spawn")
    batches = [(images, labels, indices) for images, labels, indices in loader]
    assert torch.cat([indices for _, _, indices in batches]).tolist() == list(range(9))
    here = torch.stack([data[i][0] for i in range(9)])
    assert torch.equal(torch.cat([images for images, _, _ in batches]), here)


def _to_tensor(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image))


def test_pictures_of_an_opened_archive_travel_by_pickle(photos: Path) -> None:
    data = from_archive(_pack(photos, "tar.gz"))
    before = data[3][0].tobytes()
    assert pickle.loads(pickle.dumps(data))[3][0].tobytes() == before


def test_a_tar_keeps_its_order_so_that_one_pass_reads_it(tmp_path: Path) -> None:
    write_clean(tmp_path / "photos", classes=2, each=1)
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        for name in ("kind 1/0.png", "kind 0/0.png"):
            packed.add(tmp_path / "photos" / name, name)
    assert from_archive(tmp_path / "a.tar").labels.tolist() == [1, 0]


def _two_tables(folder: Path) -> None:
    (folder / "a.csv").write_text("path,label\n")
    (folder / "b.csv").write_text("path,label\n")


def _missing(folder: Path) -> None:
    (folder / "a.csv").write_text("path,label\nnone.png,a\n")


def _loose(folder: Path) -> None:
    (folder / "readme.txt").write_text("hello")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_two_tables, "expected one table, got 2: .*leave one"),
        (_missing, r"packed\.zip/set/a\.csv: .* got 1 missing: 'set/none\.png'"),
        (_loose, r"got 1 files outside of one: 'readme\.txt'"),
    ],
)
def test_an_archive_with_a_fault_is_an_error_that_names_it(
    change: Callable[[Path], None], message: str, photos: Path
) -> None:
    change(photos)
    with pytest.raises(ValueError, match=message):
        from_archive(_pack(photos, "zip", inside="set/"))


def test_broken_and_empty_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    (tmp_path / "b.tar.gz").write_bytes(b"\x1f\x8bno archive")
    for name in ("a.zip", "b.tar.gz"):
        with pytest.raises(ValueError, match="got one that cannot be read"):
            load_dataset(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "c.zip", "w"):
        pass
    with pytest.raises(ValueError, match="got no files"):
        load_dataset(tmp_path / "c.zip")
