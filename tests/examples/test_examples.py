"""The examples run, and do what they say."""

import json
import runpy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from pages import run_notebook

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


def test_the_table_is_learnt(tmp_path: Path) -> None:
    results = example("tabular.py")["run"](tmp_path / "run", steps=200)
    found = {name: results[name]["recall@1"] for name in ("pixels", "untrained", "selected")}
    assert found["selected"] > max(found["pixels"], found["untrained"]) + 0.2


def test_digits_that_were_never_seen_are_found_better_after_training() -> None:
    program = example("digits.py")
    pictures, labels = program["digits"](torch.Generator().manual_seed(0))
    seen = labels < 5
    model = program["train"](pictures[seen], labels[seen], "proxy_anchor", (50,), 0)[50]
    after = program["recall"](model, pictures[~seen], labels[~seen])
    assert after > program["recall"](torch.nn.Flatten(), pictures[~seen], labels[~seen]) + 0.05


def test_magnet_tells_even_from_odd_by_clusters_and_keeps_the_digits() -> None:
    found = example("magnet.py")["run"]()
    assert found["error"] < 0.05
    assert min(found["magnet"], found["softmax"]) > 0.5  # five digits a class: 0.2 by chance


def test_a_student_learns_from_the_vectors_of_a_teacher() -> None:
    found = example("distillation.py")["run"]()
    assert found["teacher"] > found["student"] > 0.6  # 0.2 by chance


@pytest.mark.slow
def test_a_loss_of_the_users_own_is_compared_with_others(tmp_path: Path) -> None:
    table = example("custom_loss.py")["run"](
        tmp_path, against=("triplet",), trials=1, seeds=2, steps=10
    )
    assert [row["method"] for row in table.rows] == ["custom_loss", "triplet"]
    assert all(0.2 < row["recall@1"]["mean"] <= 1 for row in table.rows)
    assert "triplet" in (table.folder / "benchmark.md").read_text(encoding="utf-8")


def test_vectors_of_another_model_are_evaluated_and_reported(tmp_path: Path) -> None:
    retrieval, verification, page = example("others_vectors.py")["run"](tmp_path, rows=300)
    assert retrieval["recall@1"] > 0.9
    assert verification["auc"] > 0.8
    assert page.stat().st_size > 100_000


@pytest.mark.slow
def test_a_service_answers_out_of_milvus(tmp_path: Path) -> None:
    pytest.importorskip("pymilvus")
    neighbors, count = example("milvus_service.py")["run"](tmp_path)
    assert len(neighbors) == 5
    assert count == 1797


@pytest.mark.slow
def test_a_folder_becomes_a_report_and_a_search(tmp_path: Path) -> None:
    trained, page, verdict = example("folder.py")["run"](tmp_path, quick=True)
    assert trained.finished
    assert page.is_file()
    assert verdict.best in trained.model().table.class_names


@pytest.mark.slow
def test_frozen_features_are_better_after_training(tmp_path: Path) -> None:
    for results in example("frozen_features.py")["run"](tmp_path).values():
        assert results["final"]["recall@1"] > results["untrained"]["recall@1"]


def test_the_notebook_of_the_first_five_minutes_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what it makes goes with the test
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        run_notebook(EXAMPLES / "first_five_minutes.ipynb", names)
    results = names["run"].results
    assert results["selected"]["recall@1"] > results["untrained"]["recall@1"]


def test_the_notebook_is_kept_without_what_it_printed() -> None:
    text = (EXAMPLES / "first_five_minutes.ipynb").read_text(encoding="utf-8")
    assert all(not cell.get("outputs") for cell in json.loads(text)["cells"])
