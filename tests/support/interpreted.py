"""Our GPU kernels without a GPU: in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent)


def call_interpreted(module: str, function: str, *arguments: str, **environment: str) -> None:
    """Call a function of a module beside this one with the kernels in Triton's interpreter.

    environment: further variables of the process.
    """
    pytest.importorskip("triton", minversion="3.7")  # the interpreter of 3.6 fails with NumPy 2.5
    # TRITON_INTERPRET is read when the kernels are defined, so this takes a new process
    path = os.pathsep.join([SUPPORT, *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {key: value for key, value in os.environ.items() if key != "KINSPACE_KERNELS"}
    variables |= {"TRITON_INTERPRET": "1", "PYTHONPATH": path} | environment
    code = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
    warnings = ["-Werror", "-Wignore:`torch.jit.script` is deprecated:FutureWarning"]  # by jvp
    command = [sys.executable, *warnings, "-c", code, *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
