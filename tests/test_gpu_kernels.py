"""Every Triton kernel compiles for an NVIDIA GPU, also on a machine that has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kinspace
from kinspace.losses import hdc_kernel, hierarchical_triplet_kernel, pddm_kernel
from kinspace.miners import distance_weighted_kernel
from kinspace.models import bias_relu, kernels

triton = pytest.importorskip("triton", minversion="3.6")
# What they are launched with: the types of the tensors, which come first, and the constants.
# The other arguments are whole numbers, but for those of the normalization.
PDDM: dict[str, float] = {"PAIRS": 16, "DIM": 16, "WIDTH": 128, "UNITS": 16}
LAUNCHED: dict[Any, tuple[str, dict[str, float]]] = {
    kernels._pool: ("bf16 bf16 u8", {"stride": 2, "padding": 0, "BLOCK": 1024}),
    kernels._unpool: ("bf16 u8 bf16", {"stride": 1, "padding": 1, "BLOCK": 1024}),
    kernels._normalize: ("bf16 bf16", {"AROUND": 2, "BLOCK": 1024}),
    kernels._pulls: ("bf16 bf16 fp32", {"AROUND": 2, "BLOCK": 1024}),
    kernels._normalize_back: ("bf16 bf16 fp32 bf16", {"AROUND": 2, "BLOCK": 1024}),
    bias_relu._forward: ("bf16 fp32 bf16", {"unit": 8, "ROWS": 64, "COLUMNS": 64}),
    bias_relu._backward: ("bf16 bf16 bf16 fp32", {"unit": 1, "ROWS": 256, "COLUMNS": 16}),
    hierarchical_triplet_kernel._join: (
        "fp32 fp32 fp32 i32",
        {"SHARE": 1 / 16, "ROWS": 16, "COLUMNS": 512},
    ),
    hierarchical_triplet_kernel._hinges: (
        "fp32 fp32 fp32 i64 i64 i64 i32 fp32 fp32 fp32 fp32 fp32",
        {"SHARE": 1 / 16, "MARGIN": 0.1, "CLOSE": 0.1, "WIDTH": 4, "BLOCK": 256, "DEPTH": 4},
    ),
    hdc_kernel.cascade: (
        "fp32 fp32 fp32 i32 i32 i32 fp32 fp32 fp32",
        {"BLOCK": 4096, "WIDE": 4, "DIM": 256, "DIGITS": 3, "BINS": 256},
    ),
    distance_weighted_kernel._draw: ("fp32 i64 fp32 i32 i64", {"BLOCK": 2048, "WIDE": 4}),
    pddm_kernel._positives: ("fp32 fp32 fp32 fp32 fp32 i64 i64 fp32", PDDM),
    pddm_kernel._against: ("fp32 fp32 fp32 fp32 fp32 i64 i64 i64 i64 fp32", PDDM),
    pddm_kernel._quadruplet: (
        "fp32 fp32 fp32 fp32 fp32 i64 i64 i64 i64 fp32 fp32 fp32 fp32",
        PDDM,
    ),
}
SLOW = (pddm_kernel._quadruplet,)
FRACTIONS = ("weight", "power", "k", "margin", "distance_margin", "cutoff", "nonzero_cutoff")


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in LAUNCHED],
    ids=lambda kernel: kernel.fn.__name__,
)
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_a_kernel_compiles(kernel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # compiled now, not some time before
    tensors, constants = LAUNCHED[kernel]
    types = [f"*{each}" for each in tensors.split()]
    types += [
        "constexpr" if name in constants else "fp32" if name in FRACTIONS else "i32"
        for name in kernel.arg_names[len(types) :]
    ]
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature=dict(zip(kernel.arg_names, types, strict=True)),
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    hopper = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    assert triton.compile(source, target=hopper, options={"num_warps": 8}).asm["cubin"]


def test_no_kernel_is_left_out() -> None:
    kinds: dict[str, set[str]] = {r"@jit\ndef (\w+)": set(), r"(\w+)\[(?:\(|_grid)": set()}
    for file in Path(kinspace.__file__).parent.rglob("*.py"):
        for pattern, found in kinds.items():
            found.update(re.findall(pattern, file.read_text(encoding="utf-8")))
    defined, launched = kinds.values()
    assert {kernel.fn.__name__ for kernel in LAUNCHED} == defined & launched
