"""Kernels in CUDA C++ compile for NVIDIA's GPUs, also on a machine that has none."""

import re
from pathlib import Path
from unittest import mock

import pytest
import torch

import kinspace
from kinspace import class_sums, cuda_kernels, distance_kernels, slopes
from kinspace.losses import almn, bier, centers, cluster_means, clustering, medoids, nra

pytestmark = pytest.mark.skipif(not cuda_kernels.available(), reason="PyTorch without CUDA")
# With what they are compiled.
COMPILED = {
    almn.SOURCE: [
        ("REAL=float", "THREADS=128", "CLIPPED=1"),
        ("REAL=double", "THREADS=128", "CLIPPED=0"),
    ],
    medoids.SOURCE: [
        ("REAL=float", "THREADS=640", "PACK=4", *medoids._plan(4, 4096, 1024, 4, 1, 640, 2**18)[0]),
        (
            "REAL=double",
            "THREADS=640",
            "PACK=1",
            *medoids._plan(8, 8001, 100, 99, 2, 640, 2**16)[0],
        ),
    ],
    centers.SOURCE: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    cluster_means.SOURCE: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    class_sums.SOURCE: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    nra.SOURCE: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    bier.SOURCE: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    clustering.SOURCE: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    distance_kernels.DIFFERENCES: [("REAL=float", "THREADS=256"), ("REAL=double", "THREADS=256")],
    slopes.SOURCE: [
        ("REAL=float", "THREADS=256", "PLUS_ONE=0"),
        ("REAL=double", "THREADS=256", "PLUS_ONE=1"),
    ],
    distance_kernels.SOURCE: [
        ("REAL=float", "PACK=4", "THREADS=512", *distance_kernels.FINITE),
        ("REAL=double", "PACK=1", "THREADS=512", *distance_kernels.SQUARES),
    ],
}


@pytest.mark.parametrize(
    "architecture",
    [pytest.param("sm_75", marks=pytest.mark.slow), "sm_90"],  # NVRTC 13 has no older
)
@pytest.mark.parametrize("source", COMPILED, ids=lambda source: source.name)
def test_a_kernel_compiles(source: Path, architecture: str) -> None:
    for macros in COMPILED[source]:
        assert cuda_kernels.compiled(source, architecture, macros).startswith(b"\x7fELF")


def test_what_does_not_compile_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text("__global__ void broken() { nothing_of_the_kind(); }")
    expected = re.escape("broken.cu does not compile for sm_90") + "(?s:.*)nothing_of_the_kind"
    with pytest.raises(RuntimeError, match=expected):
        cuda_kernels.compiled(broken, "sm_90")


def test_without_nvrtc_no_kernel_is_called() -> None:
    cuda_kernels.available.cache_clear()
    with mock.patch.object(cuda_kernels, "_nvrtc", side_effect=OSError("no libnvrtc")):
        assert not cuda_kernels.available()
    cuda_kernels.available.cache_clear()
    assert cuda_kernels.available()


def test_no_kernel_is_left_out() -> None:
    assert set(Path(kinspace.__file__).parent.rglob("*.cu")) == set(COMPILED)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_error_of_the_driver_has_its_text() -> None:
    macros = COMPILED[medoids.SOURCE][0]
    with torch.cuda.device(0), pytest.raises(RuntimeError, match=r"CUDA: .*\(\d+\)"):
        cuda_kernels.CudaKernel(medoids.SOURCE, "no_such_function", macros)
