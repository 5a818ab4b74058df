"""A method's value and every gradient, and the comparison of two such results."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Result(NamedTuple):
    value: float
    gradients: dict[str, Tensor]  # by the name of the argument; zeros where there is no path


def evaluate(
    function: Callable[..., Tensor],
    arguments: Mapping[str, Tensor],
    options: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
) -> Result:
    """Call the function on copies of the arguments, the floating point ones differentiated."""
    given = {
        name: tensor.detach().to(dtype, copy=True).requires_grad_()
        if tensor.is_floating_point()
        else tensor
        for name, tensor in arguments.items()
    }
    value = function(*given.values(), **(options or {}))
    assert value.shape == (), "expected a scalar"
    assert value.requires_grad, "expected a value connected to the graph"
    floats = {name: tensor for name, tensor in given.items() if tensor.requires_grad}
    found = torch.autograd.grad(value, list(floats.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(tensor) if gradient is None else gradient
        for (name, tensor), gradient in zip(floats.items(), found, strict=True)
    }
    return Result(value.item(), gradients)


def disagreement(
    found: Result,
    expected: Result,
    *,
    value: float = 1e-9,
    gradient: float = 1e-6,
    value_floor: float = 1e-12,
    gradient_floor: float = 1e-12,
) -> str | None:
    """What differs, in words; None where nothing does.

    The value is compared relatively, a gradient relative to its largest entry; both have a floor
    for results that are 0 but for rounding.
    """
    allowed = value * abs(expected.value) + value_floor
    if not math.isfinite(found.value) or abs(found.value - expected.value) > allowed:
        return f"value {found.value!r}, expected {expected.value!r}"
    for name, wanted in expected.gradients.items():
        if not wanted.numel():  # one learner has no regressor
            continue
        gap = (found.gradients[name].double() - wanted.double()).abs().max().item()
        largest = wanted.abs().max().item()
        if not gap <= gradient * largest + gradient_floor:
            return f"gradient of {name} off by {gap:.3g}, its largest entry is {largest:.3g}"
    return None


def identical(first: Any, second: Any) -> None:
    """Assert that two tensors, or containers of tensors, are the same to the last bit."""
    torch.testing.assert_close(first, second, rtol=0.0, atol=0.0)


def normal(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers to be differentiated, in float64."""
    return (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def check_derivatives(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Assert that the first and second derivatives are those of finite differences."""
    assert torch.autograd.gradcheck(function, [x])
    assert torch.autograd.gradgradcheck(function, [x])
