"""Checks of a written HTML page: what it refers to, and whether its elements close in order."""

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "wbr", "img", "input", "link", "hr"}


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
