"""kinspace serve; the server is in tests/server."""

from pathlib import Path

from bundles import bare_run
from command_line import run


def test_a_run_without_a_gallery_needs_kinspace_index(tmp_path: Path) -> None:
    said = run("serve", bare_run(tmp_path), "--device", "cpu", code=2)
    assert "make one with: kinspace index" in said
