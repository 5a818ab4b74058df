"""The options of a loss, a regularizer, a sampler or a backbone of ours.

The parameters of its class or function, less what a run gives by itself: classes, labels, seed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kinspace.recipes.field_types import fitted, hints_of, known

__all__ = ["default_options", "fitted_options"]

GIVEN_BY_THE_RUN = (
    *("num_classes", "dim", "original", "labels", "index", "in_channels"),
    *("seed", "rank", "world_size"),
)


def default_options(cls: Callable[..., Any]) -> dict[str, Any]:
    """The options of a class or function and their defaults.

    >>> from kinspace.losses import NRA
    >>> default_options(NRA)
    {'alpha': 4.0, 'eps': 0.0001, 'detach_range': False, 'reduction': 'mean'}
    """
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {
        name: parameter.default
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in by_name and name not in GIVEN_BY_THE_RUN
    }


def fitted_options(
    cls: Callable[..., Any], name: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options, each known to the class or function and of its type.

    >>> from kinspace.losses import NRA
    >>> fitted_options(NRA, "nra", {"alpha": 2})
    {'alpha': 2.0}
    >>> fitted_options(NRA, "nra", {"alfa": 2})
    Traceback (most recent call last):
    ValueError: alfa: unknown option of nra 'alfa'; did you mean 'alpha'? choose from: alpha, ...
    """
    hints = hints_of(cls.__init__ if isinstance(cls, type) else cls)  # type: ignore[misc]
    allowed = default_options(cls)
    return {
        known(key, key, allowed, what=f"option of {name}"): fitted(key, value, hints[key])
        for key, value in options.items()
    }
