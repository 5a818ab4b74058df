"""The examples run."""

import runpy
from pathlib import Path

import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_table_is_learnt(tmp_path: Path) -> None:
    run = runpy.run_path(str(EXAMPLES / "tabular.py"))["run"]
    results = run(tmp_path / "run", steps=200)
    found = {name: results[name]["recall@1"] for name in ("pixels", "untrained", "selected")}
    assert found["selected"] > max(found["pixels"], found["untrained"]) + 0.2


def test_digits_that_were_never_seen_are_found_better_after_training() -> None:
    example = runpy.run_path(str(EXAMPLES / "digits.py"))
    pictures, labels = example["digits"](torch.Generator().manual_seed(0))
    seen = labels < 5
    model = example["train"](pictures[seen], labels[seen], "proxy_anchor", (50,), 0)[50]
    after = example["recall"](model, pictures[~seen], labels[~seen])
    assert after > example["recall"](torch.nn.Flatten(), pictures[~seen], labels[~seen]) + 0.05
