"""Our GPU kernels without a GPU: in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def call_interpreted(module: str, function: str) -> None:
    """Call the test module's function with the kernels in Triton's interpreter."""
    pytest.importorskip("triton", minversion="3.6")
    # TRITON_INTERPRET is read when the kernels are defined, so this takes a new process
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parent)}
    code = f"import {module} as t; t.{function}()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
