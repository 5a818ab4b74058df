"""The page as static files that need no server: `kinspace gallery`.

A page opened from a disk may load scripts and pictures, but not fetch files: the data is a script.
Neighbors are computed in advance. New pictures cannot be searched, since there is no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically
from kinspace.evaluation.similarity import nearest
from kinspace.inference import EmbeddingModel, load
from kinspace.server import catalog
from kinspace.server.gallery_map import gallery_positions
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.launcher import report_missing_pictures
from kinspace.web import map_script

__all__ = ["write_site"]

MARK = "<!-- data -->"
COPIED = ("app.js", "style.css")


def write_site(  # noqa: PLR0913 - options of a public function
    run: EmbeddingModel | str | Path,
    out: str | Path,
    data: Any = None,
    *,
    replace: bool = False,
    k: int = 24,
    device: str | None = None,
    status: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the page of a run's gallery with k neighbors of each picture; returns its path.

    data: the gallery's pictures, if they are not the run's own. out: a new or empty folder;
    replace: or one that this function wrote, whose page is written over. status: called with
    messages for the terminal. progress: called with the numbers of pictures written and in total.

    >>> write_site("runs/moths-nra-1", "site")  # doctest: +SKIP
    PosixPath('site/index.html')
    """
    checks.integer("k", k, at_least=1)
    folder = _folder(Path(out), replace=replace)
    model = run if isinstance(run, EmbeddingModel) else load(run, device)
    thumbnails = Thumbnails(model, data)
    report_missing_pictures(model, thumbnails, command="gallery", status=status)
    contents = {
        "about": catalog.about(model),
        "classes": catalog.classes(model.table),
        "pictures": catalog.pictures(model.table),
        "map": {"state": "ready"} | catalog.map_points(gallery_positions(model, status=status)),
        "near": _neighbors(model, k),
    }
    (folder / "thumb").mkdir(parents=True, exist_ok=True)
    for old in (folder / "thumb").glob("*.jpg"):  # of a larger gallery
        old.unlink()
    for row in range(len(thumbnails)):
        (folder / "thumb" / f"{row}.jpg").write_bytes(thumbnails.jpeg(row))
        if progress is not None:
            progress(row + 1, len(thumbnails))
    static = files("kinspace.server") / "static"
    for name in COPIED:
        (folder / name).write_bytes((static / name).read_bytes())
    _write(folder / "map.js", map_script())
    # U+2028 ends a line in old scripts; </ would matter only inside a page
    text = json.dumps(contents, separators=(",", ":")).replace("</", "<\\/")
    _write(folder / "data.js", f"window.kinspaceSite = {text};\n")
    page = (static / "index.html").read_text(encoding="utf-8")
    _write(folder / "index.html", page.replace(MARK, '<script src="data.js"></script>'))
    return folder / "index.html"


def _folder(folder: Path, *, replace: bool) -> Path:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder, got a file")
    if not folder.is_dir() or not any(folder.iterdir()):
        return folder
    if not ((folder / "data.js").exists() and (folder / "thumb").is_dir()):
        raise ValueError(f"{folder}: expected a new or empty folder, got one with other files")
    if not replace:
        raise ValueError(
            f"{folder}: expected a new or empty folder, got the page of a gallery; write over it "
            "with --replace (replace=True), or choose another folder with --out"
        )
    return folder


def _neighbors(model: EmbeddingModel, k: int) -> dict[str, Any]:
    """The k nearest other rows of each row, and cosines in thousandths."""
    if len(model.table) < 2:
        return {"rows": [[]], "cosines": [[]]}
    vectors = torch.from_numpy(model.table.vectors).to(model.device)
    cosines, rows = nearest(vectors, k)
    thousandths = (cosines * 1000).round().int()
    return {"rows": rows.tolist(), "cosines": thousandths.tolist()}


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
