"""A Markdown page of results: tables, figures and commands from the results files, with comments.

The comments on an experiment are in a Markdown file of its name, in a folder with the name of the
page (docs/results/almn.md for docs/results.md). Writing the page again keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kinspace.reproduce.experiment_files import experiment_names, read_experiment
from kinspace.reproduce.jobs import shown_data
from kinspace.reproduce.records import Records, read_results
from kinspace.reproduce.result_figures import draw_figures
from kinspace.reproduce.results_table import headings, table_lines

__all__ = ["results_page"]

Content = Mapping[str, Any]
# Chapters in the order of the page, each with its experiments; others are at the end of the last.
CHAPTERS = {
    "The papers' own pictures: 227 pixels": (
        *("sweeps", "almn_printed", "almn_margin", "virtual_points"),
        *("density_printed", "density_lambda", "density_share"),
        *("nra_printed", "nra_alpha", "nra_trials"),
        *("spread", "spread_printed", "five", "large_batch"),
    ),
    "Larger pictures": ("almn", "density", "nra", "baselines", "best"),
    "Classes seen in training, and other data": (
        *(
            "magnet_pets_printed",
            "magnet_pets",
            "magnet_attributes",
            "magnet_map",
            "magnet_hierarchy",
        ),
        *("nra_mnist", "spread_omniglot", "spread_omniglot_weight", "large_batch_moths"),
    ),
}


def results_page(page: str | Path, results: str | Path) -> Path:
    """Write the page from all results files in a folder, and return its path.

    Figures are drawn again, because an interrupted run has left none.
    """
    page, results = Path(page), Path(results)
    files = sorted(results.glob("*.json")) if results.is_dir() else []
    found = [(file, _with_figures(file)) for file in files]
    if not found:
        raise ValueError(
            f"{results}: expected results of `kinspace reproduce` (NAME.json), got none; make some "
            f"with --results {results}"
        )
    order = [name for names in CHAPTERS.values() for name in names]
    places = {name: position for position, name in enumerate(order)}
    found.sort(key=lambda each: (places.get(each[1]["experiment"], len(order)), each[0].stem))
    comments = page.with_suffix("")
    parts = [_snippet(comments / "introduction.md", "# Results\n")]
    before = None
    for file, content in found:
        chapter = _chapter(content["experiment"])
        parts += [f"## {chapter}\n"] if chapter != before else []
        parts.append(_section(file, content, page, comments))
        before = chapter
    parts.append(_snippet(comments / "end.md", ""))
    page.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(part.strip("\n") + "\n" for part in parts if part.strip())
    page.write_text(text, encoding="utf-8")
    return page


def _chapter(name: str) -> str:
    return next((title for title, names in CHAPTERS.items() if name in names), [*CHAPTERS][-1])


def _with_figures(file: Path) -> dict[str, Any]:
    """The content of a results file, with figures where the experiment is a shipped one."""
    content = read_results(file)
    if content["experiment"] not in experiment_names():
        return content
    experiment = read_experiment(content["experiment"]).on(content["data"])
    records = Records(file.parent, experiment, content["data"])
    draw_figures(records)
    return records.to_dict()


def _section(file: Path, content: Content, page: Path, comments: Path) -> str:
    stem = file.name.removesuffix(".json")
    elsewhere = "" if stem == content["experiment"] else f" ({content['data']})"
    parts = [
        f"### {content['title']}{elsewhere}\n",
        f"{content['paper']}. Data: {content['data']}.\n",
        _snippet(comments / f"{stem}.md", ""),
        markdown_table(content),
    ]
    parts += [
        f"![{figure['alt']}]({_link(file.parent / figure['file'], page)})\n"
        for figure in content["figures"]
    ]
    parts.append(_made_by(file, content, page))
    return "\n".join(part.strip("\n") + "\n" for part in parts if part.strip())


def markdown_table(content: Content) -> str:
    """The lines of the table. The best number of a column is not marked: read the spreads."""
    heads = headings(content)
    rows = ["| | | " + " | ".join(heads) + " |", "|---|---|" + "---:|" * len(heads)]
    rows += [
        f"| {each.row} | {each.source} | " + " | ".join(each.cells) + " |"
        for each in table_lines(content)
    ]
    return "\n".join(rows) + "\n"


def _made_by(file: Path, content: Content, page: Path) -> str:
    """The command, the hardware and the versions."""
    runs = content["runs"]
    seeds = sorted({run["seed"] for run in runs})
    hardware = _distinct(run["hardware"]["device"] for run in runs)
    torch = _distinct(run["hardware"]["torch"] for run in runs)
    commits = _distinct(run.get("commit", "unknown") for run in runs)
    minutes = sum(run["seconds"] for run in runs) / 60
    return (
        f"    {_command(content)}\n\n"
        f"Seeds {', '.join(map(str, seeds))}; {len(runs)} runs, {minutes:.0f} minutes of training "
        f"all together; {hardware}; torch {torch}; commit {commits}. Every run with its command: "
        f"[{file.name}]({_link(file, page)}).\n"
    )


def _command(content: Content) -> str:
    """The command that makes these runs and no others, from the experiment as it is now."""
    name, data, runs = content["experiment"], content["data"], content["runs"]
    seeds = sorted({run["seed"] for run in runs})
    words = [f"kinspace reproduce {name} {shown_data(data)} --seeds {len(seeds)}"]
    trained = {run["row"] for run in runs}
    rows = [row["name"] for row in content["rows"]]
    if not trained.issuperset(rows):
        words += [f"--only {row}" for row in rows if row in trained]
    if name in experiment_names() and not any(run["held_out"] for run in runs):
        words += ["--validate 0"] if read_experiment(name).validate else []
    if any("--weights" in run["command"] or "model.weights=" in run["command"] for run in runs):
        words.append("--weights FILE")
    return " ".join(words)


def _distinct(values: Iterable[str]) -> str:
    return " and ".join(sorted(set(values)))


def _link(file: Path, page: Path) -> str:
    return Path(os.path.relpath(file.resolve(), page.resolve().parent)).as_posix()


def _snippet(path: Path, otherwise: str) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else otherwise
