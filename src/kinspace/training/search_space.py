"""What a search tries next: by chance, or by Optuna from the trials so far.

Both are functions of the seed, the number of the trial and what came before it: a search that was
stopped goes on with the values it would have tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kinspace._core import checks
from kinspace.recipes import Range, parse_set

__all__ = ["parse_range", "require_search", "suggested"]

SEARCHES = ("random", "optuna")
_FORMS = "KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c"


def parse_range(text: str) -> tuple[str, Range]:
    """A key and its range of --range KEY=LOW:HIGH[:log] or KEY=a,b,c.

    >>> parse_range("optimizer.lr=1e-4:1e-1:log")
    ('optimizer.lr', Range(low=0.0001, high=0.1, log=True, choices=None))
    >>> parse_range("index.clusters=1,2,auto")[1].choices
    (1, 2, 'auto')
    """
    key, equals, values = (part.strip() for part in text.partition("="))
    try:
        if not (key and equals and values):
            raise ValueError("a part is missing")
        if "," in values:
            return key, Range(choices=tuple(_value(each) for each in values.split(",")))
        low, high, *log = values.split(":")
        if log not in ([], ["log"]):
            raise ValueError(f"after the second colon only 'log' may come, not {':'.join(log)!r}")
        return key, Range(low=_value(low), high=_value(high), log=bool(log))
    except ValueError as error:
        raise ValueError(f"--range: expected {_FORMS}, got {text!r} ({error})") from None


def _value(text: str) -> Any:
    if not text.strip():
        raise ValueError("a value is missing")
    return parse_set(f"value={text}")[1]


def require_search(name: str) -> None:
    """A way to search that is known, and installed.

    >>> require_search("grid")
    Traceback (most recent call last):
    ValueError: sampler: expected one of 'random', 'optuna', got 'grid'
    """
    if checks.choice("sampler", name, SEARCHES) == "optuna":
        _optuna()


def suggested(
    search: str, ranges: Mapping[str, Range], trials: Sequence[Mapping[str, Any]], *, seed: int
) -> dict[str, Any]:
    """The values of the trial after these. trials: rows as `tune` keeps them.

    >>> suggested("random", {"loss.alpha": Range(low=1, high=8)}, [], seed=0)
    {'loss.alpha': 6}
    """
    if search == "optuna":
        return _by_optuna(ranges, trials, seed)
    rng = np.random.default_rng([seed, len(trials)])
    return {key: _drawn(values, rng) for key, values in ranges.items()}


def _drawn(values: Range, rng: np.random.Generator) -> Any:
    """Evenly, in the logarithm with `log`; whole numbers between whole ends, both included."""
    if values.choices is not None:
        return values.choices[int(rng.integers(len(values.choices)))]
    low, high = values.low, values.high
    assert low is not None
    assert high is not None
    whole = _whole(values)
    # a whole number has the half below it and the half above
    ends = (low - 0.5, high + 0.5) if whole else (low, high)
    if values.log:
        drawn = math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))
    else:
        drawn = float(rng.uniform(*ends))
    inside = min(max(round(drawn) if whole else drawn, low), high)
    return int(inside) if whole else float(inside)


def _by_optuna(
    ranges: Mapping[str, Range], trials: Sequence[Mapping[str, Any]], seed: int
) -> dict[str, Any]:
    """Optuna's tree-structured Parzen estimator, told all trials anew."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    number = np.random.SeedSequence([seed, len(trials)]).generate_state(1)[0]
    sampler = optuna.samplers.TPESampler(seed=int(number))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    spaces = {key: _space(values, optuna.distributions) for key, values in ranges.items()}
    for row in trials:
        failed = row["state"] == "failed"
        study.add_trial(
            optuna.trial.create_trial(
                params={key: _place(ranges[key], row["values"][key]) for key in ranges},
                distributions=spaces,
                value=None if failed else row["recall@1"],
                state=getattr(optuna.trial.TrialState, "FAIL" if failed else "COMPLETE"),
            )
        )
    found = study.ask(spaces).params
    return {key: _at_place(values, found[key]) for key, values in ranges.items()}


def _optuna() -> Any:
    try:
        import optuna  # type: ignore[import-not-found]
    except ImportError:
        raise ValueError(
            "optuna is not installed; pip install 'kinspace[tune]', or search by chance: "
            "--sampler random"
        ) from None
    return optuna


def _space(values: Range, distributions: Any) -> Any:
    if values.choices is not None:  # by their places: Optuna takes no lists
        return distributions.CategoricalDistribution(tuple(range(len(values.choices))))
    made = distributions.IntDistribution if _whole(values) else distributions.FloatDistribution
    return made(values.low, values.high, log=values.log)


def _whole(values: Range) -> bool:
    return isinstance(values.low, int) and isinstance(values.high, int)


def _place(values: Range, value: Any) -> Any:
    return value if values.choices is None else list(values.choices).index(value)


def _at_place(values: Range, found: Any) -> Any:
    return found if values.choices is None else values.choices[found]
