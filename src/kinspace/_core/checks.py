"""Checks of what a user passes, and words for messages.

Every error says what was expected and what came. Values of labels are read on a CPU only: on a GPU
reading them would make the host wait for all work before, and PyTorch's own indexing asserts them
there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar

import torch
from torch import Tensor

from kinspace._core.tensor_ops import is_traced

__all__ = [
    "Check",
    "Number",
    "at_least",
    "brief",
    "choice",
    "class_vector",
    "first_few",
    "integer",
    "labels",
    "layer",
    "lookup",
    "matching_centers",
    "matching_rows",
    "number",
    "one_of",
    "or_none",
    "paired_rows",
    "plural",
    "positive",
    "vectors",
    "whole",
]

LIKE = 0.05  # what another suggestion may be less alike than the first
Value = TypeVar("Value")
Check = Callable[[str, Any], Any]  # of an option's name and value; returns the value or raises
Number = float | Tensor  # an option: a number, or a 0-d tensor that may be learned


def vectors(name: str, value: Tensor) -> Tensor:
    """A non-empty floating point matrix, one vector a row.

    >>> vectors("embeddings", torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    >>> vectors("embeddings", torch.zeros(3))
    Traceback (most recent call last):
    ValueError: embeddings: expected a matrix (rows, dim), got shape (3,)
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.ndim != 2:
        raise ValueError(f"{name}: expected a matrix (rows, dim), got shape {tuple(value.shape)}")
    if not value.is_floating_point():
        raise ValueError(f"{name}: expected floating point numbers, got {value.dtype}")
    if 0 in value.shape:
        raise ValueError(
            f"{name}: expected at least one row and one column, got shape {tuple(value.shape)}"
        )
    return value


def labels(
    embeddings: Tensor,
    value: Any,
    num_classes: int | None = None,
    *,
    name: str = "labels",
    rows: str = "embeddings",
) -> Tensor:
    """The labels of some embeddings as int64, both checked. rows: what the embeddings are called.

    >>> labels(torch.zeros(2, 3), torch.tensor([4, 4]))
    tensor([4, 4])
    """
    vectors(rows, embeddings)
    if not isinstance(value, Tensor):
        came = type(value).__name__
        if isinstance(value, list) and value and isinstance(value[0], str):
            came += " of words; number the classes, which are rows of a table here"
        raise ValueError(f"{name}: expected a torch.Tensor, got {came}")
    if value.ndim != 1 or len(value) != len(embeddings):
        raise ValueError(
            f"{name}: expected shape ({len(embeddings)},), one for each row of {rows}, "
            f"got {tuple(value.shape)}"
        )
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise ValueError(f"{name}: expected integers, got {value.dtype}")
    if value.device != embeddings.device:
        raise ValueError(
            f"{name}: expected them on {embeddings.device} like the {rows}, got {value.device}"
        )
    if value.is_cpu and not is_traced(value):
        low, high = (int(end) for end in value.aminmax())
        if low < 0:
            raise ValueError(f"{name}: expected 0 or more, got {low}")
        if num_classes is not None and high >= num_classes:
            raise ValueError(f"{name}: expected less than {num_classes} (one row each), got {high}")
    return value.long()


def matching_rows(name: str, value: Tensor, embeddings: Tensor) -> Tensor:
    """A matrix whose rows have the embeddings' dimension (centers, proxies), in their dtype."""
    vectors("embeddings", embeddings)
    vectors(name, value)
    if value.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"{name}: expected {embeddings.shape[1]} columns like the embeddings, "
            f"got shape {tuple(value.shape)}"
        )
    return value.to(embeddings.dtype)


def matching_centers(name: str, value: Tensor, embeddings: Tensor) -> Tensor:
    """Several centers for each class (classes, centers, dim), in the dtype of the embeddings."""
    vectors("embeddings", embeddings)
    if not isinstance(value, Tensor) or value.ndim != 3 or not value.is_floating_point():
        came = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"{name}: expected floating point (classes, centers, dim), got {came}")
    if value.shape[2] != embeddings.shape[1] or 0 in value.shape:
        raise ValueError(
            f"{name}: expected {embeddings.shape[1]} columns like the embeddings, "
            f"got shape {tuple(value.shape)}"
        )
    return value.to(embeddings.dtype)


def paired_rows(
    name: str, value: Tensor, rows: str, embeddings: Tensor, *, same_columns: bool = False
) -> Tensor:
    """A matrix with a row for each row of another one, which is called `rows`."""
    vectors(rows, embeddings)
    vectors(name, value)
    if len(value) != len(embeddings):
        raise ValueError(
            f"{name}: expected {len(embeddings)} rows, one for each of the {rows}, "
            f"got shape {tuple(value.shape)}"
        )
    if same_columns and value.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"{name}: expected {embeddings.shape[1]} columns like the {rows}, "
            f"got shape {tuple(value.shape)}"
        )
    return value.to(embeddings.dtype)


def class_vector(name: str, value: Tensor, num_classes: int | None = None) -> Tensor:
    """A floating point vector with one entry a class."""
    if not isinstance(value, Tensor) or value.ndim != 1 or not value.is_floating_point():
        came = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"{name}: expected a floating point vector, one entry a class, got {came}")
    if num_classes is not None and len(value) != num_classes:
        raise ValueError(f"{name}: expected {num_classes} entries, one a class, got {len(value)}")
    return value


def layer(name: str, value: Any, shape: tuple[int, ...], inputs: str, embeddings: Tensor) -> Tensor:
    """The weights of a learnt layer, of the shape that its inputs ask for, in the batch's dtype.

    >>> layer("bias", torch.zeros(3), (2,), "x", torch.zeros(2, 8))
    Traceback (most recent call last):
    ValueError: bias: expected floating point numbers of shape (2,) for x, got torch.float32 (3,)
    """
    fits = isinstance(value, Tensor) and value.shape == shape and value.is_floating_point()
    if not fits:
        came = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else value
        raise ValueError(
            f"{name}: expected floating point numbers of shape {shape} for {inputs}, got {came}"
        )
    return value.to(embeddings.dtype)  # type: ignore[no-any-return]


def number(name: str, value: Any, *, at_least: float = -math.inf) -> Any:
    """A finite number, not below `at_least`: of Python, of NumPy, or a 0-d tensor.

    A tensor comes back as it is, so that it can be learned; its value is checked on a CPU only.

    >>> number("margin", float("nan"))
    Traceback (most recent call last):
    ValueError: margin: expected a finite number, got nan
    """
    if isinstance(value, Tensor):
        if value.ndim or not value.is_floating_point():
            raise ValueError(
                f"{name}: expected a number, got a tensor {value.dtype} {tuple(value.shape)}"
            )
        if not value.is_cpu or is_traced(value):
            return value
        plain: Any = value.item()
    elif isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name}: expected a number, got {value!r}")
    else:
        plain = value = int(value) if isinstance(value, Integral) else float(value)
    if not math.isfinite(plain):
        raise ValueError(f"{name}: expected a finite number, got {plain!r}")
    if plain < at_least:
        raise ValueError(f"{name}: expected at least {at_least:g}, got {plain!r}")
    return value


def positive(name: str, value: Any) -> Any:
    """A `number` above zero."""
    value = number(name, value)
    if isinstance(value, Tensor) and (not value.is_cpu or is_traced(value)):
        return value
    if value <= 0:
        raise ValueError(f"{name}: expected a number above 0, got {_plain(value)!r}")
    return value


def integer(name: str, value: Any, *, at_least: int) -> int:
    """A whole number of Python or NumPy, not below `at_least`.

    >>> import numpy
    >>> integer("dim", numpy.int64(3), at_least=1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}: expected a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name}: expected at least {at_least}, got {value!r}")
    return int(value)


def choice(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of the allowed words."""
    allowed = tuple(allowed)
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"{name}: expected one of {words}, got {value!r}")
    return value


def at_least(least: float) -> Check:
    """The check of a `number` not below this one.

    >>> at_least(1)("alpha", 0.5)
    Traceback (most recent call last):
    ValueError: alpha: expected at least 1, got 0.5
    """
    return functools.partial(number, at_least=least)


def whole(least: int) -> Check:
    """The check of an `integer` not below this one."""
    return functools.partial(integer, at_least=least)


def one_of(words: Iterable[str]) -> Check:
    """The check of a `choice` among these words."""
    return functools.partial(choice, allowed=words)


def or_none(check: Check) -> Check:
    """The check of an option that may be left out.

    >>> or_none(positive)("sharpness", None)
    """
    return lambda name, value: None if value is None else check(name, value)


def lookup(kind: str, name: str, registry: Mapping[str, Value]) -> Value:
    """What a registry has under a name.

    >>> lookup("loss", "triplets", {"triplet": 1, "nra": 2})
    Traceback (most recent call last):
    ValueError: unknown loss 'triplets'; did you mean 'triplet'? choose from: nra, triplet
    """
    if name in registry:
        return registry[name]
    raise ValueError(f"unknown {kind} {name!r}; {nearest_words(str(name), registry)}")


def nearest_words(word: str, known: Iterable[str], *, listed: int = 16) -> str:
    """What a misspelled word may stand for: up to three, and all of them where they are few.

    >>> nearest_words("mangin", ["triplet", "margin", "magnet"])
    "did you mean 'margin'? choose from: magnet, margin, triplet"
    >>> nearest_words("nrs", ["center", "margin", "softmax", "circle"], listed=3)
    "nearest of the 4 names: 'center', 'margin', 'circle'"
    """
    words = sorted(known)
    near = get_close_matches(word, words, n=3, cutoff=0.0)  # the nearest first
    ratios = {each: SequenceMatcher(None, each, word).ratio() for each in near}
    least = max(0.6, max(ratios.values(), default=0.0) - LIKE)
    alike = [each for each in near if ratios[each] >= least]
    advice = f"did you mean {or_list(alike)}?" if alike else ""
    if len(words) <= listed:
        return f"{advice} choose from: {', '.join(words)}".lstrip()
    return advice or f"nearest of the {len(words):,} names: {', '.join(map(repr, near))}"


def or_list(words: Sequence[str]) -> str:
    """Words to choose from, as in a sentence.

    >>> or_list(["nra", "nca", "ncm"])
    "'nra', 'nca' or 'ncm'"
    """
    *most, last = map(repr, words)
    return f"{', '.join(most)} or {last}" if most else last


def _plain(value: object) -> object:
    return value.item() if isinstance(value, Tensor) else value


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun; `many` is the plural where it is not `one` with an "s".

    >>> plural(1, "class", "classes"), plural(2000, "picture")
    ('1 class', '2,000 pictures')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def brief(error: BaseException, most: int = 300) -> str:
    r"""What an error of another library says, in a line: it may quote a file at length.

    >>> brief(ValueError("a\nb" + 1000 * "x"), most=8)
    'a bxxxxx...'
    """
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[:most]}..."


def first_few(names: Sequence[str], most: int = 5) -> str:
    """The first names and how many more there are, for an error.

    >>> first_few(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
