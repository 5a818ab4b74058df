"""The Python in the documentation runs, and the methods page leaves no method out."""

import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import kinspace
from kinspace import losses, miners, numerics, regularizers
from kinspace.cli import COMMANDS, load_command
from pages import run_page

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "docs/methods.md"
PATH = re.compile(r"(?<![\w./-])(\w[\w.-]*/[\w./-]*|[\w-]+\.(?:py|md|toml))(?![\w.(])")
ALONE = (
    "benchmark",
    "coming-from-pytorch-metric-learning",
    "distributed",
    "evaluation",
    "hub",
    "recipes",
    "start",
    "your-own-loss",
)
ELSEWHERE = {  # they have tests of their own
    "README.md",
    "data.md",
    "datasets.md",
    "methods.md",
    "search.md",
    "training.md",
}
NUMBER = re.compile(r"\b\d{2}\.\d(?: ± \d\.\d)?(?![\d,])")


def test_the_methods_page_runs_from_top_to_bottom() -> None:
    with torch.random.fork_rng():
        run_page(METHODS, {})


@pytest.mark.parametrize("name", ALONE)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what it makes goes with the test
    monkeypatch.setitem(losses.LOSSES, "median_triplet", torch.nn.Module)  # and its loss
    with torch.random.fork_rng():
        run_page(ROOT / f"docs/{name}.md", {})


def test_no_python_of_the_documentation_is_left_out() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    with_python = {page.name for page in pages if "```python" in page.read_text(encoding="utf-8")}
    assert with_python == ELSEWHERE | {f"{name}.md" for name in ALONE}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *ROOT.glob("docs/*.md")], ids=lambda page: page.name
)
def test_the_commands_of_a_page_have_the_options_they_are_given(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    for line in lines:
        for command in re.findall(r"^    (?:torchrun .*-m )?kinspace (.*)", line):
            for part in f"{command}".split("&& kinspace "):
                _check_command(part, page.name)


def _check_command(text: str, where: str) -> None:
    name, *words = shlex.split(text.partition("#")[0].partition(" > ")[0])
    assert name in COMMANDS, f"{where}: kinspace {text}"
    known = {option for parameter in load_command(name).params for option in parameter.opts}
    unknown = [word for word in words if word.startswith("-") and word not in known]
    assert not unknown, f"{where}: kinspace {text}"


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md"])
def test_numbers_come_from_a_page_of_results(page: str) -> None:
    sources = [*ROOT.glob("docs/results.md"), *ROOT.glob("benchmarks/*.md")]
    measured = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    named = NUMBER.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 5
    assert [number for number in named if number not in measured] == []


def test_the_training_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what it makes goes with the test
    with torch.random.fork_rng():
        run_page(ROOT / "docs/training.md", {})


def test_the_training_page_names_every_file_of_arun_page(tmp_path: Path) -> None:
    text = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.arange(48) % 8)
    options: dict[str, Any] = {"device": "cpu", "quiet": True, "changes": {"schedule.steps": 1}}
    run = kinspace.train(
        data, model=torch.nn.Linear(4, 3), method="contrastive", out=tmp_path / "run", **options
    )
    assert [path.name for path in run.folder.iterdir() if f"`{path.name}`" not in text] == []


def test_the_readme_runs_in_a_loop_of_the_users_own() -> None:
    # What a reader has: a model, a batch of it, a loader.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images, labels = torch.randn(8, 12), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
        names = {
            "model": torch.nn.Linear(12, 4),
            "images": images,
            "labels": labels,
            "loader": [(images, labels)],
            "num_classes": 5,
            "dim": 4,
        }
        run_page(ROOT / "README.md", names)


@pytest.mark.parametrize("package", [losses, regularizers, miners], ids=lambda p: p.__name__)
def test_the_methods_page_names_everything_public(package: Any) -> None:
    text = METHODS.read_text(encoding="utf-8")
    missing = [name for name in package.__all__ if f"`{name}`" not in text]
    assert not missing, f"docs/methods.md: expected {missing}"


def test_every_method_has_a_section_of_the_methods_page() -> None:
    headings = re.findall(r"^### .*$", METHODS.read_text(encoding="utf-8"), re.MULTILINE)
    modules = [*losses.LOSSES.values(), *regularizers.REGULARIZERS.values()]
    means = [numerics.k_skewed_mean, numerics.log_exp_mean, numerics.power_mean]
    names = [method.__name__ for method in (*modules, *means)]
    missing = [name for name in names if f"`{name}`" not in "".join(headings)]
    assert not missing, f"docs/methods.md: expected sections with {missing} in their headings"


def test_the_files_that_the_architecture_page_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    diagram = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    named = [path for code in re.findall(r"`([^`]+)`", text) for path in PATH.findall(code)]
    named += [path for path in PATH.findall(diagram) if path != "photos/"]
    named = [path for path in named if not {"NAME.py", "src"} & set(Path(path).parts)]
    named = [path for path in named if not path.startswith("RUN/")]
    assert len(named) > 40
    folders = (ROOT / "src/kinspace", ROOT)
    missing = [path for path in named if not any((folder / path).exists() for folder in folders)]
    assert not missing, f"docs/architecture.md: no such file or folder: {missing}"


def test_the_architecture_page_names_every_package() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src/kinspace").glob("*/__init__.py")]
    missing = [name for name in sorted(packages) if f"`{name}/`" not in text]
    assert not missing, f"docs/architecture.md: expected {missing}"


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Snippets of docs/results.md are written for the page that they become part of."""
    base = ROOT / "docs" if page.parent.name == "results" else page.parent
    text = re.sub(
        r"^```.*?^```|^    .*?$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M
    )
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (base / path) if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
        if anchor and target.suffix == ".md":
            anchors = {_anchor(line) for line in target.read_text(encoding="utf-8").splitlines()}
            assert anchor in anchors, f"{page.relative_to(ROOT)}: {link}"


def _anchor(line: str) -> str:
    """The anchor that GitHub gives a heading; empty for other lines."""
    if not line.startswith("#"):
        return ""
    text = re.sub(r"[^\w\s-]", "", line.lstrip("#").strip().lower())
    return text.replace(" ", "-")


def test_the_page_on_sharing_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with torch.random.fork_rng():
        run_page(ROOT / "docs/hub.md", {})
