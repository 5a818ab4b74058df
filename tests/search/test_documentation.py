"""The Python of docs/search.md runs, on a gallery like the one that the page speaks of."""

import shutil
from pathlib import Path

import pytest
import torch

import kinspace
from bundles import QUICK
from emblems import write_emblems
from kinspace.inference import index_run
from pages import run_page

PAGE = Path(__file__).parents[2] / "docs/search.md"
CLASSES = ("atlas", "io", "luna", "polyphemus", "promethea", "regal")


@pytest.mark.slow  # Milvus waits for its indexes
def test_the_search_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("pymilvus")
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(CLASSES):
        for view, file in enumerate(
            write_emblems(Path("drawn"), range(number, number + 1), range(8))
        ):
            place = Path("photos", name, f"{view}.jpg")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    for query, file in zip(
        "abcd", write_emblems(Path("other"), range(9, 10), range(4)), strict=True
    ):
        shutil.copy(file, f"{query}.jpg")
    write_emblems(Path("new"), range(10, 11), range(2))
    run = kinspace.train(
        "photos", method="nra", changes=QUICK, out="runs/moths-nra-1", device="cpu", quiet=True
    )
    index_run(run)
    with torch.random.fork_rng():
        run_page(PAGE, {})
