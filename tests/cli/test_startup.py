"""The command line starts at once: help and version import no command and no numerical library."""

import json
import os
import subprocess
import sys
from importlib import import_module

import pytest
from typer.testing import CliRunner

import kinspace
from kinspace.cli import COMMANDS, EXIT_CODES, app, load_command

HEAVY = ("torch", "numpy", "torchvision", "timm", "sklearn", "matplotlib", "jinja2", "PIL")
SHARED = {"kinspace", "kinspace.cli", "kinspace.cli.errors", "kinspace.cli.options"}
SHARED |= {"kinspace.cli.progress", "kinspace.cli.sources", "kinspace.cli.tables"}
CODE = """
import json, sys
from kinspace.cli import COMMANDS, app
rows = []
for arguments in (["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)):
    try:
        app(arguments)
    except SystemExit as error:
        assert error.code == 0, arguments
    ours = [name for name in sys.modules if name.partition(".")[0] == "kinspace"]
    rows.append([arguments, ours, [name for name in HEAVY if name in sys.modules]])
print("\\n" + json.dumps(rows))
"""


@pytest.fixture(scope="module")
def imported() -> list[tuple[list[str], list[str], list[str]]]:
    """After each command line in one process: its arguments, our modules and the heavy ones."""
    code = f"HEAVY = {HEAVY!r}{CODE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[tuple[list[str], list[str], list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def test_no_help_imports_a_numerical_library(
    imported: list[tuple[list[str], list[str], list[str]]],
) -> None:
    for arguments, _, heavy in imported:
        assert heavy == [], arguments


def test_help_imports_the_module_of_its_command_only(
    imported: list[tuple[list[str], list[str], list[str]]],
) -> None:
    (_, version, _), (_, listing, _), *commands = imported
    assert set(version) == set(listing) == {"kinspace", "kinspace.cli"}
    before = SHARED
    for (name, _), ours, _ in commands:
        assert set(ours) <= before | {f"kinspace.cli.{name.replace('-', '_')}"}, name
        before = before | set(ours)


def test_the_version_is_printed() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"kinspace {kinspace.__version__}\n")


def test_the_help_lists_every_command_with_the_first_line_of_its_docstring() -> None:
    said = " ".join(CliRunner(env={"COLUMNS": "200"}).invoke(app, ["--help"]).stdout.split())
    for name, text in COMMANDS.items():
        module = name.replace("-", "_")
        function = getattr(import_module(f"kinspace.cli.{module}"), f"{module}_command")
        assert function.__doc__.splitlines()[0] == text, name
        assert f"{name} {text}" in said


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_every_help_says_the_exit_codes_and_explains_every_option(name: str | None) -> None:
    arguments = ["--help"] if name is None else [name, "--help"]
    said = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments).stdout
    assert EXIT_CODES in said
    options = [line for line in said.splitlines() if " --" in line[:10]]
    assert options
    for line in options:
        assert line.strip("│ ").endswith((".", "]")), line  # a sentence, or its default


def test_an_unknown_command_is_invalid_input() -> None:
    done = CliRunner().invoke(app, ["trian"])
    assert done.exit_code == 2
    assert "No such command 'trian'" in done.output


def test_python_m_kinspace_is_the_same_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kinspace", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"kinspace {kinspace.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'? "),
        (["train", "--steps", "0"], "Invalid value for '--steps': "),
        (["embed", "digits"], "Missing option '--out' / '-o'; "),
        (["train", "--stepz", "3"], "No such option: --stepz"),
    ],
)
def test_an_invalid_option_is_one_line_that_says_where_to_read_on(
    arguments: list[str], said: str
) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line
    assert line.endswith("--help lists what there is")


def test_the_help_has_an_everyday_part_and_another() -> None:
    said = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["--help"]).stdout
    assert said.index("Everyday") < said.index("│ train") < said.index("More")
    assert said.index("More") < said.index("│ reproduce")
    said = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["train", "--help"]).stdout
    assert said.index("--backbone") < said.index("Expert options") < said.index("--keep-every")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_everyday_options_of_a_command_are_options_it_has(name: str) -> None:
    module = import_module(f"kinspace.cli.{name.replace('-', '_')}")
    names = {parameter.name for parameter in load_command(name).params}
    assert set(getattr(module, "EVERYDAY", ())) <= names


def test_the_shell_completes_commands_and_options() -> None:
    for words, wanted in (("kinspace tr", "train"), ("kinspace train --bud", "--budget")):
        typed = words.split()
        environment = {
            **os.environ,
            "_KINSPACE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(typed) - 1),
        }
        code = "from kinspace.cli import app; app(prog_name='kinspace')"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert wanted in done.stdout.split(), done.stderr
