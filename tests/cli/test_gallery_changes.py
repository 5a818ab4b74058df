"""kinspace add, remove, relabel and list."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

import kinspace
from bundles import run_with_gallery
from command_line import run
from odd_pictures import scene, write_clean


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return run_with_gallery(tmp_path)


def test_adds_a_folder_of_new_classes_once(folder: Path, tmp_path: Path) -> None:
    write_clean(tmp_path / "new", classes=2, each=3)
    said = run("add", folder, tmp_path / "new", "--device", "cpu")
    assert "added 6 pictures; it has 1,803 pictures now" in said
    assert "kind 0: 3 pictures, a new class" in said
    again = run("add", folder, tmp_path / "new", "--device", "cpu")
    assert "added 0 pictures, 6 were there already; it has 1,803 pictures now" in again
    scene(999).save(tmp_path / "new" / "kind 1" / "late.png")
    assert "added 1 picture, 6 were there" in run("add", folder, tmp_path / "new")
    model = kinspace.load(folder, "cpu")
    late = tmp_path / "new" / "kind 1" / "late.png"
    [near] = model.search(late, 1)
    assert (near.id, near.class_name, near.path) == ("kind 1/late.png", "kind 1", str(late))
    assert [one.class_name for one in model.search(late, 9, where={"class": "kind 1"})] == [
        "kind 1"
    ] * 4


def test_adds_a_table_with_columns_of_other_names(folder: Path, tmp_path: Path) -> None:
    for number in range(3):
        scene(number).save(tmp_path / f"{number}.png")
    table = tmp_path / "moths.csv"
    table.write_text("file,breed,path\n0.png,luna,x\n1.png,io,y\n2.png,luna,z\n")
    columns = ("--path-column", "file", "--label-column", "breed")
    assert "luna: 2 pictures, a new class" in run("add", folder, table, *columns)
    assert "expected a column 'species'" in run(
        "add", folder, table, "--path-column", "file", "--label-column", "species", code=2
    )
    assert "expected with a table" in run("add", folder, tmp_path, *columns, code=2)


def test_pictures_without_classes_need_one_where_the_gallery_has_them(
    folder: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    scene(5).save(plain / "a.png")
    assert "or give all one class: --label NAME" in run("add", folder, plain, code=2)
    assert "io: 1 picture, a new class" in run("add", folder, plain, "--label", "io")
    assert "label: expected the name of a class" in run("add", folder, plain, "--label", "", code=2)


def test_removes_pictures_and_classes(folder: Path) -> None:
    sizes = json.loads(run("list", folder, "--json"))
    assert list(sizes) == [str(digit) for digit in range(10)]
    assert run("remove", folder, "digit 3", "--class", "7", "--dry-run").count("digit") == (
        1 + sizes["7"]
    )
    said = run("remove", folder, "digit 3", "--class", "7")
    assert f"removed {1 + sizes['7']} pictures" in said
    left = json.loads(run("list", folder, "--json"))
    assert "7" not in left
    assert sum(left.values()) == 1797 - 1 - sizes["7"]
    assert "unknown picture 'digit 3'" in run("remove", folder, "digit 3", code=2)
    assert "expected pictures to remove, or --class NAME" in run("remove", folder, code=2)
    assert "unknown class 'seven'" in run("remove", folder, "--class", "seven", code=2)
    picture = Image.new("RGB", (18, 18), "white")
    assert "7" not in {near.class_name for near in kinspace.load(folder).search(picture, 1500)}


def test_relabels_pictures_classes_and_what_a_table_says(folder: Path, tmp_path: Path) -> None:
    assert "2 pictures relabeled" in run("relabel", folder, "digit 3", "digit 4", "--to", "odd")
    renamed = run("relabel", folder, "--class", "8", "--to", "eight")
    assert "pictures relabeled" in renamed
    out = tmp_path / "odd.csv"
    run("list", folder, "--class", "odd", "-o", out)
    with out.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["id"], row["class"], row["file"]) for row in rows] == [
        ("digit 3", "odd", ""),
        ("digit 4", "odd", ""),
    ]
    out.write_text("id,suggested\ndigit 3,3\ndigit 4,\n")
    assert "1 picture relabeled" in run("relabel", folder, "--table", out)
    sizes = json.loads(run("list", folder, "--json"))
    assert sizes["odd"] == 1
    assert "8" not in sizes
    assert "eight" in run("list", folder)
    out.write_text("id,suggested\ndigit 5,x\nno such,y\n")
    assert "unknown picture 'no such'" in run("relabel", folder, "--table", out, code=2)
    assert "x" not in json.loads(run("list", folder, "--json"))  # all or nothing
    assert "expected pictures or --class, and --to" in run("relabel", folder, "digit 3", code=2)
