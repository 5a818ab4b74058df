"""The page as a file: complete, alone, accessible, and small."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.report import write_report
from kinspace.run import Run

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Checker(HTMLParser):
    """Collects what a page refers to, and whether its elements close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.without_alt = 0
        self.ids: list[str] = []
        self.headings: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.links += [names[key] or "" for key in ("src", "href", "xlink:href") if key in names]
        self.ids += [names["id"] or ""] if "id" in names else []
        self.without_alt += tag == "img" and not names.get("alt")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: Path) -> Checker:
    checker = Checker()
    checker.feed(page.read_text(encoding="utf-8"))
    checker.close()
    assert checker.open == []
    assert checker.without_alt == 0
    assert len(checker.ids) == len(set(checker.ids))
    assert checker.headings[0] == 1
    assert all(b - a <= 1 for a, b in zip(checker.headings, checker.headings[1:], strict=False))
    return checker


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
        "Verdict", "Comparison with baselines", "untrained backbone", "raw pixels",
        "Map of the test pictures",
        "Retrieval examples", "before training (untrained backbone)", "Worst", "Most confused",
        "Spread of", "Suspect labels", "Near-duplicates", "Hidden groups", "same or different",
        "NMI", "Classification error", "effective rank", "The loss by step",
        "Generalization to new classes",
        "Data check", "nothing is wrong", "Recipe", "seed", "hardware", "versions",
    ):  # fmt: skip
        assert words in text, words
    numbers = json.loads((page.parent / "evaluation.json").read_text())
    assert f"{100 * numbers['retrieval']['model']['recall@1']:.1f} %" in text
    verdict = re.findall(r"<p>(.*?)</p>", text.partition('id="verdict"')[2])[:2]
    assert len(verdict) == 2
    assert all(sentence.endswith(".") for sentence in verdict)


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
