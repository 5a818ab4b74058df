"""The page as a file: complete, alone, accessible, and small."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from html_checker import checked
from kinspace.embeddings import EmbeddingTable
from kinspace.report import write_report
from kinspace.run import Run


def test_the_page_of_a_run_is_whole_and_refers_to_nothing_far_away(page: Path, run: Run) -> None:
    assert page == run.folder / "report" / "index.html"
    assert page.stat().st_size < 15_000_000
    found = checked(page)
    for link in found.links:
        if link.startswith("#"):
            assert link[1:] in found.ids
        elif not link.startswith("data:"):
            assert (page.parent / link).is_file()


def test_the_page_shows_every_part_of_the_verdict(page: Path) -> None:
    text = re.sub(r"<script.*?</script>|<style.*?</style>", "", page.read_text(), flags=re.DOTALL)
    for words in (
        "Verdict", "What would help", "Comparison with baselines", "backbone before training",
        "raw pixels", "Map of the test pictures",
        "Pictures and what is found for them", "cosine similarities", "Worst",
        "Known or unknown?", "of 100 strangers", "For specialists", "Confidence", "Most confused",
        "Spread of", "Suspect labels", "Near-duplicates", "Hidden groups", "same or different",
        "NMI", "Classification error", "effective rank", "The loss by step",
        "Generalization to new classes",
        "Data check", "nothing is wrong", "Recipe", "seed", "hardware", "versions",
    ):  # fmt: skip
        assert words in text, words
    numbers = json.loads((page.parent / "evaluation.json").read_text())
    assert f"{100 * numbers['retrieval']['model']['recall@1']:.1f} %" in text
    verdict = re.findall(r"<p[^>]*>(.*?)</p>", text.partition('id="verdict"')[2])[:3]
    assert len(verdict) == 3
    assert all(sentence.endswith(".") for sentence in verdict)
    decision = numbers["decision"]
    assert f"Calibrated on {decision['basis']}." in text
    assert all(each["text"] in page.read_text() for each in decision["settings"])
    assert "threshold 0." not in text  # one decision alone


@pytest.mark.parametrize(
    ("vectors", "labels"),
    [
        (np.eye(4).repeat(3, 0), np.arange(12) // 3),
        (np.eye(5), np.zeros(5, int)),
        (np.eye(5), np.arange(5)),
        (np.zeros((6, 2)), np.arange(6) % 2),
        (np.eye(2), np.array([0, 1])),
    ],
    ids=["a table", "one class", "no positives", "zero vectors", "two rows"],
)
def test_a_table_has_a_page_too_whatever_it_holds(
    vectors: np.ndarray, labels: np.ndarray, tmp_path: Path
) -> None:
    page = write_report(EmbeddingTable(vectors, labels), out=tmp_path)
    checked(page)


def test_one_of_a_thing_is_not_said_as_many(run: Run, tmp_path: Path) -> None:
    page = write_report(EmbeddingTable(np.eye(3), [0, 0, 1]), out=tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "1 query has no other picture of the same class" in text
    assert "classes with a single picture, which has no match: 1" in text
    many = r"\b1 (?:pictures|classes|queries|clusters|seeds|runs|recipes|vectors)\b"
    assert re.findall(many, text) == []
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns("report"))
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"skipped": [["lost.png", "is empty"]]}))
    text = write_report(folder, checked=False).read_text(encoding="utf-8")
    assert "Skipped: 1 picture<" in text


def test_names_from_the_data_cannot_break_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>", "<b>&'\""
    table = EmbeddingTable(
        np.random.default_rng(0).standard_normal((12, 3)),
        np.arange(12) % 2,
        ids=tuple(f"<img src=x onerror=alert({i})>" for i in range(12)),
        class_names=evil,
    )
    text = write_report(table, out=tmp_path).read_text()
    checked(tmp_path / "index.html")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b>&" not in text


def test_a_table_needs_a_folder_for_its_report() -> None:
    with pytest.raises(ValueError, match="out: expected a folder"):
        write_report(EmbeddingTable(np.eye(2), [0, 1]))
