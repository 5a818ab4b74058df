"""The decision of a gallery: whether a picture is of a class that it has, and of which.

    confidence = sigmoid(a + b e + c (e - e2))    e, e2: evidence of the first and the second class
    strangers  = share of strangers that are at least as confident
    known     <=> strangers <= dial
    same      <=> cosine >= the threshold that this share of the pairs of two classes reach

A stranger is a picture of a class that the gallery does not have. The dial, from strict to lenient,
is the share of strangers that may get through; everything that decides takes it from here.

a, b and c maximize the likelihood that the first class is right (Platt, Probabilistic outputs for
support vector machines, 1999), where as many strangers come as pictures of known classes, and b
and c are not negative. All is calibrated on classes that the model was not trained on, each left
out of the gallery in turn (`class_evidence.leave_out`); its consequences are measured on folds of
these classes which the values were not set on and whose pictures the gallery did not have then.
More strangers get through there than of the classes that a limit was set on, the more so the fewer
they are: the limits are so much stricter that the share is that of the dial.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinspace._core import checks
from kinspace._core.atomic_files import write_json
from kinspace._core.checks import brief, plural
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.class_evidence import Evidence, LeftOut, leave_out, search_classes
from kinspace.evaluation.verification import roc_curve

__all__ = [
    "DEFAULT_STRANGERS",
    "FEWEST_CLASSES",
    "RATES",
    "Setting",
    "Thresholds",
    "calibrate",
    "calibration",
    "held_out_rows",
    "no_thresholds",
]

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)  # strict to lenient
DEFAULT_STRANGERS = 0.15
FEWEST_CLASSES = 4  # to calibrate on
FOLDS = 5
TRIED = 100  # rates that are looked at for those of RATES
FOLD_PRODUCTS = 5 * 10**6  # of queries and pictures in a fold, about
FOLD_QUERIES = (200, 2000)  # at least and at most
BINS = 10  # of the reliability curve
MAX_PAIRS_OF = 5000  # pictures whose pairs are counted; of more, an evenly spaced selection
SURE = 0.995  # the highest confidence: more is not known from some hundred pictures


@dataclass(frozen=True)
class Setting:
    """A position of the dial, and its consequences.

    strangers: the share of strangers that may get through. confidence, cosine: from which on a
    picture is known, and two pictures are of one class. right, wrong, unknown: what becomes of
    pictures of known classes, and let_through: the share of strangers that get a class, both of
    classes that the setting was not chosen on. matched: the share of the pairs of one class that
    are found to be of one.
    """

    strangers: float
    confidence: float
    cosine: float
    right: float
    wrong: float
    unknown: float
    let_through: float
    matched: float

    def __str__(self) -> str:
        """The consequences in a sentence."""
        right, unknown, through = (
            f"{100 * value:.0f}" for value in (self.right, self.unknown, self.let_through)
        )
        return (
            f"of 100 pictures of known classes {right} are named right and {unknown} called "
            f"unknown; of 100 strangers {through} get through"
        )


@dataclass(frozen=True)
class Thresholds:
    """The calibrated decision, with the numbers it was made from.

    weights: a, b and c. settings: of RATES, strict to lenient. reliability: for each tenth of the
    confidence its mean, the share that was right, and the number of pictures. classes, pictures:
    in the calibration. held_out: whether the model was trained on none of them; if it was, more
    strangers get through than said. strangers: the dial where nothing else is asked for.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(120) % 6
    >>> x = 4 * rng.standard_normal((6, 8))[y] + rng.standard_normal((120, 8))
    >>> found = calibrate(EmbeddingTable(x, y))
    >>> str(found.at(0.2))
    'of 100 pictures of known classes 100 are named right and 0 called unknown; of 100 strangers 21
    get through'
    """

    weights: tuple[float, float, float]
    settings: tuple[Setting, ...]
    reliability: tuple[tuple[float, float, int], ...]
    classes: int
    pictures: int
    held_out: bool
    strangers: float = DEFAULT_STRANGERS

    def confidence(self, found: Evidence) -> NDArray[np.float64]:
        """The probability that the first class is right, (queries,)."""
        return _confidence(np.array(self.weights), found)

    def at(self, strangers: float | None = None) -> Setting:
        """The setting of the dial for a share of strangers, interpolated between those of RATES.

        None: `self.strangers`.
        """
        rate = self.strangers if strangers is None else strangers
        if not RATES[0] <= checks.number("strangers", rate) <= RATES[-1]:
            raise ValueError(
                f"strangers: expected a rate from {RATES[0]} (strict) to {RATES[-1]} (lenient), "
                f"got {rate!r}"
            )
        place = np.log([each.strangers for each in self.settings])
        columns = {
            name: float(np.interp(np.log(rate), place, [asdict(s)[name] for s in self.settings]))
            for name in asdict(self.settings[0])
        }
        return Setting(**columns | {"strangers": rate})

    def strangers_at(self, confidence: float) -> float:
        """The share of strangers that are at least as confident: the inverse of `at`.

        0 above the strictest setting, 1 below the most lenient one.
        """
        limits = [each.confidence for each in self.settings]  # falling
        if confidence >= limits[0]:
            return 0.0
        if confidence < limits[-1]:
            return 1.0
        logs = np.log([each.strangers for each in self.settings])
        return float(np.exp(np.interp(-confidence, -np.array(limits), logs)))

    @property
    def basis(self) -> str:
        """What the decision was calibrated on."""
        kind = "held-out classes" if self.held_out else "classes of the training"
        text = f"{self.pictures:,} pictures of {self.classes:,} {kind}"
        if self.held_out:
            return text
        return f"{text}, since too few were held out: more strangers will get through than said"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the sentences of every setting."""
        settings = [asdict(each) | {"text": str(each)} for each in self.settings]
        return asdict(self) | {"settings": settings, "basis": self.basis, "text": str(self.at())}

    def save(self, file: Path) -> None:
        """Write a JSON file."""
        write_json(file, asdict(self))

    @staticmethod
    def load(file: Path) -> Thresholds:
        """Read a file by `save`; raises a ValueError for any other file."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            settings = tuple(Setting(**each) for each in found.pop("settings"))
            a, b, c = map(float, found.pop("weights"))
            curve = tuple((float(x), float(y), int(n)) for x, y, n in found.pop("reliability"))
            thresholds = Thresholds((a, b, c), settings, curve, **found)
            if tuple(each.strangers for each in settings) != RATES:
                raise ValueError("settings of other rates")
            thresholds.at()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{file}: expected thresholds, got another file: {brief(error)}"
            ) from None
        return thresholds


def calibrate(
    table: EmbeddingTable,
    held_out: NDArray[np.bool_] | None = None,
    *,
    strangers: float = DEFAULT_STRANGERS,
    seed: int = 0,
) -> Thresholds | None:
    """The decision for a gallery, or None if it has too few classes to calibrate it on.

    held_out: the rows of classes that the model was not trained on, a mask; None: all. With fewer
    than FEWEST_CLASSES of them all classes are used, and with fewer than that in the gallery there
    is no decision: every picture gets the class that is nearest. strangers: the dial. seed: of the
    folds.
    """
    found = calibration(table, held_out)
    if found is None:
        return None
    left, of_held_out = found
    return _calibrated(table, left, of_held_out, strangers, seed)


def no_thresholds(table: EmbeddingTable) -> str:
    """Why there are no thresholds for a gallery, and what that means.

    >>> no_thresholds(EmbeddingTable(np.eye(2), [0, 1]))
    'not calibrated, with 2 classes in the gallery: it takes 4, and one with two pictures; every
    picture gets the class of the most similar ones, and none is unknown'
    """
    if table.labels is None:
        return "not calibrated: the gallery has no classes, so the most similar pictures are shown"
    counts = np.unique(table.labels, return_counts=True)[1]
    classes = plural(len(counts), "class", "classes")
    if len(counts) >= FEWEST_CLASSES and counts.max() > 1:  # killed before they were written
        return (
            "not calibrated: the thresholds of the gallery are missing; set them with: kinspace "
            "index --rebuild RUN"
        )
    return (
        f"not calibrated, with {classes} in the gallery: it takes {FEWEST_CLASSES}, and one with "
        "two pictures; every picture gets the class of the most similar ones, and none is unknown"
    )


def held_out_rows(table: EmbeddingTable, trained: Collection[str]) -> NDArray[np.bool_]:
    """The rows of classes that are not among the names of those trained on, a mask.

    >>> held_out_rows(EmbeddingTable(np.eye(2), [0, 1], class_names=("io", "luna")), {"io"})
    array([False,  True])
    """
    if table.labels is None:
        return np.zeros(len(table), bool)
    known = [table.class_name(label) in trained for label in range(int(table.labels.max()) + 1)]
    return ~np.array(known)[table.labels]


def calibration(
    table: EmbeddingTable, held_out: NDArray[np.bool_] | None = None
) -> tuple[LeftOut, bool] | None:
    """The searches that `calibrate` is made of, and whether they are of held-out classes."""
    if table.labels is None:
        return None
    chosen = np.ones(len(table), bool) if held_out is None else held_out
    few = len(np.unique(table.labels[chosen])) < FEWEST_CLASSES
    if few:
        chosen = np.ones(len(table), bool)
    labels = table.labels[chosen]
    if len(np.unique(labels)) < FEWEST_CLASSES or np.bincount(labels).max() < 2:
        return None
    return leave_out(table, chosen), not (few and held_out is not None)


def _calibrated(
    table: EmbeddingTable, left: LeftOut, held_out: bool, strangers: float, seed: int
) -> Thresholds:
    weights = _fit(left)
    folds = _folds(table, left, weights, seed)
    tried = np.concatenate([[0.0], np.geomspace(RATES[0] / 10, RATES[-1], TRIED)])
    through = np.mean(np.concatenate([fold.named_strangers(tried) for fold in folds], 1), 1)
    rates = np.interp(RATES, np.maximum.accumulate(through), tried)
    limits = _limits(_confidence(weights, left.stranger), rates)
    outcomes = np.concatenate([fold.known_outcomes(rates) for fold in folds], 1).mean(1)
    let_through = np.concatenate([fold.named_strangers(rates) for fold in folds], 1).mean(1)
    cosines, matched = _pairs(table, left.rows)
    settings = tuple(
        Setting(
            rate, *map(float, (limits[i], cosines[i], *outcomes[i], let_through[i], matched[i]))
        )
        for i, rate in enumerate(RATES)
    )
    curve = _reliability(
        np.concatenate([fold.confidence for fold in folds]),
        np.concatenate([fold.right for fold in folds]),
        np.concatenate([_confidence(fold.weights, fold.stranger) for fold in folds]),
    )
    a, b, c = map(float, weights)
    classes = len(np.unique(left.labels))
    return Thresholds((a, b, c), settings, curve, classes, len(left.labels), held_out, strangers)


@dataclass(frozen=True, eq=False)
class _Fold:
    """Some classes, judged by what was fitted to a gallery without them.

    weights, others: the fit, and its confidences for strangers of the other classes. known, right:
    searches in the whole gallery, of pictures that are not alone in their class, and which of them
    find it. stranger: searches in the gallery without the classes.
    """

    weights: NDArray[np.float64]
    others: NDArray[np.float64]
    known: Evidence
    right: NDArray[np.bool_]
    stranger: Evidence

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Of the known pictures."""
        return _confidence(self.weights, self.known)

    def named_strangers(self, rates: ArrayLike) -> NDArray[np.bool_]:
        """Which strangers get a class at the limits of these rates, (rates, queries)."""
        limits = _limits(self.others, rates)[:, None]
        return (_confidence(self.weights, self.stranger) >= limits) | self.stranger.exact

    def known_outcomes(self, rates: ArrayLike) -> NDArray[np.bool_]:
        """Which known pictures are named right, wrong, and called unknown, (rates, queries, 3)."""
        named = (self.confidence >= _limits(self.others, rates)[:, None]) | self.known.exact
        return np.stack([named & self.right, named & ~self.right, ~named], 2)


def _folds(
    table: EmbeddingTable, left: LeftOut, weights: NDArray[np.float64], seed: int
) -> list[_Fold]:
    """weights: used where nothing can be fitted without a fold."""
    assert table.labels is not None
    most = int(np.clip(FOLD_PRODUCTS // len(table), *FOLD_QUERIES))
    classes, places = np.unique(left.labels, return_inverse=True)
    folds = np.random.default_rng(seed).permutation(len(classes))[places] % FOLDS
    chosen = np.isin(np.arange(len(table)), left.rows)
    found = []
    for fold in np.unique(folds):
        inside = folds == fold
        kept = ~np.isin(table.labels, left.labels[inside])
        smaller = table.select(kept)
        others = leave_out(smaller, chosen[kept], most=most)
        fitted = _fit(others) if others.right.any() else weights
        tested = _select(left, inside & ~left.alone)
        strange = left.rows[inside]
        strange = strange[np.linspace(0, len(strange) - 1, min(most, len(strange))).astype(int)]
        found.append(
            _Fold(
                fitted,
                _confidence(fitted, others.stranger),
                tested.known,
                tested.right,
                search_classes(smaller, table.vectors[strange]),
            )
        )
    return found


def _select(left: LeftOut, rows: NDArray[np.bool_]) -> LeftOut:
    return LeftOut(
        left.rows[rows],
        left.labels[rows],
        left.known.select(rows),
        left.alone[rows],
        left.stranger.select(rows),
    )


def _fit(left: LeftOut) -> NDArray[np.float64]:
    """a, b and c of the confidence; known pictures and strangers weigh the same in sum."""
    from sklearn.linear_model import LogisticRegression

    known = left.known.select(~left.alone)
    right = left.right[~left.alone]
    features = np.concatenate([known.features, left.stranger.features])
    truth = np.concatenate([right, np.zeros(len(left.labels), bool)])
    weights = np.repeat(
        [1 / max(1, len(right)), 1 / len(left.labels)], [len(right), len(truth) - len(right)]
    )
    weights *= len(truth) / 2
    if truth.all() or not truth.any():
        return np.array([np.log((truth.mean() + 0.01) / (1.01 - truth.mean())), 0.0, 0.0])
    center, scale = features.mean(0), np.maximum(features.std(0), 1e-9)
    scaled = (features - center) / scale
    used = np.ones(2, bool)
    while True:
        fitted = LogisticRegression(C=10.0).fit(scaled[:, used], truth, weights)
        slopes = np.zeros(2)
        slopes[used] = fitted.coef_[0]
        if (slopes >= 0).all() or used.sum() == 1:
            break
        used[slopes.argmin()] = False
    slopes = np.maximum(slopes, 0) / scale
    return np.array([fitted.intercept_[0] - slopes @ center, *slopes])


def _confidence(weights: NDArray[np.float64], found: Evidence) -> NDArray[np.float64]:
    logits = np.clip(weights[0] + found.features @ weights[1:], -30, 30)
    confidence: NDArray[np.float64] = np.minimum(1 / (1 + np.exp(-logits)), SURE)
    return confidence


def _limits(strangers: NDArray[np.float64], rates: ArrayLike) -> NDArray[np.float64]:
    """For each rate a confidence that at most this share of the strangers reach.

    It is halfway between the least confident one that may get through and the next.
    """
    ordered = np.sort(strangers)[::-1]
    refused = ordered[(np.asarray(rates) * len(ordered) + 1e-9).astype(np.int64)]  # (rates,)
    above = len(ordered) - np.searchsorted(ordered[::-1], refused, side="right")
    least = ordered[np.maximum(above - 1, 0)]
    limits: NDArray[np.float64] = np.where(
        above > 0, (refused + least) / 2, np.nextafter(refused, 2)
    )
    return limits


def _pairs(
    table: EmbeddingTable, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each of RATES the cosine of a pair with this false-match rate, and its true matches."""
    if len(rows) > MAX_PAIRS_OF:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_PAIRS_OF).astype(np.int64)]
    roc = roc_curve(table.select(rows))
    tmr, fmr = roc.rates()
    steps = np.array([np.argmax(fmr <= rate) for rate in RATES])
    return roc.low + roc.width * steps, tmr[steps]


def _reliability(
    known: NDArray[np.float64], right: NDArray[np.bool_], stranger: NDArray[np.float64]
) -> tuple[tuple[float, float, int], ...]:
    """For each tenth of the confidence: its mean, the share that was right, and the pictures."""
    confidence = np.concatenate([known, stranger])
    truth = np.concatenate([right, np.zeros(len(stranger), bool)])
    weights = np.repeat([1 / max(1, len(known)), 1 / len(stranger)], [len(known), len(stranger)])
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    curve = []
    for each in np.unique(bins):
        inside = bins == each
        share = weights[inside] / weights[inside].sum()
        curve.append(
            (float(share @ confidence[inside]), float(share @ truth[inside]), int(inside.sum()))
        )
    return tuple(curve)
