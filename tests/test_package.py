"""The package's top level: its names, and that they are imported when they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kinspace
from kinspace.losses import PAIRED_LOSSES


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_can_be_used() -> None:
    for name in kinspace.__all__:
        assert getattr(kinspace, name) is getattr(kinspace, name)
    assert kinspace.losses.LOSSES is kinspace.LOSSES


def test_tab_completion_offers_the_public_names() -> None:
    assert dir(kinspace) == sorted(kinspace.__all__)


def test_type_checkers_see_the_public_names() -> None:
    tree = ast.parse(Path(kinspace.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names]
    assert sorted([*names, "__version__"]) == sorted(kinspace.__all__)
    for node in imports:  # from the module where the name is looked up, too
        for alias in node.names:
            module = kinspace._MODULE_OF.get(alias.name)
            assert node.module == (f"kinspace.{module}" if module else "kinspace")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kinspace' has no attribute 'looses'"):
        kinspace.looses  # noqa: B018


def test_importing_the_package_imports_nothing_slow() -> None:
    code = "import sys, kinspace; print({'torch', 'numpy', 'typer', 'rich'} & set(sys.modules))"
    assert run(code) == "set()\n"


def test_data_is_imported_without_torchvision_and_scikit_learn() -> None:
    code = "import sys, kinspace.data; print({'torchvision', 'sklearn'} & set(sys.modules))"
    assert run(code) == "set()\n"


def test_a_call_of_every_loss_and_regularizer_is_typed() -> None:
    for registry in (kinspace.LOSSES, PAIRED_LOSSES, kinspace.REGULARIZERS):
        for name, module in registry.items():
            assert module.__annotations__.get("__call__") == "Callable[..., Tensor]", (
                f"{name}: write `__call__: Callable[..., Tensor]` in {module.__module__}"
            )
