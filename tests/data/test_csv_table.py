from pathlib import Path

import pytest
import torch

from kinspace.data import from_table
from kinspace.data.csv_table import MOST_WORDS
from kinspace.data.pictures import UnreadablePicture
from odd_pictures import scene


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("1.png", "2.png", "big ones/3.png", "ä, ö.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        scene(0).save(tmp_path / name)
    return tmp_path


def _table(folder: Path, text: str | bytes, name: str = "labels.csv") -> Path:
    data = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(data)
    return folder / name


def test_paths_are_relative_to_the_table_and_labels_become_classes(photos: Path) -> None:
    data = from_table(_table(photos, "path,label\n2.png,luna\nbig ones/3.png,io\n"))
    assert data.class_names == ("io", "luna")
    assert data.labels.tolist() == [1, 0]
    assert [data.pictures.name(i) for i in range(2)] == ["2.png", "big ones/3.png"]
    assert data[0][0].size == (48, 48)
    assert data.parts is None
    assert data.attributes is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_quotes_marks_blank_lines_and_delimiters_are_understood(
    photos: Path, delimiter: str, encoding: str
) -> None:
    rows = [
        ["", ""],
        [" Label ", "PATH"],
        ['"luna, the ""moon""; a\tmoth"', '"ä, ö.png"'],
        ["", ""],
        [" io ", " 1.png "],
    ]
    text = "".join(delimiter.join(row) + "\r\n\r\n" for row in rows)
    data = from_table(_table(photos, text.encode(encoding)))
    assert data.class_names == ("io", 'luna, the "moon"; a\tmoth')
    assert data.labels.tolist() == [1, 0]
    assert data.pictures.name(0) == "ä, ö.png"


def test_a_tsv_is_divided_by_tabs_alone(photos: Path) -> None:
    data = from_table(_table(photos, "path\tlabel\n1.png\ta,b,c\n", "labels.tsv"))
    assert data.class_names == ("a,b,c",)


def test_splits_and_roles_are_the_official_parts(photos: Path) -> None:
    text = (
        "path,label,split,role\n1.png,a,Train,\n2.png,b,test,query\n"
        'big ones/3.png,b,test,Gallery\n"ä, ö.png",c,valid,\n'
    )
    assert from_table(_table(photos, text)).parts == ("train", "query", "gallery", "val")


def test_other_columns_are_attributes(photos: Path) -> None:
    text = "path,label,Size,color\n1.png,a,0.25,red\n2.png,a,1,\nbig ones/3.png,b,0,blue\n"
    data = from_table(_table(photos, text))
    assert data.attributes is not None
    assert data.attributes.names == ("Size", "color=blue", "color=red")
    expected = torch.tensor([[0.25, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert torch.equal(data.attributes.values, expected)
    only = from_table(_table(photos, text), attributes=["color"])
    assert only.attributes is not None
    assert only.attributes.names == ("color=blue", "color=red")
    assert from_table(_table(photos, text), attributes=[]).attributes is None


def test_a_file_that_is_there_but_bad_is_left_to_the_check(photos: Path) -> None:
    (photos / "folder.jpg").mkdir()
    data = from_table(_table(photos, "path,label\nfolder.jpg,a\n"))
    with pytest.raises(UnreadablePicture, match="Is a directory"):
        data[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a line of column names and a line for each picture, got 0 lines"),
        ("path,label\n", "got 1 lines"),
        ("path,labels\n1.png,a\n", "expected a column 'label', got .*did you mean 'labels'"),
        ("file,label\n1.png,a\n", "expected a column 'path', got 'file', 'label'"),
        ("path,label,label\n1.png,a,b\n", "a name of its own for each column"),
        ("path,label\n1.png,a,b\n", "line 2: expected 2 cells .*got 3; put a cell that holds"),
        ('path,label\n"1.png,a\n', "line"),
        ("path,label\n1.png,\n2.png,a\n", "expected a label for every picture, got none for 1"),
        ("path,label\nx.png,a\n1.png,a\n", r"got 1 missing: '.*x\.png'; paths are relative"),
        ("path,label\n1.png,a\n./1.png,b\n", r"1 listed more often: '1\.png'; keep one line"),
        ("path,label,split\n1.png,a,trian\n", "picture 1: expected a split, one of .*got 'trian'"),
        ("path,label,split\n1.png,a,\n", "expected a split, one of .*got ''"),
        ("path,label,role\n1.png,a,asker\n", "expected the role 'query', 'gallery' or none"),
        ("path,label,split,role\n1.png,a,train,query\n", "a role only for the test part"),
        ("path,label,price\n1.png,a,12.5\n", "column 'price': expected numbers from 0 to 1"),
        ("path,label,x\n1.png,a,nan\n", "expected numbers from 0 to 1, or words, got nan"),
        ("path,label,x\n1.png,a,0.5\n2.png,a,\n", "in every row, got 1 empty cells"),
        (b"path,label\n1.png,\xff\xfe\xfa\n", "expected text in UTF-8"),
    ],
)
def test_a_table_with_a_fault_is_an_error_that_names_it(
    text: str | bytes, message: str, photos: Path
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        from_table(_table(photos, text))
    assert "labels.csv" in str(caught.value)


def test_a_column_of_free_text_is_no_attribute(photos: Path) -> None:
    rows = [f"{i}.png,a,note {i}" for i in range(MOST_WORDS + 1)]
    text = "\n".join(["path,label,note", *rows])
    with pytest.raises(ValueError, match=r"column 'note': .*got 257 words; remove the column"):
        from_table(_table(photos, text))


def test_many_missing_files_are_counted_and_the_first_named(photos: Path) -> None:
    rows = [f"missing {i}.png,a" for i in range(40)]
    with pytest.raises(ValueError, match=r"got 40 missing: .*missing 0\.png.* and 35 more"):
        from_table(_table(photos, "\n".join(["path,label", *rows])))


def test_a_missing_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.csv: expected a table, got 'No such file"):
        from_table(tmp_path / "none.csv")


@pytest.mark.parametrize("path", ["../1.png", "/etc/hostname", "in/../../1.png", "{}x/1.png"])
def test_pictures_outside_the_folder_of_the_table_are_refused(photos: Path, path: str) -> None:
    place = photos / "tables"
    place.mkdir()
    table = _table(place, f"path\n{path.format(place)}\n")
    with pytest.raises(ValueError, match=r"labels.csv: expected pictures in the table's folder"):
        from_table(table)


def test_pictures_outside_are_read_where_that_is_allowed(photos: Path) -> None:
    place = photos / "tables"
    place.mkdir()
    outside = _table(place, f"path,label\n../1.png,io\n{photos / '2.png'},luna\n")
    assert len(from_table(outside, allow_outside=True)) == 2
    inside = _table(photos, f"path,label\n{photos / '1.png'},io\nbig ones/../2.png,luna\n")
    assert len(from_table(inside)) == 2
