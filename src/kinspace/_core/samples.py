"""What losses and miners take of any samples: words as labels, a label to ignore, weights.

A formula knows labels that are whole numbers, and gives one term a sample. What goes beyond that is
the same for all of them and stands here, in decorators:

- words: labels, and those of the reference, may be lists of str; they are numbered together.
- ignore_label: samples of this label take no part. They are taken out of the batch, the reference
  and the chosen pairs before the formula sees them, and have the term 0.
- weights: of each sample, (batch,), or of labels, {label: weight}, 1 where there is none. The term
  of a sample is multiplied by its weight, and the mean divides by the sum of the weights.
- singletons: "count" a sample without a positive in the mean, or "skip" it: give it the weight 0.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypedDict, TypeVar

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.references import checked_tuples, chosen, related
from kinspace._core.tensor_ops import (
    REDUCTIONS,
    full_precision,
    is_traced,
    reduce,
    upcast_half,
    zero_with_grad,
)

__all__ = [
    "Anchors",
    "Chosen",
    "Labeled",
    "Labels",
    "Reference",
    "Samples",
    "anchor_weights",
    "inputs_of",
    "takes_labels",
    "takes_samples",
    "takes_weights",
]

P = ParamSpec("P")
R = TypeVar("R")
Labels = Tensor | Sequence[str]
Given = dict[str, Any]
SINGLETONS = ("count", "skip")
OPTIONS = ("ignore_label", "weights", "singletons")


class Labeled(TypedDict, total=False):
    """Options of whatever takes labels."""

    ignore_label: int | str | None


class Samples(Labeled, total=False):
    """Options of a loss on terms of samples."""

    weights: Tensor | Mapping[Any, float] | None


class Anchors(Samples, total=False):
    """Options of a loss that compares samples, which may lack a positive."""

    singletons: str


class Reference(Anchors, total=False):
    """What the samples are compared to where that is not the batch."""

    reference: Tensor | None
    reference_labels: Labels | None
    includes_batch: bool


class Chosen(Reference, total=False):
    """Chosen pairs or triplets besides."""

    pairs: Tensor | None
    triplets: Tensor | None


def takes_samples(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """In full precision, with the options above; the formula gives a term a sample.

    The formula is asked for its terms (`reduction="none"`), which are weighted and reduced here.
    """
    return _taking(_precise(function), function, _weighted_terms)


def takes_weights(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The same for a formula of other terms: it is given the weights of the anchors, (batch,).

    Samples to skip have the weight 0 there. Without weights the formula is given none.
    """
    return _taking(_precise(function), function, _with_weights)


def takes_labels(function: Callable[P, R]) -> Callable[P, R]:
    """With words and a label to ignore; what is left goes to the function.

    For miners, whose indices are those of the whole batch, and for modules that keep a state.
    """
    return _taking(function, function, _passed_on)


def _precise(function: Callable[P, R]) -> Callable[P, R]:
    """A function in full precision; a method as it is, whose functions are."""
    is_method = "self" in inspect.signature(function).parameters
    return function if is_method else full_precision(function)


def inputs_of(function: Callable[..., Any]) -> set[str]:
    """The names of what a function takes, those of its typed keywords among them.

    >>> def forward(embeddings: Tensor, **reference: typing.Unpack[Labeled]) -> None: ...
    >>> sorted(inputs_of(forward))
    ['embeddings', 'ignore_label']
    """
    names = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.add(parameter.name)
            continue
        hint = typing.get_type_hints(inspect.unwrap(function)).get(parameter.name)
        for keywords in typing.get_args(hint):
            names |= set(typing.get_type_hints(keywords))
    return names


def anchor_weights(samples: Samples) -> Tensor | None:
    """The weights that `takes_weights` leaves; None where all samples weigh the same."""
    weights = samples.get("weights")
    assert weights is None or isinstance(weights, Tensor)
    return weights


Call = Callable[[Callable[..., Any], list[str], Given, Given], Any]


def _taking(precise: Callable[P, R], function: Callable[..., Any], finish: Call) -> Callable[P, R]:
    """The function with the options: `finish` calls it on samples that all take part."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    place = names.index("labels")
    allowed = frozenset(inputs_of(function))
    # words can be numbered freely where no table has a row for each class
    takes_words = names[0] == "embeddings" and len(names) == 2

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not allowed.issuperset(kwargs):  # the function itself takes any keyword
            wrong = min(set(kwargs) - allowed)
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {wrong!r}")
        labels = args[place] if len(args) > place else kwargs.get("labels")
        if isinstance(labels, Tensor) and not any(name in kwargs for name in OPTIONS):
            return precise(*args, **kwargs)
        given: Given = {**dict(zip(names, args, strict=False)), **kwargs}
        if not {"embeddings", "labels"} <= given.keys():
            return precise(*args, **kwargs)  # which says what is missing
        options = {name: given.pop(name) for name in OPTIONS if name in given}
        if takes_words:
            _number_words(given, options)
        return _on_kept(precise, names, given, options, finish)  # type: ignore[no-any-return]

    return call


# --- what takes part -----------------------------------------------------------------------------


def _on_kept(
    function: Callable[..., Any], names: list[str], given: Given, options: Given, finish: Call
) -> Any:
    """The function on the samples that are not ignored; its result is that of the whole batch."""
    ignored = options.pop("ignore_label", None)
    if "singletons" in options:
        checks.choice("singletons", options["singletons"], SINGLETONS)
    rows = embeddings = checks.vectors("embeddings", given["embeddings"])
    columns = given.get("reference")
    if ignored is not None:
        rows, columns = _leave_out(given, options, ignored)
    if options.get("weights") is not None:
        options["weights"] = _sample_weights(options["weights"], given)
    if ignored is None:
        return finish(function, names, given, options)
    if not len(given["embeddings"]) or (columns is not None and not len(columns)):
        if names[0] == "embeddings" and finish is _passed_on:  # a miner, whose tuples are none
            return function(embeddings[:1], rows.new_zeros(1))
        return _nothing(embeddings, given)
    found = finish(function, names, given, options)
    if not isinstance(found, Tensor) or not found.ndim:
        return found
    if found.ndim == 1:  # a term each
        return found.new_zeros(len(embeddings)).index_put((rows,), found)
    others = rows if columns is None else columns
    return torch.cat([rows[found[:, :1]], others[found[:, 1:]]], 1)


def _leave_out(given: Given, options: Given, ignored: int) -> tuple[Tensor, Tensor | None]:
    """Take the ignored samples out; the places of the others in the batch and in the reference."""
    checks.integer("ignore_label", ignored, at_least=-(2**63))
    weights = options.get("weights")
    batch = {"embeddings", "labels"}
    rows = _kept("labels", given["labels"], "embeddings", given["embeddings"], ignored)
    if isinstance(weights, Tensor) and weights.shape == given["labels"].shape:
        options["weights"] = weights[rows]
    others, columns, sizes = None, rows, (len(given["labels"]), len(given["labels"]))
    if given.get("reference") is not None and given.get("reference_labels") is not None:
        labels, reference = given["reference_labels"], given["reference"]
        others = columns = _kept("reference_labels", labels, "reference", reference, ignored)
        sizes = sizes[0], len(labels)
        given |= {"reference": reference[columns], "reference_labels": labels[columns]}
    for name in ("pairs", "triplets"):
        if given.get(name) is not None:
            given[name] = _kept_tuples(name, given[name], (rows, columns), sizes)
    given |= {name: given[name][rows] for name in batch}
    return rows, others


def _kept(name: str, labels: Any, rows: str, embeddings: Tensor, ignored: int) -> Tensor:
    if isinstance(labels, Tensor) and labels.ndim == 2:
        raise ValueError(
            f"ignore_label: expected one label a sample with it, got {name} of shape "
            f"{tuple(labels.shape)}; leave the rows out"
        )
    if isinstance(labels, Tensor) and labels.dtype.is_signed and not labels.is_floating_point():
        checks.labels(embeddings, labels.masked_fill(labels == ignored, 0), name=name, rows=rows)
    else:
        checks.labels(embeddings, labels, name=name, rows=rows)
    kept: Tensor = (labels != ignored).nonzero()[:, 0]
    return kept


def _kept_tuples(
    name: str, tuples: Tensor, kept: tuple[Tensor, Tensor], sizes: tuple[int, int]
) -> Tensor:
    """The pairs or triplets of samples that take part, as indices of these."""
    tuples = checked_tuples(name, tuples, 2 if name == "pairs" else 3, sizes)
    new = [
        tuples.new_full((size,), -1).index_put((places,), torch.arange(len(places)).to(tuples))
        for places, size in zip(kept, sizes, strict=True)
    ]
    found = torch.cat([new[0][tuples[:, :1]], new[1][tuples[:, 1:]]], 1)
    return found[(found >= 0).all(1)]


def _nothing(embeddings: Tensor, given: Given) -> Tensor:
    """What nothing to compare gives: a zero connected to the graph, or one for each sample."""
    tables = [
        value
        for value in given.values()
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim
    ]
    zero = zero_with_grad(upcast_half(embeddings), *map(upcast_half, tables))
    if given.get("reduction") == "none":
        return zero.expand(len(embeddings))
    return zero


# --- words and weights ---------------------------------------------------------------------------


def _number_words(given: Given, options: Given) -> None:
    """Number the words of the labels, of the reference's and of the options."""
    labels, others = given["labels"], given.get("reference_labels")
    if not _are_words(labels):
        return
    words = _words("labels", labels)
    if others is not None and not _are_words(others):
        raise ValueError("reference_labels: expected words like the labels, got numbers")
    other_words = [] if others is None else _words("reference_labels", others)
    numbers = {word: n for n, word in enumerate(sorted({*words, *other_words}))}
    device = getattr(given["embeddings"], "device", None)
    given["labels"] = torch.tensor([numbers[word] for word in words], device=device)
    if others is not None:
        given["reference_labels"] = torch.tensor(
            [numbers[word] for word in other_words], device=device
        )
    if options.get("ignore_label") is not None:
        options["ignore_label"] = numbers.get(str(options["ignore_label"]), -1)
    weights = options.get("weights")
    if isinstance(weights, Mapping):
        options["weights"] = {numbers.get(str(word), -1): w for word, w in weights.items()}


def _are_words(labels: Any) -> bool:
    if isinstance(labels, (str, bytes, Tensor)) or not hasattr(labels, "__len__"):
        return False
    return len(labels) > 0 and isinstance(labels[0], str)


def _words(name: str, labels: Iterable[Any]) -> list[str]:
    words = list(labels)
    for word in words:
        if not isinstance(word, str):
            raise ValueError(f"{name}: expected words, as the first is one, got {word!r}")
    return words


def _sample_weights(weights: Tensor | Mapping[Any, float], given: Given) -> Tensor:
    """The weights of the samples, (batch,), in the precision of the losses."""
    labels, x = given["labels"], upcast_half(given["embeddings"])
    if isinstance(weights, Mapping):
        found = x.new_ones(len(x))
        for label, weight in weights.items():
            checks.integer("weights", label, at_least=-1)
            weight = checks.number(f"weight of {label}", weight, at_least=0)
            found = torch.where(labels == label, weight, found)
        return found.to(x.dtype)
    if not isinstance(weights, Tensor) or weights.shape != x.shape[:1]:
        came = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(
            f"weights: expected a tensor of shape ({len(x)},), one for each sample, or "
            f"{{label: weight}}, got {came}"
        )
    if weights.is_cpu and not is_traced(weights) and not bool((weights >= 0).all()):
        raise ValueError(f"weights: expected 0 or more, got {weights.min().item():g}")
    return weights.to(x)


def _anchor_weights(given: Given, options: Given) -> Tensor | None:
    """The weights of the samples, 0 for those to skip; None where all weigh the same."""
    weights: Tensor | None = options.get("weights")
    if options.get("singletons", "count") == "count":
        return weights
    _, whole = related(
        given["embeddings"],
        given["labels"],
        given.get("reference"),
        given.get("reference_labels"),
        given.get("includes_batch", False),
    )
    index = chosen(given.get("pairs"), given.get("triplets"), whole)
    paired: Tensor = index.positives[1].any(1)
    x = upcast_half(given["embeddings"])
    return paired.to(x.dtype) if weights is None else weights * paired


def _weighted_terms(
    function: Callable[..., Any], names: list[str], given: Given, options: Given
) -> Any:
    weights = _anchor_weights(given, options)
    if weights is None:
        return _call(function, names, given)
    name = "weights" if "weights" in options else "singletons"
    default = inspect.signature(function).parameters.get("reduction")
    if default is None:
        raise ValueError(
            f"{name}: expected none, {getattr(function, '__name__', 'this loss')} is no mean of "
            "terms of samples; leave it out, or take another loss"
        )
    reduction = checks.choice("reduction", given.get("reduction", "mean"), REDUCTIONS)
    terms = _call(function, names, {**given, "reduction": "none"})
    if terms.shape != weights.shape:
        raise ValueError(f"{name}: expected none, the loss has no term for each sample here")
    return reduce(terms, reduction, weights=weights)


def _with_weights(
    function: Callable[..., Any], names: list[str], given: Given, options: Given
) -> Any:
    weights = _anchor_weights(given, options)
    return _call(function, names, given if weights is None else {**given, "weights": weights})


def _passed_on(function: Callable[..., Any], names: list[str], given: Given, options: Given) -> Any:
    return _call(function, names, {**given, **options})


def _call(function: Callable[..., Any], names: list[str], given: Given) -> Any:
    """Tensors by position, the rest by name."""
    positional = [given[name] for name in names if name in given]
    return function(*positional, **{k: v for k, v in given.items() if k not in names})
