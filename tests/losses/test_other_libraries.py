"""Values of other libraries where formulas agree: what `benchmarks/agreement.py --write` wrote."""

import json

import pytest
from benchmarks.agreement import FILE, PAIRS, difference

PINNED = json.loads(FILE.read_text())
HERE = {name: value for _, ours in PAIRS.values() for name, value in ours().items()}


def test_every_value_of_a_library_has_one_of_ours() -> None:
    assert set(PINNED["values"]) == set(HERE)
    assert set(PINNED["versions"]) == set(PAIRS)


@pytest.mark.parametrize("name", PINNED["values"])
def test_has_the_value_of_the_other_library(name: str) -> None:
    in_float32 = name.startswith("torchmetrics") or name.endswith(("HistogramLoss", " MarginLoss"))
    assert difference(HERE[name], PINNED["values"][name]) < (1e-6 if in_float32 else 1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("library", PAIRS)
def test_the_pinned_values_are_those_of_an_installed_library(library: str) -> None:
    theirs, _ = PAIRS[library]
    try:
        values = theirs()
    except ImportError as error:
        pytest.skip(str(error))
    for name, value in values.items():
        assert value == pytest.approx(PINNED["values"][name], rel=1e-6), name
