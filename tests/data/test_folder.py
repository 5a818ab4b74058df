import os
from pathlib import Path

import pytest

from kinspace.data import from_folder, official, zero_shot
from kinspace.data.dataset import natural_order
from kinspace.data.pictures import UnreadablePicture
from odd_pictures import scene, write_bad, write_clean


def _picture(path: Path, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scene(seed).save(path, "png")


def _names(dataset: object) -> list[str]:
    return [dataset.pictures.name(i) for i in range(len(dataset))]  # type: ignore[attr-defined, arg-type]


def test_every_folder_is_a_class_and_the_order_is_that_of_the_names(tmp_path: Path) -> None:
    for name in ("b/2.png", "a/z.png", "b/1.png", "a/deep/er/x.png"):
        _picture(tmp_path / name)
    data = from_folder(tmp_path)
    assert data.class_names == ("a", "b")
    assert _names(data) == ["a/deep/er/x.png", "a/z.png", "b/1.png", "b/2.png"]
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.parts is None
    assert data.name == tmp_path.name


def test_classes_named_by_numbers_are_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    for name in ("10", "9", "100", "11", "kind 2b", "kind 2a", "kind 10", "007", "7"):
        _picture(tmp_path / name / "1.png")
    data = from_folder(tmp_path)
    assert data.class_names == (
        "007", "7", "9", "10", "11", "100", "kind 2a", "kind 2b", "kind 10",
    )  # fmt: skip
    assert zero_shot(data).train.class_names == ("007", "7", "9", "10", "11")
    names = ["9" * 5000, "1" + "0" * 5000]  # longer than Python makes a number of
    assert natural_order(names[0]) < natural_order(names[1])


def test_names_may_have_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    for name in ("großer Bär/ein Bild.png", "夜蛾/1 [x].png"):
        _picture(tmp_path / name)
    data = from_folder(str(tmp_path))
    assert data.class_names == ("großer Bär", "夜蛾")
    assert [data[i][0].size for i in range(2)] == [(48, 48)] * 2


def test_hidden_files_and_clutter_are_left_out_and_nothing_else(tmp_path: Path) -> None:
    write_clean(tmp_path, classes=2, each=1)
    for name in (
        ".DS_Store",
        "kind 0/Thumbs.db",
        "__MACOSX/a/b.png",
        ".git/HEAD",
        "kind 1/._1.png",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"clutter")
    (tmp_path / "kind 0" / "notes.txt").write_text("not a picture")
    data = from_folder(tmp_path)
    assert _names(data) == ["kind 0/0.png", "kind 0/notes.txt", "kind 1/0.png"]
    with pytest.raises(UnreadablePicture, match=r"notes\.txt"):
        data[1]


def test_bad_files_are_taken_and_fail_when_read(tmp_path: Path) -> None:
    bad = write_bad(tmp_path / "moths")
    data = from_folder(tmp_path)
    assert sorted(_names(data)) == sorted(f"moths/{name}" for name in bad)


def test_parts_above_the_classes_are_the_official_ones(tmp_path: Path) -> None:
    for name in ("Train/a/1.png", "Train/b/2.png", "query/c/3.png", "gallery/c/x/4.png"):
        _picture(tmp_path / name)
    data = from_folder(tmp_path)
    assert data.class_names == ("a", "b", "c")
    assert data.parts == ("train", "train", "gallery", "query")
    split = official(data)
    assert split.train.class_names == ("a", "b")
    assert len(split.test.part("query")) == 1


def test_a_class_named_like_a_part_is_a_class_among_others(tmp_path: Path) -> None:
    for name in ("train/1.png", "bus/2.png"):
        _picture(tmp_path / name)
    assert from_folder(tmp_path).class_names == ("bus", "train")


def test_a_linked_class_folder_counts_and_a_loop_is_refused(tmp_path: Path) -> None:
    _picture(tmp_path / "elsewhere/1.png")
    _picture(tmp_path / "photos/a/1.png")
    (tmp_path / "photos/b").symlink_to(tmp_path / "elsewhere")
    assert from_folder(tmp_path / "photos").class_names == ("a", "b")
    (tmp_path / "photos/a/loop").symlink_to(tmp_path / "photos")
    with pytest.raises(ValueError, match="link back to a folder above"):
        from_folder(tmp_path / "photos")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "got no files; put the pictures of each class into a folder"),
        (["1.png", "a/2.png"], "1 files outside of one: '1.png'; move each picture .*--unlabeled"),
        (["a/1.png", "labels.csv"], r"open the table 'labels\.csv' instead"),
        (["train/1.png", "test/a/2.png"], r"1 files outside of one: 'train/1\.png'"),
        (["photos/a/1.png", "photos/b/1.png"], "single folder 'photos' .* open .*/photos instead"),
    ],
)
def test_another_layout_is_an_error_that_says_what_to_do(
    files: list[str], message: str, tmp_path: Path
) -> None:
    for name in files:
        _picture(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        from_folder(tmp_path)


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    write_clean(tmp_path)
    (tmp_path / "forgotten").mkdir()
    with pytest.raises(ValueError, match="got 1 empty: 'forgotten'; fill or remove"):
        from_folder(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder of class folders, got nothing there"):
        from_folder(tmp_path / "missing")
    _picture(tmp_path / "file.png")
    with pytest.raises(ValueError, match="got a file"):
        from_folder(tmp_path / "file.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_locked_folder_is_an_error_and_not_an_empty_class(tmp_path: Path) -> None:
    write_clean(tmp_path)
    (tmp_path / "kind 0").chmod(0)
    try:
        with pytest.raises(ValueError, match="Permission denied"):
            from_folder(tmp_path)
    finally:
        (tmp_path / "kind 0").chmod(0o700)
