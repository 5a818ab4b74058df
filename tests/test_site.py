"""The documentation site builds strictly, from nothing but the checkout, and nothing is missing."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from browsers import Visit, chromium
from kinspace.cli import COMMANDS
from kinspace.losses import LOSSES, PAIRED_LOSSES
from kinspace.regularizers import REGULARIZERS

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs/methods"
MODULES = (
    "losses",
    "regularizers",
    "miners",
    "samplers",
    "evaluation",
    "search",
    "training",
    "run",
)


class Links(HTMLParser):
    """What a page loads, what it links to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors.add(named.get("id", ""))
        if tag in ("script", "img", "iframe") and "src" in named:
            self.loads.append(named["src"])
        elif tag == "link" and named.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loads.append(named["href"])
        elif tag == "a" and "href" in named:
            self.links.append(named["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in site.rglob("*.html")}


def test_the_site_loads_nothing_from_elsewhere(pages: dict[Path, Links]) -> None:
    loaded = {load for links in pages.values() for load in links.loads}
    assert [load for load in sorted(loaded) if "//" in load] == []


def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(
    site: Path, pages: dict[Path, Links]
) -> None:
    dead = [f"{page.relative_to(site)}: {link}" for page, link in _dead_links(pages)]
    assert dead == []


def _dead_links(pages: dict[Path, Links]) -> Iterator[tuple[Path, str]]:
    anchors = {str(page): links.anchors for page, links in pages.items()}
    for page, links in pages.items():
        for link in {*links.links, *links.loads}:
            if link.startswith(("http", "mailto:", "data:", "//")) or page.name == "404.html":
                continue
            path, _, anchor = unquote(link).partition("#")
            target = os.path.normpath(page.parent / path) if path else str(page)
            if target in anchors:
                if anchor and anchor not in anchors[target]:
                    yield page, link
            elif not Path(target).is_file() and not Path(target, "index.html").is_file():
                yield page, link


def test_search_finds_a_page_of_the_site_opened_from_a_disk(site: Path) -> None:
    with chromium() as browser:
        visit = Visit(browser, (site / "methods/nra.html").as_uri(), site.as_uri())
        visit.tab.click(".md-search__input")
        visit.tab.locator(".md-search__input").press_sequentially("magnet")
        visit.ready(".md-search-result__item a")
        found = visit.tab.locator(".md-search-result__link").first
        assert "methods/magnet.html" in found.get_attribute("href")
        found.click()
        visit.tab.wait_for_url("**/methods/magnet.html*")
        visit.close()


def test_every_command_has_a_page_with_all_its_options(site: Path) -> None:
    for name in COMMANDS:
        text = (site / f"commands/{name}.html").read_text(encoding="utf-8")
        source = (ROOT / f"src/kinspace/cli/{name.replace('-', '_')}.py").read_text("utf-8")
        declared = re.findall(r'typer\.Option\(\s*"(--[\w-]+)"', source)
        assert [option for option in declared if f"{option}" not in text] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_its_place(pages: dict[Path, Links], module: str) -> None:
    anchors = set().union(*(links.anchors for links in pages.values()))
    public = import_module(f"kinspace.{module}").__all__
    missing = [name for name in public if f"kinspace.{module}.{name}" not in anchors]
    assert missing == []


def test_llms_txt_lists_pages_that_are_there_as_markdown(site: Path) -> None:
    listed = re.findall(r"\]\(([^)]+\.md)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert {"start.md", "methods/nra.md", "commands/train.md", "results.md"} <= set(listed)
    assert [name for name in listed if not (site / name).is_file()] == []


def test_every_method_has_a_small_picture() -> None:
    named = {*LOSSES, *PAIRED_LOSSES, *REGULARIZERS}
    drawn = {path.stem for path in PICTURES.glob("*.svg")}
    missing = sorted(named - drawn)
    assert not missing, f"python docs/make_method_pictures.py {' '.join(missing)}"
    assert drawn == named, f"docs/methods: no such method: {sorted(drawn - named)}"
    assert all(path.stat().st_size < 25_000 for path in PICTURES.glob("*.svg"))


def test_every_page_has_its_place_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "methods.md"]
    missing = [name for name in pages if not re.search(rf"(: |- ){re.escape(name)}$", text, re.M)]
    assert not missing, f"mkdocs.yml: expected {missing} below nav"
