"""Whether values of a tensor can be looked at."""

import pytest
import torch
from torch import Tensor

from kinspace._core.tracing import is_traced

X = torch.ones(3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own jvp
def test_values_can_be_read_in_eager_mode_and_while_differentiating() -> None:
    found = []

    def note(x: Tensor) -> Tensor:
        found.append(is_traced(x))
        return x.sum()

    note(X)
    note(X.clone().requires_grad_()).backward()
    torch.func.grad(note)(X)
    torch.func.jvp(note, (X,), (X,))
    assert found == [False] * 4


def test_values_cannot_be_read_in_vmap_at_any_depth() -> None:
    found = []

    def note(x: Tensor) -> Tensor:
        found.append(is_traced(x))
        return x.sum()

    torch.func.vmap(note)(X[None])
    torch.func.vmap(torch.func.grad(note))(X[None])
    torch.func.grad(lambda x: torch.func.vmap(note)(x[None]).sum())(X)
    assert found == [True] * 3


def test_values_cannot_be_read_in_a_compiled_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: x + 1 if is_traced(x) else x - 1, fullgraph=True, backend="eager"
    )
    assert torch.equal(compiled(X), X + 1)
