"""Which page of the site a file of the repository becomes, and links between files as links there.

The pages are written to be read in the repository as well: their links are paths of files. On the
site some files lie elsewhere, and docs/methods.md is a page a method.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["ROOT", "PlacedLinks", "anchor_of", "outside_pages", "text_between_code"]

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?:\[(?P<label>[^\[\]]*))?\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.DOTALL | re.MULTILINE)
TOP = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def outside_pages() -> dict[str, str]:
    """Pages that lie outside docs/: their place in the repository, and on the site."""
    pages = {name: name.lower() for name in TOP}
    for path in sorted((ROOT / "benchmarks").glob("*.md")):
        pages[f"benchmarks/{path.name}"] = f"benchmarks/{path.name}"
    return pages


def anchor_of(heading: str, separator: str = "-") -> str:
    """The anchor that GitHub gives a heading: `nra_loss`, `NRA` is nra_loss-nra."""
    return re.sub(r"[^\w\s-]", "", heading.strip().lower()).replace(" ", separator)


def text_between_code(markdown: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a page in order, and whether each is a fenced block of code."""
    end = 0
    for block in FENCE.finditer(markdown):
        yield markdown[end : block.start()], False
        yield block[0], True
        end = block.end()
    yield markdown[end:], False


class PlacedLinks:
    """Rewrites links between files of the repository to links between pages of the site.

    places: the page of the site for each page of the repository.
    sections: for pages that are split, the page of the site for each of their anchors.
    files: files that are linked but are no pages, as paths in the repository; collected here.
    """

    def __init__(self, places: Mapping[str, str], sections: Mapping[str, Mapping[str, str]]):
        self.places = places
        self.sections = sections
        self.files: set[str] = set()

    def rewrite(self, markdown: str, source: str, place: str) -> str:
        """The page of the file `source` as it is to stand at `place` of the site."""

        def replaced(match: re.Match[str]) -> str:
            target = self._target(match["target"], source, place)
            if target is None:
                return match[0]
            if not target:  # a folder, which has no page
                return match["label"] or match[0]
            return match[0].replace(f"]({match['target']})", f"]({target})")

        pieces = text_between_code(markdown)
        return "".join(text if code else LINK.sub(replaced, text) for text, code in pieces)

    def _target(self, link: str, source: str, place: str) -> str | None:
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            return None
        named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        named = named if path else source
        if not (ROOT / named).exists():
            return None  # code that looks like a link, or a dead link, which the build reports
        found = self.sections.get(named, {}).get(anchor) or self.places.get(named)
        if found is None:
            if (ROOT / named).is_dir():
                return ""
            if not named.startswith("docs/"):
                self.files.add(named)
            found = named.removeprefix("docs/")
        if found == place and anchor:
            return f"#{anchor}"
        relative = posixpath.relpath(found, posixpath.dirname(place) or ".")
        return f"{relative}#{anchor}" if anchor else relative
