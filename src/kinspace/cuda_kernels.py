"""Kernels in CUDA C++, compiled when first called by NVRTC, which comes with PyTorch for CUDA.

For what Triton cannot say: it keeps nothing in shared memory from one step of a loop to the next.
The driver and NVRTC are called by ctypes, so that nothing must be built or installed.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

__all__ = [
    "CudaKernel",
    "available",
    "built",
    "compiled",
    "packed",
    "run",
    "run_together",
    "shared_room",
    "takes",
]

HEADER = Path(__file__).with_name("warp.h")  # what a source may include
STATIC = 1024  # bytes of shared memory left to what a kernel names itself
OLDEST = (7, 0)  # that kernels are compiled for: Volta
# of the driver's cuda.h
SHARED_PER_BLOCK = 97  # device attribute: what a kernel may ask for
DYNAMIC_SHARED = 8  # function attribute: what it asks for


@lru_cache(None)
def available() -> bool:
    """Whether kernels can be built; they are only tried on NVIDIA's GPUs, on Linux."""
    if torch.version.cuda is None or sys.platform != "linux":
        return False
    try:
        _nvrtc()
    except OSError:  # a build of PyTorch without it: all goes by PyTorch's own operations
        return False
    return True


def takes(table: Tensor) -> bool:
    """Whether kernels can be called with this tensor's numbers; not inside torch.compile."""
    return (
        table.is_cuda
        and table.dtype in (torch.float32, torch.float64)
        and available()
        and not torch.compiler.is_compiling()
        and _recent(table.device)
    )


@lru_cache(None)
def _recent(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= OLDEST


def compiled(source: Path, architecture: str, macros: Sequence[str] = ()) -> bytes:
    """The machine code of a source file, for an architecture as "sm_90"; takes no GPU."""
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture={architecture}", *(f"-D{macro}" for macro in macros)]
    options.append("--device-as-default-execution-space")  # for lambdas: older NVRTC ask for it
    text, name = source.read_bytes(), source.name.encode()
    header, included = ctypes.c_char_p(HEADER.read_bytes()), ctypes.c_char_p(HEADER.name.encode())
    _check_nvrtc(
        nvrtc.nvrtcCreateProgram(
            *(ctypes.byref(program), text, name),
            *(1, ctypes.byref(header), ctypes.byref(included)),
        )
    )
    try:
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), words)
        if failed:
            _check_nvrtc(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
            log = ctypes.create_string_buffer(size.value)
            _check_nvrtc(nvrtc.nvrtcGetProgramLog(program, log))
            raise RuntimeError(
                f"{source.name} does not compile for {architecture}:\n{log.value.decode()}"
            )
        _check_nvrtc(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        _check_nvrtc(nvrtc.nvrtcGetCUBIN(program, code))
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache(None)
def shared_room(device: torch.device) -> int:
    """Bytes of shared memory that a block may ask for, less some for what a kernel names itself."""
    driver, handle, room = _driver(), ctypes.c_int(), ctypes.c_int()
    _check(driver.cuDeviceGet(ctypes.byref(handle), device.index))
    _check(driver.cuDeviceGetAttribute(ctypes.byref(room), SHARED_PER_BLOCK, handle))
    return room.value - STATIC


class CudaKernel:
    """A function of a source file for the GPU that is current when it is made."""

    def __init__(self, source: Path, function: str, macros: Sequence[str] = ()) -> None:
        self._device = torch.cuda.current_device()
        major, minor = torch.cuda.get_device_capability(self._device)
        code = compiled(source, f"sm_{major}{minor}", macros)
        driver, module = _driver(), ctypes.c_void_p()
        torch.cuda.synchronize()  # the driver needs the context that PyTorch makes when first used
        _check(driver.cuModuleLoadData(ctypes.byref(module), code))
        self._function = ctypes.c_void_p()
        name = function.encode()
        _check(driver.cuModuleGetFunction(ctypes.byref(self._function), module, name))

    def launch(self, blocks: int, threads: int, *arguments: Tensor | int | float) -> None:
        """Launch it on the current stream."""
        self._launch(_driver().cuLaunchKernel, (blocks, threads, 0), arguments, None)

    def launch_together(
        self, blocks: int, threads: int, shared: int, *arguments: Tensor | int | float
    ) -> None:
        """Launch it with so many bytes of shared memory, all blocks on the GPU at once or none."""
        _check(_driver().cuFuncSetAttribute(self._function, DYNAMIC_SHARED, shared))
        self._launch(_driver().cuLaunchCooperativeKernel, (blocks, threads, shared), arguments)

    def _launch(
        self,
        by: Callable[..., int],
        shape: tuple[int, int, int],
        arguments: Sequence[Tensor | int | float],
        *more: None,
    ) -> None:
        blocks, threads, shared = shape
        # eight bytes each, of which a C int reads the lower four
        values = array("q", [_bits(argument) for argument in arguments])
        first, count = values.buffer_info()
        pointers = array("q", range(first, first + 8 * count, 8))
        stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(self._device))
        size = blocks, 1, 1, threads, 1, 1, shared
        where = ctypes.c_void_p(pointers.buffer_info()[0])
        _check(by(self._function, *size, stream, where, *more))


def _bits(argument: Tensor | int | float) -> int:
    """What a kernel is given, as a whole number: of a tensor the address, of a number its bits."""
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    if isinstance(argument, float):
        return int.from_bytes(struct.pack("d", argument), sys.byteorder, signed=True)
    return argument


@lru_cache(None)
def built(source: Path, function: str, macros: tuple[str, ...], device: torch.device) -> CudaKernel:
    """A kernel for a device, made once; the device must be the current one."""
    return CudaKernel(source, function, macros)


def run(
    kernel: tuple[Path, str],
    like: Tensor,
    grid: tuple[int, int],
    *arguments: Tensor | int | float,
    macros: tuple[str, ...] = (),
) -> None:
    """Launch a kernel, a source file's function, on the device of a tensor and for its type.

    grid: blocks, and the threads of each. It is compiled with REAL, the type of the numbers,
    THREADS, and further macros.
    """
    with torch.cuda.device_of(like):
        _typed(kernel, like, grid, macros).launch(*grid, *arguments)


def run_together(
    kernel: tuple[Path, str],
    like: Tensor,
    grid: tuple[int, int],
    shared: int,
    *arguments: Tensor | int | float,
    macros: tuple[str, ...] = (),
) -> None:
    """`run` with so many bytes of shared memory, all blocks on the GPU at once or none."""
    with torch.cuda.device_of(like):
        _typed(kernel, like, grid, macros).launch_together(*grid, shared, *arguments)


def _typed(
    kernel: tuple[Path, str], like: Tensor, grid: tuple[int, int], macros: tuple[str, ...]
) -> CudaKernel:
    real = "REAL=double" if like.dtype == torch.float64 else "REAL=float"
    return built(*kernel, (real, f"THREADS={grid[1]}", *macros), like.device)


def packed(table: Tensor) -> str:
    """A macro: how many numbers of a table are read at a time (PACK).

    >>> packed(torch.empty(8, 8)), packed(torch.empty(7, 7))
    ('PACK=4', 'PACK=1')
    """
    aligned = table.shape[-1] % 4 == 0  # rows begin at multiples of 16 bytes
    return f"PACK={16 // table.element_size() if aligned else 1}"


@lru_cache(None)
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(None)
def _nvrtc() -> ctypes.CDLL:
    """Of the packages beside PyTorch, or of an installed CUDA."""
    name = f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}"
    # of CUDA 11 the name goes on: libnvrtc.so.11.2
    beside = Path(torch.__file__).parents[1].glob(f"nvidia/*/lib/{name}*")
    return ctypes.CDLL(str(next(beside, name)))


def _check(code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"CUDA: {(text.value or b'unknown error').decode()} ({code})")


def _check_nvrtc(code: int) -> None:
    if code:
        raise RuntimeError(f"NVRTC: error {code}")
