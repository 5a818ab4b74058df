"""The Python of docs/data.md runs, and the page names everything public."""

import shutil
from pathlib import Path

import pytest

from kinspace import data
from odd_pictures import write_clean
from pages import run_page

PAGE = Path(__file__).parents[2] / "docs/data.md"


def test_the_data_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clean(tmp_path / "photos", classes=5, each=4)
    shutil.make_archive(str(tmp_path / "photos"), "zip", tmp_path, "photos")
    (tmp_path / "labels.csv").write_text(
        "path,label,split,color\nphotos/kind 0/0.png,a,train,red\nphotos/kind 1/0.png,b,test,blue\n"
    )
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, {})


def test_the_data_page_names_every_function_to_call() -> None:
    text = PAGE.read_text(encoding="utf-8")
    functions = [
        name for name in data.__all__ if name.islower() and name not in ("from_names", "unlabeled")
    ]
    assert [name for name in functions if f"`{name}" not in text and f"{name}(" not in text] == []
