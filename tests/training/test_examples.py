"""The examples run."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_table_is_learnt(tmp_path: Path) -> None:
    run = runpy.run_path(str(EXAMPLES / "tabular.py"))["run"]
    results = run(tmp_path / "run", steps=200)
    found = {name: results[name]["recall@1"] for name in ("pixels", "untrained", "selected")}
    assert found["selected"] > max(found["pixels"], found["untrained"]) + 0.2
