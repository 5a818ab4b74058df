import io
import json
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from kinspace.data import (
    UnreadablePictures,
    check,
    drop_unreadable,
    from_folder,
    require_readable,
)
from kinspace.data.validation_report import check_table
from odd_pictures import ODD, encoded, scene, write_bad, write_clean, write_odd


def _printed(result: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(check_table(result))  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_clean_folder_is_good(clean: Path) -> None:
    write_clean(clean, classes=4)  # fewer leave none for a test
    data = from_folder(clean)
    result = check(data)
    assert result.ok
    assert result.duplicates == ()
    assert result.class_sizes == (3, 3, 3)
    assert result.gini == 0
    require_readable(data, result)
    assert drop_unreadable(data, result) is data
    assert "nothing is wrong" in _printed(result)


def test_every_bad_file_is_listed_with_its_reason(clean: Path) -> None:
    bad = write_bad(clean / "kind 0")
    data = from_folder(clean)
    result = check(data)
    assert not result.ok
    assert {Path(file.name).name for file in result.bad} == set(bad)
    printed = _printed(result)
    for file in result.bad:
        assert bad[Path(file.name).name] in file.reason
        assert file.label == "kind 0"
        assert file.name in printed
    left = drop_unreadable(data, result)
    assert len(left) == 9
    assert [left[i][1] for i in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_training_stops_with_the_first_twenty_and_the_count(tmp_path: Path) -> None:
    write_clean(tmp_path)
    for i in range(25):
        (tmp_path / "kind 1" / f"bad {i:02}.jpg").write_bytes(b"")
    data = from_folder(tmp_path)
    with pytest.raises(UnreadablePictures, match="25 of 34 pictures cannot be read") as caught:
        require_readable(data, check(data))
    text = str(caught.value)
    assert text.count("empty file") == 20
    assert "and 5 more" in text
    assert "--skip-bad" in text


def test_odd_pictures_are_good_and_counted_by_what_they_hold(tmp_path: Path) -> None:
    write_odd(tmp_path / "odd")
    write_clean(tmp_path)
    result = check(from_folder(tmp_path))
    assert result.ok
    assert result.modes["CMYK"] == 1
    assert sum(result.modes.values()) == 9 + len(ODD)
    assert result.animated == 2
    assert result.sizes is not None
    assert result.sizes.smallest == (24, 16)
    assert "only the first frame counts" in _printed(result)


def test_the_same_picture_resized_and_encoded_anew_in_two_classes_is_found(clean: Path) -> None:
    original = Image.open(clean / "kind 0/1.png")
    original.resize((37, 61)).save(clean / "kind 1/copy.jpg", quality=70)
    original.save(clean / "kind 2/exact.bmp")
    scene(1).save(clean / "kind 0/again.png")  # the same as 1.png
    result = check(from_folder(clean))
    assert result.duplicates is not None
    (group,) = result.duplicates
    assert set(group.names) == {
        "kind 0/1.png", "kind 0/again.png", "kind 1/copy.jpg", "kind 2/exact.bmp",
    }  # fmt: skip
    assert not group.exact
    assert result.repeats == 1
    assert not result.ok
    printed = _printed(result)
    assert "nearly same" in printed
    assert "kind 1/copy.jpg" in printed


def test_the_same_pixels_in_two_classes_are_exact_duplicates(clean: Path) -> None:
    (clean / "kind 1/copy.bmp").write_bytes(encoded(scene(0), "bmp"))
    result = check(from_folder(clean))
    assert result.duplicates is not None
    assert [group.exact for group in result.duplicates] == [True]
    assert check(from_folder(clean), duplicates=False).duplicates is None


def test_classes_with_one_good_picture_or_none_are_named(clean: Path) -> None:
    (clean / "lonely").mkdir()
    scene(50).save(clean / "lonely/1.png")
    (clean / "lonely/2.png").write_bytes(b"")
    (clean / "broken").mkdir()
    (clean / "broken/1.png").write_bytes(b"")
    result = check(from_folder(clean))
    assert result.singletons == ("lonely",)
    assert result.emptied == ("broken",)
    assert drop_unreadable(from_folder(clean), result).class_names == (
        "kind 0", "kind 1", "kind 2", "lonely",
    )  # fmt: skip
    assert "1 class with one good picture only" in _printed(result)


def test_a_folder_within_a_class_is_said(clean: Path) -> None:
    write_clean(clean, classes=4)
    assert check(from_folder(clean)).nested is None
    first = next(clean.iterdir())
    (first / "old").mkdir()
    next(first.glob("*.*")).rename(first / "old/1.png")
    result = check(from_folder(clean))
    assert result.nested == f"{first.name}/old"
    assert f"{first.name}/old counts to the class {first.name}" in _printed(result)


def test_imbalance_and_sizes_are_measured(tmp_path: Path) -> None:
    for label, count in (("few", 2), ("many", 6)):
        (tmp_path / label).mkdir()
        for i in range(count):
            scene(i + 10 * count).resize((20 + i, 40)).save(tmp_path / label / f"{i}.png")
    result = check(from_folder(tmp_path))
    assert result.class_sizes == (2, 6, 6)
    assert result.gini == pytest.approx(0.25)
    assert result.sizes is not None
    assert (result.sizes.smallest, result.sizes.largest) == ((20, 40), (25, 40))
    assert result.sizes.narrowest == 0.5
    assert "largest / smallest 3" in _printed(result)


def test_the_result_is_json_and_the_same_from_several_processes(clean: Path) -> None:
    write_bad(clean / "kind 2")
    for i in range(70):  # more than one chunk
        scene(1000 + i, 17).save(clean / "kind 1" / f"more {i}.png")
    data = from_folder(clean)
    seen: list[tuple[int, int]] = []
    result = check(data, workers=2, progress=lambda done, of: seen.append((done, of)))
    assert result == check(data, workers=1)
    assert seen[-1] == (len(data), len(data))
    read = json.loads(result.to_json())
    assert read["ok"] is False
    assert [file["name"] for file in read["bad"]] == [file.name for file in result.bad]


def test_the_result_of_another_data_set_is_refused(clean: Path) -> None:
    data = from_folder(clean)
    result = check(data)
    with pytest.raises(ValueError, match="for these 3 pictures"):
        drop_unreadable(data.subset([0, 1, 2]), result)


def test_a_set_with_no_good_picture_cannot_be_used(tmp_path: Path) -> None:
    write_bad(tmp_path / "moths")
    data = from_folder(tmp_path)
    result = check(data)
    assert result.sizes is None
    assert "bad files" in _printed(result)
    with pytest.raises(ValueError, match="expected a picture that can be read, got none"):
        drop_unreadable(data, result)
