"""The files of kinspace in which a command calls a function: how much a reader has to open.

    python benchmarks/crossed_files.py train digits --out /tmp/run
    python benchmarks/crossed_files.py report /tmp/run

Bodies of modules and classes, which run at import, do not count, nor do other processes. The
command takes several times as long as usual.
"""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import kinspace
from kinspace.cli import main

SOURCE = Path(kinspace.__file__).parent


def crossed(arguments: list[str]) -> list[str]:
    """Run a command line; the files that it crossed."""
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.argv = ["kinspace", *arguments]
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        main()
    except SystemExit as error:
        if error.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {
        Path(code.co_filename)
        for code in seen
        if code.co_flags & inspect.CO_OPTIMIZED  # a function
    }
    ours = [file for file in files if file.suffix == ".py" and file.is_relative_to(SOURCE)]
    return sorted(str(file.relative_to(SOURCE)) for file in ours)


if __name__ == "__main__":
    found = crossed(sys.argv[1:])
    print(*found, sep="\n")
    print(f"{len(found)} files")
