"""The options of a method: checked in one place, kept by its module and passed on to its formula.

    @takes_samples
    @takes_options(alpha=checks.at_least(1), reduction=checks.one_of(REDUCTIONS))
    def nra_loss(embeddings, labels, *, alpha=4.0, reduction="mean", **samples): ...

    class NRA(nn.Module):
        extra_repr = options_repr

        def __init__(self, *, alpha: float = 4.0, reduction: str = "mean") -> None:
            super().__init__()
            keep_options(self, nra_loss, alpha=alpha, reduction=reduction)

        def forward(self, embeddings, labels, **inputs):
            return nra_loss(embeddings, labels, **kept_options(self), **inputs)

A check is a function of an option's name and value that returns the value or raises a ValueError:
`checks.number`, `checks.positive`, `checks.whole(1)`, or one of the method's own. An option that
may be anything, such as a switch, has none. An option that only the module has is checked and
stored there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch import Tensor, nn

from kinspace._core import checks

__all__ = ["keep_options", "kept_options", "options_repr", "takes_options"]

P = ParamSpec("P")
R = TypeVar("R")


def takes_options(**option_checks: checks.Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check these options of a formula at each call (module docstring).

    >>> @takes_options(margin=checks.number)
    ... def hinge(gap: float, *, margin: float = 1.0) -> float:
    ...     return max(0.0, gap + margin)
    >>> hinge(-0.5, margin="wide")
    Traceback (most recent call last):
    ValueError: margin: expected a number, got 'wide'
    """

    def decorated(formula: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(formula)
        def with_checked_options(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, check in option_checks.items():
                if name in kwargs:
                    check(name, kwargs[name])
            return formula(*args, **kwargs)

        with_checked_options.__dict__["option_checks"] = option_checks
        return with_checked_options

    return decorated


def keep_options(module: nn.Module, formula: Callable[..., Any], **options: Any) -> None:
    """Check options as the formula does, and store each as an attribute of its name.

    A parameter among them is learned.
    """
    option_checks: dict[str, checks.Check] = getattr(formula, "option_checks", {})
    for name, value in options.items():
        setattr(module, name, option_checks[name](name, value) if name in option_checks else value)
    module._kept_options = tuple(options)  # type: ignore[assignment]


def kept_options(module: nn.Module) -> dict[str, Any]:
    """The options of a module as they stand, to be passed on to its formula."""
    names: Any = module._kept_options
    return {name: getattr(module, name) for name in names}


def options_repr(module: nn.Module, *names: str) -> str:
    """Options of a module as in a call, for its `extra_repr`: the kept ones, or those named.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> options_repr(SimpleNamespace(margin=0.2, scale=torch.tensor(2.0)), "margin", "scale")
    'margin=0.2, scale=2.0'
    """
    values = {name: getattr(module, name) for name in names} if names else kept_options(module)
    plain = {k: v.item() if isinstance(v, Tensor) else v for k, v in values.items()}
    return ", ".join(f"{name}={value!r}" for name, value in plain.items())
