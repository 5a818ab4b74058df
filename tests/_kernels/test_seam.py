"""The seam between formulas and kernels: which of them computes, and the switch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import kinspace
from kinspace._kernels import KERNELS, accelerated, use_kernels

Cube = Callable[..., Tensor]
used: list[str] = []  # what computed, in order


@pytest.fixture(autouse=True)
def _switch() -> Iterator[None]:
    used.clear()
    with use_kernels(True):
        yield


def make_cube(monkeypatch: pytest.MonkeyPatch, *, with_vjp_formula: bool) -> Cube:
    """scale x^3 with a kernel for positive numbers; each part of it notes that it was called."""
    kernel = ModuleType(f"cube_kernel_{with_vjp_formula}")

    def supports(x: Tensor, *, scale: float = 1.0) -> bool:
        return bool((x.detach() > 0).all())

    def forward(x: Tensor, *, scale: float = 1.0) -> tuple[Tensor, tuple[Tensor]]:
        used.append("forward")
        return scale * x**3, (x,)

    def vjp(saved: Any, grads: Any, *, scale: float = 1.0) -> tuple[Tensor]:
        used.append("vjp")
        return (3 * scale * saved[0].square() * grads[0],)

    def vjp_formula(saved: Any, grads: Any, *, scale: float = 1.0) -> tuple[Tensor]:
        used.append("vjp_formula")
        return (3 * scale * saved[0].square() * grads[0],)

    kernel.__dict__.update(supports=supports, forward=forward, vjp=vjp)
    if with_vjp_formula:
        kernel.__dict__["vjp_formula"] = vjp_formula
    monkeypatch.setitem(sys.modules, kernel.__name__, kernel)
    monkeypatch.setitem(KERNELS, "cube", kernel.__name__)

    @accelerated
    def cube(x: Tensor, *, scale: float = 1.0) -> Tensor:
        """The cube of x, times scale."""
        used.append("formula")
        return scale * x**3

    return cube


@pytest.fixture(params=[False, True], ids=["without vjp_formula", "with vjp_formula"])
def cube(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cube:
    return make_cube(monkeypatch, with_vjp_formula=request.param)


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_the_kernel_computes_what_it_supports(cube: Cube) -> None:
    x = leaf(1.0, 2.0)
    value = cube(x, scale=0.5)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert value.tolist() == [0.5, 4.0]
    assert slope.tolist() == [1.5, 6.0]
    assert used == ["forward", "vjp"]


def test_the_formula_computes_what_the_kernel_does_not_support(cube: Cube) -> None:
    x = leaf(-1.0, 2.0)
    value = cube(x)
    assert value.tolist() == [-1.0, 8.0]
    assert torch.autograd.grad(value.sum(), x)[0].tolist() == [3.0, 12.0]
    assert used == ["formula"]


def test_a_function_with_a_kernel_keeps_its_name_and_docstring(cube: Cube) -> None:
    assert cube.__name__ == "cube"
    assert cube.__doc__ == "The cube of x, times scale."


@pytest.mark.parametrize("with_vjp_formula", [False, True])
def test_a_gradient_with_a_graph_is_that_of_a_formula(
    with_vjp_formula: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = make_cube(monkeypatch, with_vjp_formula=with_vjp_formula)
    x = leaf(1.0, 2.0)
    (slope,) = torch.autograd.grad(cube(x, scale=0.5).sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    assert curvature.tolist() == [3.0, 6.0]
    assert used == ["forward", "vjp_formula" if with_vjp_formula else "formula"]


def test_a_function_with_a_kernel_can_be_differentiated_any_number_of_times(cube: Cube) -> None:
    x = leaf(1.0, 2.0)
    assert torch.autograd.gradcheck(cube, [x])
    assert torch.autograd.gradgradcheck(cube, [x])
    value = cube(x).sum()
    for expected in ([3.0, 12.0], [6.0, 12.0], [6.0, 6.0]):
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        assert slope.tolist() == expected
        value = slope.sum()


def test_a_backward_pass_can_be_repeated(cube: Cube) -> None:
    x = leaf(1.0, 2.0)
    value = cube(x).sum()
    value.backward(retain_graph=True)
    value.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 24.0]
    assert used == ["forward", "vjp", "vjp"]


def test_a_gradient_has_the_dtype_of_its_input(cube: Cube) -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    (slope,) = torch.autograd.grad(cube(x), x, torch.ones(2, dtype=torch.bfloat16))
    assert slope.dtype == torch.bfloat16


def test_a_compiled_function_traces_the_formula(cube: Cube) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: cube(x) + 1, fullgraph=True, backend="eager")
    assert compiled(leaf(1.0, 2.0)).tolist() == [2.0, 9.0]
    assert "forward" not in used


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own jvp
def test_transforms_of_torch_func_go_to_the_formula(cube: Cube) -> None:
    x = leaf(1.0, 2.0).detach()

    def total(x: Tensor) -> Tensor:
        return cube(x).sum()

    assert torch.func.grad(total)(x).tolist() == [3.0, 12.0]
    assert torch.func.vmap(total)(x[None]).tolist() == [9.0]
    assert torch.func.vmap(torch.func.grad(total))(x[None]).tolist() == [[3.0, 12.0]]
    assert torch.func.hessian(total)(x).diagonal().tolist() == [6.0, 12.0]
    assert torch.func.jvp(total, (x,), (torch.ones_like(x),))[1] == 15
    assert set(used) == {"formula"}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_goes_to_the_formula(cube: Cube) -> None:
    forward_ad = torch.autograd.forward_ad
    x = leaf(1.0, 2.0).detach()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(cube(dual)).tangent
    assert tangent.tolist() == [3.0, 12.0]
    assert used == ["formula"]


# --- the switch ----------------------------------------------------------------------------------


def test_kernels_are_off_within_a_with_statement_and_on_again_after_it(cube: Cube) -> None:
    x = leaf(1.0)
    with use_kernels(False):
        assert not use_kernels.enabled()
        cube(x)
    assert use_kernels.enabled()
    cube(x)
    assert used == ["formula", "forward"]


def test_the_switch_is_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="something else"), use_kernels(False):
        raise RuntimeError("something else")
    assert use_kernels.enabled()


def test_switches_can_be_nested() -> None:
    with use_kernels(False):
        with use_kernels(True):
            assert use_kernels.enabled()
        assert not use_kernels.enabled()
    assert use_kernels.enabled()


def test_a_call_switches_from_there_on(cube: Cube) -> None:
    use_kernels(False)
    assert not use_kernels.enabled()
    cube(leaf(1.0))
    use_kernels(True)
    cube(leaf(1.0))
    assert used == ["formula", "forward"]


def test_what_the_kernel_computed_keeps_its_backward_pass_after_the_switch(cube: Cube) -> None:
    x = leaf(1.0)
    value = cube(x)
    with use_kernels(False):
        assert torch.autograd.grad(value, x)[0].tolist() == [3.0]


def test_the_switch_is_public() -> None:
    assert kinspace.use_kernels is use_kernels


@pytest.mark.parametrize(
    ("variable", "enabled"), [("0", False), ("1", True), (None, True)], ids=str
)
def test_the_environment_sets_the_switch(variable: str | None, enabled: bool) -> None:
    variables = {key: value for key, value in os.environ.items() if key != "KINSPACE_KERNELS"}
    if variable is not None:
        variables["KINSPACE_KERNELS"] = variable
    code = "import kinspace; print(kinspace.use_kernels.enabled())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(enabled)
