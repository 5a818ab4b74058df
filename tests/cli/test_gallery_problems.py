"""kinspace duplicates, label-errors, and search with a folder of queries."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from bundles import run_with_gallery
from command_line import run
from kinspace.embeddings import EmbeddingTable
from odd_pictures import scene, write_clean


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    write_clean(folder, classes=2, each=3)
    scene(101).resize((40, 40)).save(folder / "kind 0" / "copy.png")  # kind 1/1.png, smaller
    return folder


def test_lists_the_copies_of_a_folder_and_of_a_gallery(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies.csv"
    assert "1 pair of copies" in run("duplicates", photos, "-o", out)
    [row] = rows_of(out)
    assert (row["kind"], row["similarity"]) == ("copy", "")
    assert {row["first"], row["second"]} == {"kind 0/copy.png", "kind 1/1.png"}
    assert {row["first_class"], row["second_class"]} == {"kind 0", "kind 1"}
    folder = run_with_gallery(tmp_path)
    run("index", folder, photos, "--replace")
    assert "1 pair of copies" in run("duplicates", folder, "-o", out)
    [row] = rows_of(out)
    assert float(row["similarity"]) > 0.5
    assert Path(row["first_file"]).is_file()
    assert "expected a run folder before DATA" in run("duplicates", photos, photos, code=2)


def test_labels_that_look_wrong_go_to_a_table_that_puts_them_right(tmp_path: Path) -> None:
    folder, out = run_with_gallery(tmp_path), tmp_path / "labels.csv"
    table = EmbeddingTable.load(folder / "gallery.npz")
    assert table.labels is not None
    order = np.argsort(-(table.vectors @ table.vectors.T), axis=1, kind="stable")[:, :12]
    alike = (table.labels[order] == table.labels[:, None]).all(1)  # among their own alone
    wrong = [table.ids[row] for row in np.flatnonzero(alike & (table.labels == 0))[[0, 3, 6]]]
    run("relabel", folder, *wrong, "--to", "1")
    said = run("label-errors", folder, "-o", out, "--at-least", "0.3")
    assert f"next: kinspace relabel {folder} --table {out}" in said
    rows = {row["id"]: row for row in rows_of(out)}
    found = [name for name in wrong if name in rows and rows[name]["suggested"] == "0"]
    assert found == wrong
    assert all(row["class"] != row["suggested"] for row in rows.values())
    assert f"{len(rows)} pictures relabeled" in run("relabel", folder, "--table", out)
    plain = run("label-errors", folder / "gallery.npz", "--at-least", "1")
    assert "id,class,suggested,own,other,file\n" in plain


def test_searches_with_a_folder_of_pictures(photos: Path, tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    table = run("search", folder, photos, "-k", "2").splitlines()
    assert table[0] == "query,class,confidence,rank,id,neighbor_class,similarity,file"
    assert len(table) == 1 + 7 * 2
    out = tmp_path / "found.json"
    assert "7 queries" in run("search", folder, photos, "-k", "2", "-o", out)
    found = json.loads(out.read_text())
    assert [len(each["neighbors"]) for each in found] == [2] * 7
    assert found[0]["query"] == "kind 0/0.png"
    assert found[0]["class_name"] == table[1].split(",")[1]
    one = json.loads(run("search", folder, found[0]["file"], "-k", "2", "--json"))
    near = [each["id"] for each in one["neighbors"]]
    assert near == [each["id"] for each in found[0]["neighbors"]]
    queries = tmp_path / "queries.csv"
    queries.write_text("picture\nphotos/kind 1/0.png\n")
    csv_out = tmp_path / "found.csv"
    run("search", folder, queries, "--path-column", "picture", "-o", csv_out, "-k", "3")
    assert [row["rank"] for row in rows_of(csv_out)] == ["1", "2", "3"]
    assert "expected a file ending in .csv or .json" in run(
        "search", folder, photos, "-o", tmp_path / "found.txt", code=2
    )
