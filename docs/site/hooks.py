"""What mkdocs calls while it builds the site: pages from outside docs/, their links, llms.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from command_pages import command_pages
from method_pages import INDEX, SOURCE, index_page, method_pages
from mkdocs.structure.files import File
from reference_pages import api_pages, example_pages, recipe_tables
from repository import ROOT, PlacedLinks, anchor_of, outside_pages

METHODS = method_pages()
EXAMPLES = example_pages()
COMMANDS = command_pages()
DOCUMENTED = {
    line.removeprefix("::: ")
    for page in METHODS
    for line in page.markdown().splitlines()
    if line.startswith("::: ")
}
API = api_pages(DOCUMENTED)
OUTSIDE = outside_pages()
PLACES = {
    **{f"docs/{path.name}": path.name for path in (ROOT / "docs").glob("*.md")},
    SOURCE: INDEX,
    **OUTSIDE,
    **{f"examples/{Path(place).stem}.py": place for place in EXAMPLES if "index" not in place},
    "README.md": "index.md",
    "examples": "examples/index.md",
}
SECTIONS = {SOURCE: {anchor: page.place for page in METHODS for anchor in page.anchors}}
LINKS = PlacedLinks(PLACES, SECTIONS)
SOURCES = {place: source for source, place in PLACES.items() if source != "README.md"}
PAGES: dict[str, tuple[str, str, str]] = {}  # title, first paragraph, text


def on_config(config: Any) -> Any:
    """Name headings as GitHub does; list methods, commands and modules in the navigation."""
    config["mdx_configs"]["toc"]["slugify"] = anchor_of
    config["nav"] = _with_generated(config["nav"])
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not files of docs/, and every file that a page links to."""
    generated: dict[str, str] = {INDEX: index_page(METHODS), **COMMANDS, **API, **EXAMPLES}
    generated |= {page.place: page.markdown() for page in METHODS}
    for source, place in OUTSIDE.items():
        generated[place] = (ROOT / source).read_text(encoding="utf-8")
    for place, text in generated.items():
        files.append(File.generated(config, place, content=text))
    for file in files.documentation_pages():
        text = generated.get(file.src_uri) or file.content_string
        LINKS.rewrite(text, _source(file.src_uri), file.src_uri)  # collects what it links to
    for name in sorted(LINKS.files):
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links of the repository become links of the site."""
    place = page.file.src_uri
    if place == "recipes.md":
        markdown += recipe_tables()
    text = LINKS.rewrite(markdown, _source(place), place)
    paragraphs = re.split(r"\n\s*\n", text)
    first = next((p for p in paragraphs if re.match(r"[A-Z]|kinspace ", p) and "|" not in p), "")
    PAGES[place] = (page.title or "", re.sub(r"\]\([^)]*\)|[\[\]]", "", first), text)
    return text


def on_post_build(config: Any) -> None:
    """Write llms.txt, and each page as Markdown beside it."""
    site = Path(config["site_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for section in config["nav"]:
        ((title, entries),) = section.items()
        lines += ["", f"## {title}", ""]
        for place in _leaves(entries):
            page_title, first, text = PAGES[place]
            sentence = first.replace("\n", " ").split(". ")[0].strip().rstrip(".:")
            lines.append(f"- [{page_title}]({place}){': ' + sentence if sentence else ''}")
            (site / place).parent.mkdir(parents=True, exist_ok=True)
            (site / place).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _source(place: str) -> str:
    """The file of the repository that a page was made of, from which its links start."""
    if place in SOURCES:
        return SOURCES[place]
    return SOURCE if any(page.place == place for page in METHODS) else f"docs/{place}"


def _with_generated(nav: list[Any]) -> list[Any]:
    """The navigation with lists of generated pages in place of METHODS and so on."""
    lists: dict[str, list[Any]] = {
        "METHODS": _grouped_methods(),
        "COMMANDS": [
            {place.split("/")[1][:-3]: place} for place in COMMANDS if "index" not in place
        ],
        "API": [{place.split("/")[1][:-3]: place} for place in API],
        "EXAMPLES": [place for place in EXAMPLES if "index" not in place],
        "BENCHMARKS": [place for place in OUTSIDE.values() if place.startswith("benchmarks/")],
    }
    done: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry in lists:
            done += lists[entry]
        elif isinstance(entry, dict):
            ((title, value),) = entry.items()
            done.append({title: _with_generated(value) if isinstance(value, list) else value})
        else:
            done.append(entry)
    return done


def _grouped_methods() -> list[Any]:
    groups: dict[str, list[Any]] = {}
    for page in METHODS:
        groups.setdefault(page.group, []).append({page.title: page.place})
    return [pages[0] if len(pages) == 1 else {group: pages} for group, pages in groups.items()]


def _leaves(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, dict):
        return [leaf for value in entries.values() for leaf in _leaves(value)]
    return [leaf for entry in entries for leaf in _leaves(entry)]
