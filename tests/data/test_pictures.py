import io
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from kinspace._core import picture
from kinspace.data import archives
from kinspace.data.archives import ArchivePictures
from kinspace.data.dataset import Dataset
from kinspace.data.pictures import (
    ArrayPictures,
    FilePictures,
    PictureSubset,
    UnreadablePicture,
    decode,
    fingerprint,
)
from kinspace.data.standard.picture_files import JoinedArchives
from odd_pictures import BAD, ODD, bomb, corners, encoded, scene, write_bad, write_odd
from photo_set import path_of


def _decoded(data: bytes) -> Image.Image:
    return decode(io.BytesIO(data), "picture")


def _levels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture).astype(float)


@pytest.mark.parametrize("name", ODD)
def test_whatever_the_file_holds_becomes_8_bit_rgb(name: str, tmp_path: Path) -> None:
    if name.endswith(".avif") and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    if name.endswith(".webp") and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    ODD[name](tmp_path / name)
    picture = FilePictures([tmp_path / name]).read(0)
    assert picture.mode == "RGB"
    assert min(picture.size) >= 16


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_says_its_name_and_why(name: str) -> None:
    data, reason = BAD[name]
    with pytest.raises(UnreadablePicture, match=reason) as caught:
        decode(io.BytesIO(data()), name)
    assert caught.value.name == name
    assert str(caught.value).startswith(name)


def test_missing_and_forbidden_files_say_so(tmp_path: Path) -> None:
    for name, reason in write_bad(tmp_path).items():
        with pytest.raises(UnreadablePicture, match=reason):
            FilePictures([tmp_path / name]).read(0)
    with pytest.raises(UnreadablePicture, match="Is a directory"):
        FilePictures([tmp_path]).read(0)


def test_a_picture_stored_on_its_side_is_turned_upright(tmp_path: Path) -> None:
    ODD["rotated.jpg"](tmp_path / "rotated.jpg")
    upright = _levels(FilePictures([tmp_path / "rotated.jpg"]).read(0))
    assert upright.shape == (16, 24, 3)
    assert np.abs(upright[4, 6] - (255, 0, 0)).max() < 30  # top left
    assert np.abs(upright[4, 18] - (0, 255, 0)).max() < 30
    assert np.abs(upright[12, 6] - (0, 0, 255)).max() < 30


def test_cmyk_keeps_its_colors() -> None:
    stored = encoded(Image.fromarray(corners()).convert("CMYK"), "jpeg", quality=95)
    assert np.abs(_levels(_decoded(stored))[4, 6] - (255, 0, 0)).max() < 30


def test_16_bits_keep_their_high_byte() -> None:
    stored = encoded(Image.fromarray(np.array([[0, 257 * 100, 65535]], np.uint16)), "png")
    assert np.asarray(_decoded(stored))[0, :, 0].tolist() == [0, 100, 255]


def test_transparent_parts_lie_over_white() -> None:
    clear = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    assert _decoded(encoded(clear, "png")).getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([10, 20, 30, 40, 50, 60])
    assert _decoded(encoded(palette, "png", transparency=1)).getpixel((0, 0)) == (255, 255, 255)
    assert _decoded(encoded(palette, "png")).getpixel((0, 0)) == (40, 50, 60)


@pytest.mark.parametrize("kind", ["gif", "webp"])
def test_of_an_animation_the_first_frame_counts(kind: str) -> None:
    first, second = (Image.new("RGB", (8, 8), color) for color in ("red", "blue"))
    data = encoded(first, kind, save_all=True, append_images=[second], duration=50)
    picture = _decoded(data)
    assert np.abs(_levels(picture)[0, 0] - (255, 0, 0)).max() < 10
    assert picture.info["frames"] == 2


def test_the_picture_remembers_what_the_file_held() -> None:
    assert _decoded(encoded(scene(0).convert("CMYK"), "jpeg")).info == {"mode": "CMYK", "frames": 1}


def test_garbage_in_place_of_exif_does_not_spoil_the_picture() -> None:
    data = encoded(scene(0), "jpeg", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\xffgarbage")
    assert _decoded(data).size == (48, 48)


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    assert len(bomb()) < 200
    with pytest.raises(UnreadablePicture, match="bomb"):
        _decoded(bomb())


def test_a_picture_just_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MOST_PIXELS", 48 * 48 - 1)
    with pytest.raises(UnreadablePicture, match="48 x 48 pixels"):
        _decoded(encoded(scene(0), "png"))


def test_a_huge_member_of_an_archive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a/zeros.jpg", bytes(10_000))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed_tar:
        (tmp_path / "zeros.jpg").write_bytes(bytes(10_000))
        packed_tar.add(tmp_path / "zeros.jpg", "a/zeros.jpg")
    monkeypatch.setattr(archives, "MOST_BYTES", 9_999)
    for name in ("a.zip", "a.tar.gz"):
        with pytest.raises(UnreadablePicture, match="10,000 bytes, a bomb"):
            ArchivePictures(tmp_path / name, ["a/zeros.jpg"]).read(0)


def test_damage_inside_an_archive_is_a_bad_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a/1.bmp", encoded(scene(0), "bmp"))
    data = bytearray(path.read_bytes())
    data[100:140] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(UnreadablePicture, match="cannot be unpacked"):
        ArchivePictures(path, ["a/1.bmp"]).read(0)
    with pytest.raises(UnreadablePicture, match=r"a\.zip/b\.jpg: cannot be unpacked"):
        ArchivePictures(path, ["b.jpg"]).read(0)


def test_a_bad_picture_crosses_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(UnreadablePicture("a.jpg", "empty file")))
    assert (error.name, error.reason, str(error)) == ("a.jpg", "empty file", "a.jpg: empty file")


def test_pictures_in_files_travel_by_pickle_and_know_their_names(tmp_path: Path) -> None:
    names = write_odd(tmp_path / "a b")
    files = FilePictures([tmp_path / "a b" / name for name in names], root=tmp_path)
    some = pickle.loads(pickle.dumps(PictureSubset(files, [2, 0])))
    assert [some.name(i) for i in range(len(some))] == [f"a b/{names[2]}", f"a b/{names[0]}"]
    assert some.read(1).size == (48, 48)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 8, 8), np.float32),
        np.zeros((8, 8), np.uint8),
        np.zeros((2, 3, 8, 8), np.uint8),
        np.zeros((2, 0, 8), np.uint8),
    ],
)
def test_an_array_that_holds_no_pictures_is_refused(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected uint8 of shape"):
        ArrayPictures(array)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_locked_file_says_permission_denied(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    scene(0).save(path)
    path.chmod(0)
    with pytest.raises(UnreadablePicture, match="Permission denied"):
        FilePictures([path]).read(0)


def test_fingerprints_follow_the_content_of_arrays_archives_and_parts(
    photos: Dataset, tmp_path: Path
) -> None:
    array = np.zeros((3, 8, 8), np.uint8)
    before = fingerprint(ArrayPictures(array))
    assert fingerprint(ArrayPictures(array.copy())) == before
    array[2, 0, 0] = 1
    assert fingerprint(ArrayPictures(array)) != before
    assert fingerprint(PictureSubset(ArrayPictures(array), [0, 1, 2])) == fingerprint(
        ArrayPictures(array)
    )
    archive = tmp_path / "set.zip"
    archive.write_bytes(b"one")
    one = fingerprint(ArchivePictures(archive, ["a.jpg"]))
    assert fingerprint(ArchivePictures(archive, ["b.jpg"])) != one
    joined = JoinedArchives([ArchivePictures(archive, ["a.jpg"])], [(0, 0)])
    assert fingerprint(joined) == one
    archive.write_bytes(b"other")
    assert fingerprint(ArchivePictures(archive, ["a.jpg"])) != one
    assert fingerprint(joined) == one  # the archive was asked when it was opened, and not again
    whole = fingerprint(photos.pictures)
    os.utime(path_of(photos, 3), ns=(1, 1))
    assert fingerprint(photos.pictures) != whole
