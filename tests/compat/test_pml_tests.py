"""benchmarks/pml_tests.py on a checkout with three files of tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pml_tests.py"
FILES = {
    "src/pytorch_metric_learning/__init__.py": "",
    "src/pytorch_metric_learning/utils/__init__.py": "",
    "src/pytorch_metric_learning/utils/common_functions.py": "SMALL = 1e-6\n",
    "tests/__init__.py": "import os, torch\n"
    "TEST_DTYPES = [getattr(torch, name) for name in os.environ['TEST_DTYPES'].split(',')]\n",
    "tests/losses/__init__.py": "",
    "tests/losses/test_one.py": """
import unittest
import torch
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.losses.supcon_loss import SupConLoss
from pytorch_metric_learning.utils import common_functions as c_f
from .. import TEST_DTYPES

class TestOne(unittest.TestCase):
    def setUp(self):
        self.labels = torch.LongTensor([0, 0, 1])

    def test_value(self):
        for dtype in TEST_DTYPES:
            found = TripletMarginLoss(margin=0.2)(torch.eye(3, dtype=dtype), self.labels)
            self.assertTrue(abs(found - 0.2) < c_f.SMALL)

    def test_another_value(self):
        self.assertTrue(SupConLoss()(torch.eye(3), self.labels) == 0)

    def test_an_option(self):
        TripletMarginLoss(swap=True)

    @unittest.skip("wants a GPU")
    def test_skipped(self):
        pass
""",
    "tests/losses/test_two.py": "from pytorch_metric_learning.losses import P2SGradLoss\n",
}


@pytest.mark.slow
def test_counts_what_passes_what_has_no_counterpart_and_what_fails(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = tmp_path / "found.json"
    command = [sys.executable, str(SCRIPT), str(tmp_path / "checkout"), "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = {o["test"]: (o["result"], o["why"]) for o in json.loads(found.read_text())}
    assert {
        name.removeprefix("losses.test_one.TestOne."): r for name, (r, _) in outcomes.items()
    } == {
        "test_value": "passed",
        "test_another_value": "failed",
        "test_an_option": "no counterpart",
        "test_skipped": "skipped",
        "test_two": "no counterpart",
    }
    assert "P2SGradLoss" in outcomes["test_two"][1]
    assert "| all | 1 | 1 | 2 | 1 |" in done.stdout
    missing = subprocess.run([*command[:2], str(tmp_path)], capture_output=True, check=False)
    assert missing.returncode == 1
    assert b"expected a checkout with tests/ and src/" in missing.stderr
