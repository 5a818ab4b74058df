"""What a release consists of: one version, a Dockerfile that fits, a trial of each extra."""

import ast
import re
import tomllib
from pathlib import Path

import kinspace

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile: word and rest, with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert kinspace.__version__ == PROJECT["version"]


def test_the_extra_all_has_every_extra_of_users() -> None:
    extras = PROJECT["optional-dependencies"]
    named = {name for text in extras["all"] for name in re.findall(r"[\w]+", text)} - {"kinspace"}
    assert named == set(extras) - {"all", "dev", "docs", "benchmark", "fiftyone"}


def test_every_extra_has_a_trial() -> None:
    tree = ast.parse((ROOT / "release" / "try_wheel.py").read_text(encoding="utf-8"))
    found = {
        node.target.id if isinstance(node, ast.AnnAssign) else node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
    }
    not_tried = set(ast.literal_eval(found["NOT_TRIED"]))
    tried = {ast.literal_eval(key) for key in found["TRIED"].keys}
    assert tried == set(PROJECT["optional-dependencies"]) - not_tried


def test_the_dockerfile_copies_what_is_there_and_runs_as_no_administrator() -> None:
    found = instructions()
    words = [word for word, _ in found]
    assert words.count("FROM") == 2
    assert set(words) <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV"),
        *("EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest
        if word == "FROM":
            assert ":" in rest.split()[0]  # a version, not whatever is the newest
    assert found[words.index("USER")] == ("USER", "1000")
    assert words.index("USER") < words.index("ENTRYPOINT")
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = ("pyproject.toml", "README.md", "LICENSE", "src")
    assert {f"!{name}" for name in copied} <= set(allowed)
