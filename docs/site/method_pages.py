"""docs/methods.md as a page a method: its section, a picture, the recipe and the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from repository import ROOT, anchor_of

from kinspace import losses, miners, numerics, regularizers

__all__ = ["INDEX", "SOURCE", "MethodPage", "index_page", "method_pages", "sections"]

SOURCE = "docs/methods.md"
INDEX = "methods/index.md"
PACKAGES = (losses, regularizers, miners, numerics)
REGISTRIES = {**losses.LOSSES, **losses.PAIRED_LOSSES, **regularizers.REGULARIZERS}
OF_ALL = ("How to use them", "Which one to take")  # sections of the index page
SETUP = "The Python continues from the setup of [the methods](../docs/methods.md).\n"

CAPTION = (
    "The method alone, at its defaults, moves the points themselves for 200 steps of gradient "
    "descent: from the open marks to the filled ones. A color is a class (or a pair, or a center); "
    "diamonds are proxies or centers. Unit vectors move on a circle, here drawn the larger the "
    "later it is. Learners have a circle each."
)


@dataclass(frozen=True)
class MethodPage:
    """A section of docs/methods.md and where it goes."""

    place: str
    title: str  # in the navigation
    group: str
    heading: str
    text: str
    names: list[str] = field(default_factory=list)  # of its public functions and modules

    @property
    def anchors(self) -> list[str]:
        """Anchors of the page's headings."""
        below = re.findall(r"^#{2,4} (.*)$", self.text, re.MULTILINE)
        return [anchor_of(heading) for heading in (self.heading, *below)]

    def markdown(self) -> str:
        """The page, with links as they are in docs/methods.md."""
        parts = [f"# {self.heading}\n"]
        picture = f"docs/methods/{self.place.removeprefix('methods/').removesuffix('.md')}.svg"
        if (ROOT / picture).exists():
            parts.append(f"![{self.title} moves points in the plane]({picture[5:]}){{ .plane }}\n")
            parts.append(f"*{CAPTION}*\n{{ .caption data-search-exclude }}\n")
        parts.append(self.text)
        if "```python" in self.text:
            parts.append(SETUP.replace("../docs/", ""))
        parts.append(_recipe(self.names))
        parts.append(_reference(self.names))
        return "\n".join(parts)


def method_pages() -> list[MethodPage]:
    """One page for each `###` section of docs/methods.md, and for each group without any."""
    pages: list[MethodPage] = []
    for group, text in sections(2):
        if group in OF_ALL or not group:
            continue
        below = list(sections(3, text))
        if len(below) == 1:
            slug = anchor_of(group)
            names = list(miners.__all__) if slug == "miners" else []
            pages.append(MethodPage(f"methods/{slug}.md", group, group, group, text, names))
        for heading, body in below[1:]:
            names = [name for name in re.findall(r"`(\w+)`", heading) if _package(name)]
            title = _title(heading, names)
            slug = _slug(names) or anchor_of(heading)
            pages.append(MethodPage(f"methods/{slug}.md", title, group, heading, body, names))
    return pages


def index_page(pages: list[MethodPage]) -> str:
    """docs/methods.md without the sections that have a page of their own, which it lists."""
    parts: list[str] = []
    for group, text in sections(2):
        head = f"## {group}\n" if group else ""
        listed = [page for page in pages if page.group == group]
        if group and not listed:
            parts.append(head + text)
        elif not group:
            parts.append(text)
        else:
            below = next(sections(3, text))[1] if len(listed) > 1 else ""
            links = "\n".join(f"- [{page.heading}](#{page.anchors[0]})" for page in listed)
            parts.append(f"{head}{below}\n{links}\n")
    return "\n".join(parts)


def sections(level: int, text: str | None = None) -> Iterator[tuple[str, str]]:
    """Headings of a level with the text below each; the text above the first has the heading ""."""
    text = (ROOT / SOURCE).read_text(encoding="utf-8") if text is None else text
    pieces = re.split(rf"^{'#' * level} (.*)\n", text, flags=re.MULTILINE)
    yield "", pieces[0]
    yield from zip(pieces[1::2], pieces[2::2], strict=True)


def _package(name: str) -> str | None:
    for package in PACKAGES:
        if name in package.__all__:
            return package.__name__
    return None


def _slug(names: list[str]) -> str | None:
    """The name of the method in its registry; else that of its first function."""
    for registered, module in REGISTRIES.items():
        if module.__name__ in names:
            return registered
    return names[0].lower() if names else None


def _title(heading: str, names: list[str]) -> str:
    modules = [name for name in names if name[0].isupper()]
    return ", ".join(modules or names[:3]) or heading


def _recipe(names: list[str]) -> str:
    """The file of the default recipe of a loss, folded."""
    slug = _slug(names)
    path = ROOT / "src/kinspace/recipes/defaults" / f"{slug}.toml"
    if not path.exists():
        return ""
    toml = path.read_text(encoding="utf-8").strip()
    lines = "\n".join(f"    {line}".rstrip() for line in toml.splitlines())
    command = f"kinspace train photos/ --method {slug}"
    what = f"`{command}`: where it differs from the defaults, which `kinspace methods {slug}` adds"
    return f'\n## Recipe\n\n??? note "{what}"\n\n    ```toml\n{lines}\n    ```\n'


def _reference(names: list[str]) -> str:
    if not names:
        return ""
    directives = "\n\n".join(f"::: {_package(name)}.{name}" for name in names)
    return f"\n## Reference\n\n{directives}\n"
