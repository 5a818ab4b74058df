"""The gallery as files, opened from the disk."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from browsers import Visit
from kinspace.cli import app
from kinspace.inference import EmbeddingModel
from kinspace.server import write_site
from web_servers import READY, ROWS


@pytest.fixture(scope="module")
def site(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    done = CliRunner().invoke(app, ["gallery", str(run), "-o", str(out), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert str(out / "index.html") in done.output.replace("\n", "")
    return out


def test_it_holds_what_the_model_answers(site: Path, model: EmbeddingModel) -> None:
    text = (site / "data.js").read_text(encoding="utf-8")
    data = json.loads(text.removeprefix("window.kinspaceSite = ").rstrip(";\n"))
    near = model.neighbors(9, 24)
    assert data["near"]["rows"][9] == [each.row for each in near]
    assert data["near"]["cosines"][9] == [round(1000 * each.similarity) for each in near]
    assert len(list((site / "thumb").iterdir())) == ROWS
    assert (site / "thumb/9.jpg").read_bytes()[:2] == b"\xff\xd8"


def test_it_works_from_the_disk_without_a_server(
    browser: Any, site: Path, model: EmbeddingModel
) -> None:
    here = site.resolve().as_uri()
    visit = Visit(browser, f"{here}/index.html", here, offline=True).ready(*READY)
    assert "cannot search with a new picture" in visit.tab.locator("#drop-help").inner_text()
    assert visit.tab.locator("#file").count() == 0
    card = visit.tab.locator("#list button").nth(2)
    name = card.get_attribute("data-id")
    card.click()
    visit.says("24 nearest pictures")
    found = visit.tab.locator("#list button").evaluate_all(
        "all => all.map(each => each.dataset.id)"
    )
    assert found == [each.id for each in model.neighbors(name, 24)]
    visit.tab.wait_for_function("() => document.querySelector('#list img').naturalWidth > 0")
    visit.tab.mouse.click(*visit.on_map(5))
    visit.says("24 nearest pictures")
    visit.tab.fill("#class-filter", "3")
    visit.tab.wait_for_function(
        "() => document.getElementById('results-note').textContent.includes('24 nearest neighbors')"
    )
    assert set(visit.tab.locator("#list .class").all_inner_texts()) <= {"3"}
    visit.close()


def test_it_is_written_again_but_not_over_other_files(
    site: Path, model: EmbeddingModel, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"page of a gallery; write over it with --replace"):
        write_site(model, site)
    assert write_site(model, site, replace=True) == site / "index.html"
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(ValueError, match="new or empty folder"):
        write_site(model, tmp_path)
    with pytest.raises(ValueError, match="got a file"):
        write_site(model, tmp_path / "letters.txt")
