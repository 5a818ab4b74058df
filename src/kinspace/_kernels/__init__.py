"""Faster ways to the same numbers, optional by construction.

A function in plain PyTorch is the definition: its formula. `@accelerated` lets a kernel, a file of
the formula's name in this folder, compute it where it can:

    supports(*inputs, **options)         whether the kernel takes these
    forward(*inputs, **options)          the result, and the tensors that the next needs
    vjp(saved, grads, **options)         gradients by the inputs, from those by the result
    vjp_formula(saved, grads, **options) the same in plain PyTorch; left out where `saved` starts
                                         with the inputs, and the formula itself is differentiated

Without `vjp` the result is a constant of the gradient.

Whatever a kernel cannot do goes to the formula by itself: tracing by torch.compile, the transforms
of torch.func, forward-mode derivatives; and derivatives of its gradient, by `vjp_formula`.

One switch turns all kernels off: `use_kernels(False)`, or KINSPACE_KERNELS=0 in the environment.
benchmarks/kernels.py measures what each of them saves; one that saves nothing a user would notice
does not stay.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["KERNELS", "accelerated", "use_kernels"]

# the formulas that have a kernel, and the module that has it
KERNELS: dict[str, str] = {
    "bias_relu": "kinspace._kernels.bias_relu",
    "greedy_medoids": "kinspace._kernels.greedy_medoids",
    "join_bias_relu": "kinspace._kernels.join_bias_relu",
    "local_response_norm": "kinspace._kernels.local_response_norm",
    "max_pool": "kinspace._kernels.max_pool",
    "split_bias_relu": "kinspace._kernels.split_bias_relu",
    "squared_distance_table": "kinspace._kernels.squared_distance_table",
}

P = ParamSpec("P")
R = TypeVar("R")
_switch = {"on": os.environ.get("KINSPACE_KERNELS", "1") != "0"}


class use_kernels:
    """Use kernels or only the formulas: from here on, or within a `with` statement.

    >>> with use_kernels(False):
    ...     use_kernels.enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        self._before = _switch["on"]
        _switch["on"] = enabled

    @staticmethod
    def enabled() -> bool:
        """Whether kernels are used."""
        return _switch["on"]

    def __enter__(self) -> None:
        """Set when it was made."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _switch["on"] = self._before


def accelerated(formula: Callable[P, R]) -> Callable[P, R]:
    """Let the kernel of the formula's name compute it where it can (module docstring).

    The positional arguments are tensors, the options are keywords.
    """
    module = KERNELS[formula.__name__]

    @functools.wraps(formula)
    def dispatched(*inputs: P.args, **options: P.kwargs) -> R:
        if _switch["on"] and not _transformed((*inputs, *options.values())):
            kernel = _kernel(module)
            if kernel.supports(*inputs, **options):
                if not hasattr(kernel, "vjp"):
                    return kernel.forward(*inputs, **options)[0]  # type: ignore[no-any-return]
                return _Kernel.apply(formula, kernel, options, *inputs)  # type: ignore[no-any-return,no-untyped-call]
        return formula(*inputs, **options)

    return dispatched


@functools.cache
def _kernel(module: str) -> ModuleType:
    return importlib.import_module(module)


def _transformed(arguments: Sequence[Any]) -> bool:
    """Whether something else than plain backward differentiation looks at the tensors of these."""
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or any(
            torch._C._functorch.is_functorch_wrapped_tensor(each)
            for each in arguments
            if isinstance(each, Tensor)
        )
    )


class _Kernel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        formula: Callable[..., Any],
        kernel: ModuleType,
        options: dict[str, Any],
        *inputs: Tensor,
    ) -> Any:
        result, saved = kernel.forward(*inputs, **options)
        ctx.save_for_backward(*saved)
        ctx.formula, ctx.kernel, ctx.options, ctx.count = formula, kernel, options, len(inputs)
        ctx.dtypes = [tensor.dtype for tensor in inputs]
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved, kernel = ctx.saved_tensors, ctx.kernel
        if not torch.is_grad_enabled():
            found = kernel.vjp(saved, grads, **ctx.options)
        elif hasattr(kernel, "vjp_formula"):
            found = kernel.vjp_formula(saved, grads, **ctx.options)
        else:
            # aliases: a tensor that is given twice has a gradient in each of its places
            inputs = [tensor.view_as(tensor) for tensor in saved[: ctx.count]]
            outputs = ctx.formula(*inputs, **ctx.options)
            found = torch.autograd.grad(
                outputs, inputs, grads, create_graph=True, materialize_grads=True
            )
        cast = (grad.to(dtype) for grad, dtype in zip(found, ctx.dtypes, strict=True))
        return None, None, None, *cast
