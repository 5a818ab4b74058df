"""The package itself: what it offers, and that it offers it only when asked."""

import subprocess
import sys

import pytest

import kinspace


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there() -> None:
    assert set(kinspace.__all__) <= set(dir(kinspace))
    for name in kinspace.__all__:
        assert getattr(kinspace, name) is getattr(kinspace, name)
    assert kinspace.losses.LOSSES is kinspace.LOSSES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kinspace' has no attribute 'looses'"):
        kinspace.looses  # noqa: B018


def test_importing_the_package_imports_nothing_slow() -> None:
    assert run("import sys, kinspace; print('torch' in sys.modules)") == "False\n"


def test_data_does_without_torchvision_and_scikit_learn_until_they_are_used() -> None:
    code = "import sys, kinspace.data; print({'torchvision', 'sklearn'} & set(sys.modules))"
    assert run(code) == "set()\n"
