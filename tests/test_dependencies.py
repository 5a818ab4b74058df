"""Dependencies point one way: the order of the rooms, as CONTRIBUTING.md has it.

Looks at the imports that run when a module is loaded; imports inside functions and for type
checking are allowed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# A room imports rooms of its own line and of the lines above. The longest name decides: evaluate
# and compare come after inference, the measures of evaluation before training.
ORDER = (
    ("kinspace", "kinspace._core", "kinspace._kernels"),
    ("kinspace.numerics", "kinspace.distributed"),
    ("kinspace.data",),
    ("kinspace.clustering", "kinspace.samplers", "kinspace.miners"),
    ("kinspace.models",),
    ("kinspace.losses", "kinspace.regularizers"),
    ("kinspace.objective",),
    ("kinspace.recipes",),
    ("kinspace.embeddings", "kinspace._table_files"),
    ("kinspace.evaluation",),
    ("kinspace.compat",),
    ("kinspace.training",),
    ("kinspace.benchmark", "kinspace.sklearn"),
    ("kinspace.run",),
    ("kinspace.search",),
    ("kinspace.inference",),
    (
        "kinspace.evaluation.comparison",
        "kinspace.evaluation.evaluator",
        "kinspace.evaluation.hierarchy_recovery",
    ),
    ("kinspace.web",),
    ("kinspace.report",),
    ("kinspace.server",),
    ("kinspace.reproduce",),
    ("kinspace.cli", "kinspace.__main__"),
)
PLACES = {room: place for place, rooms in enumerate(ORDER) for room in rooms}


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted((SOURCE / "kinspace").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "expected absolute imports"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


def room_of(module: str) -> str:
    """The longest name in ORDER that the module has."""
    while module not in PLACES:
        module = module.rpartition(".")[0]
    return module


def test_every_room_has_a_place_in_the_order() -> None:
    rooms = {".".join(name.split(".")[:2]) for name in modules()}
    assert rooms == {".".join(room.split(".")[:2]) for room in PLACES}
    assert set(PLACES) <= set(modules())  # no room that is gone


@pytest.mark.parametrize("room", PLACES)
def test_a_room_imports_no_room_below_it(room: str) -> None:
    known = modules()
    wrong = []
    for name, path in known.items():
        if room_of(name) != room:
            continue
        for target in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if target.partition(".")[0] != "kinspace":
                continue
            while target not in known:  # a name in a module
                target = target.rpartition(".")[0]
            if PLACES[room_of(target)] > PLACES[room]:
                wrong.append(f"{path.relative_to(SOURCE.parent)} imports {target}")
    assert not wrong, "import it inside the function that needs it, or move it: " + "; ".join(wrong)
