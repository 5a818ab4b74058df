"""The kernel of greedy medoids, in Triton's interpreter and on a GPU."""

import pytest
import torch

import medoid_kernel_laws as laws
from interpreted import call_interpreted

LAWS = [name for name in dir(laws) if name.startswith("check_")]
EVERY_LAW = pytest.mark.parametrize("law", LAWS)


@EVERY_LAW
def test_laws_hold_in_the_interpreter(law: str) -> None:
    call_interpreted("medoid_kernel_laws", law)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@EVERY_LAW
def test_laws_hold_on_a_gpu(law: str) -> None:
    getattr(laws, law)("cuda")
