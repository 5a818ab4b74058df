"""kinspace report."""

from pathlib import Path

from command_line import run
from vector_files import blobs, saved


def test_writes_a_page_on_a_table(tmp_path: Path) -> None:
    file = saved(tmp_path, *blobs())
    assert run("report", file) == f"{tmp_path / 'vectors-report' / 'index.html'}\n"
    assert (tmp_path / "vectors-report" / "index.html").is_file()


def test_refuses_a_file_as_the_output_folder_before_the_work(tmp_path: Path) -> None:
    file = saved(tmp_path, *blobs())
    assert "is a file" in run("report", file, "-o", file, code=2)
