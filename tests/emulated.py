"""Our CUDA kernels without a GPU: compiled for the CPU, with cuda_emulator.h."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kinspace.cuda_kernels import HEADER

EMULATOR = Path(__file__).with_name("cuda_emulator.h")
FLAGS = ("-std=c++20", "-O1", "-pthread", "-ffp-contract=off")
FLAGS += ("-fsanitize=alignment", "-fno-sanitize-recover")


@functools.cache
def prepared() -> Path:
    """A folder with the emulator and what it includes, compiled once: most of a kernel's time."""
    folder = Path(tempfile.mkdtemp(prefix="emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    header = shutil.copy(EMULATOR, folder)
    subprocess.run(["g++", *FLAGS, "-x", "c++-header", str(header)], check=True)
    return folder


class EmulatedKernel:
    """What `CudaKernel` is, but that its blocks are processes and its threads threads."""

    def __init__(self, source: Path, function: str, macros: tuple[str, ...], folder: Path) -> None:
        self.folder, self.program = folder, folder / function
        text = source.read_text(encoding="utf-8")
        text = text.replace("extern __shared__", "extern").replace("__shared__", "static")
        main = (
            f"int main(int many, char** words) {{ return run({function}, THREADS, many, words); }}"
        )
        file = folder / "emulated.cpp"
        file.write_text(f'#include "cuda_emulator.h"\n{text}\n{main}\n', encoding="utf-8")
        options = [f"-D{macro}" for macro in macros]
        options += [f"-I{prepared()}", f"-I{HEADER.parent}", *FLAGS]
        command = ["g++", *options, str(file), "-o", str(self.program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def launch(self, blocks: int, threads: int, *arguments: Tensor | int | float) -> None:
        self.launch_together(blocks, threads, 0, *arguments)

    def launch_together(
        self, blocks: int, threads: int, shared: int, *arguments: Tensor | int | float
    ) -> None:
        words = []
        for index, argument in enumerate(arguments):
            if isinstance(argument, Tensor):
                word = self.folder / f"argument{index}"
                argument.detach().numpy().tofile(word)
                words.append(str(word))
            else:
                words.append(str(argument))
        command = [str(self.program), str(blocks), str(shared), *words]
        subprocess.run(command, check=True, timeout=100)
        for argument, word in zip(arguments, words, strict=True):
            if isinstance(argument, Tensor):
                flat = np.fromfile(word, dtype=argument.detach().numpy().dtype)
                argument.data.copy_(torch.from_numpy(flat).view(argument.shape))


def emulating(folder: Path) -> Callable[..., EmulatedKernel]:
    """For `built`: kernels made in a folder, each once."""

    @functools.cache
    def built(
        source: Path, function: str, macros: tuple[str, ...], _: torch.device
    ) -> EmulatedKernel:
        own = folder / f"kernel{len(list(folder.iterdir()))}"  # one program a set of macros
        own.mkdir()
        return EmulatedKernel(source, function, macros, own)

    return built
