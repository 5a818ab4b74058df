"""Whether a model can be used, why, and what would help: the top of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kinspace._core.checks import plural
from kinspace.evaluation.summary import Evaluation
from kinspace.report.verdict import NAMES, WIDE

__all__ = ["Advice", "advise", "tiles"]

USABLE, WEAK, DO_NOT_USE = "usable", "weak", "do not use"
GOOD, POOR = 0.85, 0.5  # Recall@1 from which on a model is usable, and below which it is not
NAMED = 0.6  # share of pictures of known classes that a usable model names right, at the dial
BEHIND = 0.15  # Recall@1 of a class below that of all
OFTEN = 0.1  # share of the pictures of two classes that are taken for the other one
MOST = 3  # helps


@dataclass(frozen=True)
class Advice:
    """level: "usable", "weak" or "do not use". why: a sentence. helps: at most three."""

    level: str
    why: str
    helps: tuple[str, ...]


def advise(found: Evaluation, facts: Mapping[str, Any] | None = None) -> Advice:
    """What a person should do about a model with these measures.

    facts: of a run: `trained`; `kept`, whether its start was chosen, not a step of the training;
    `unfinished`, whether the last step was the best.

    >>> import numpy as np
    >>> from kinspace.embeddings import EmbeddingTable
    >>> from kinspace.evaluation.summary import summarize
    >>> y = np.arange(20) // 4
    >>> advise(summarize(EmbeddingTable(np.eye(5)[y], y))).level
    'usable'
    """
    facts = facts or {}
    level, why = _level(found, facts)
    helps = _helps(found, facts, level)[:MOST]
    if not helps and level == USABLE:
        helps = ["Try it on pictures of your own: kinspace serve shows what it answers."]
    return Advice(level, why, tuple(helps))


def _level(found: Evaluation, facts: Mapping[str, Any]) -> tuple[str, str]:
    recall = found.retrieval["model"]["recall@1"]
    if found.parts["test"]["classes"] < 2:
        return WEAK, "There is only one class, so nothing here can show what the model is worth."
    for name, gain in found.gain.items():
        same = name == "untrained" and facts.get("kept")
        if gain["high"] < 0 and not same:
            verb = "are" if name == "pixels" else "is"
            return DO_NOT_USE, f"{_first(NAMES.get(name, name))} {verb} better on these pictures."
    hits = round(100 * recall)
    if recall < POOR:
        return (
            DO_NOT_USE,
            f"For {100 - hits} of 100 pictures the most similar one is of another class.",
        )
    pixels = found.gain.get("pixels")
    if pixels is not None and pixels["low"] <= 0:
        return WEAK, "It is not clearly better than comparing raw pixels."
    if recall < GOOD:
        return WEAK, f"For {100 - hits} of 100 pictures the most similar one is of another class."
    decision = found.decision
    if decision is not None and _setting(decision)["right"] < NAMED:
        right = round(100 * _setting(decision)["right"])
        return WEAK, (
            f"Search finds the right class first for {hits} of 100 pictures, but to keep strangers "
            f"out only {right} of 100 can be named."
        )
    return (
        USABLE,
        f"For {hits} of 100 pictures the most similar other picture is of the same class.",
    )


def _setting(decision: Mapping[str, Any]) -> dict[str, Any]:
    """The setting of the dial that is nearest to the one in use."""
    settings: list[dict[str, Any]] = decision["settings"]
    return min(settings, key=lambda each: abs(each["strangers"] - decision["strangers"]))


def _helps(found: Evaluation, facts: Mapping[str, Any], level: str) -> list[str]:
    """What would help, most first: for a weak model what concerns the training.

    A weak model finds labels suspect that are right.
    """
    training, data = list(_about_training(found, facts, level)), list(_about_data(found))
    return data + training if level == USABLE else training + data


def _about_training(found: Evaluation, facts: Mapping[str, Any], level: str) -> Iterator[str]:
    if facts.get("unfinished"):
        yield "Train longer: the last step was the best (--steps)."
    if level != USABLE and facts.get("trained") is not None:
        yield "Try a stronger backbone (kinspace train --backbone), on a GPU if there is one."
    gap = found.gap["gap"]["recall@1"] if found.gap else 0.0
    if gap > WIDE and not facts.get("kept"):
        yield "Train on more classes: what the model learned holds for its own classes alone."


def _about_data(found: Evaluation) -> Iterator[str]:
    if suspects := found.problems["suspect_count"]:
        yield (
            f"Look at {plural(suspects, 'label that seems', 'labels that seem')} wrong; they are "
            "listed below."
        )
    recall = found.retrieval["model"]["recall@1"]
    behind = sorted(
        (row["recall@1"], name)
        for name, row in found.by_class.items()
        if row["recall@1"] < recall - BEHIND
    )
    if behind and len(found.by_class) > 2:
        names = ", ".join(f"{name} ({100 * value:.0f} %)" for value, name in behind[:3])
        yield f"More pictures of the classes that are found worst: {names}."
    confused = found.problems["confused"]
    if confused and confused[0]["share"] >= OFTEN:
        pair = confused[0]
        yield (
            f"{pair['first']} and {pair['second']} are taken for one another: if they are one "
            "class to you, merge them."
        )
    if found.decision is None and found.parts["test"]["classes"] > 1:
        yield "More classes: with fewer than four it cannot be said when a picture is unknown."


def tiles(found: Evaluation, *, kept: bool = False) -> Iterator[tuple[str, str]]:
    """A number and its sentence, with the baselines beside it.

    kept: whether the model is the backbone before training.
    """
    beside = ", ".join(
        f"{100 * row['recall@1']:.0f} by {NAMES.get(name, name)}"
        for name, row in found.retrieval.items()
        if name != "model" and not (kept and name == "untrained")
    )
    hits = 100 * found.retrieval["model"]["recall@1"]
    yield (
        f"{hits:.0f} of 100",
        "pictures have one of their class as the most similar" + (f" ({beside})" if beside else ""),
    )
    if found.decision is not None:
        at = _setting(found.decision)
        yield f"{100 * at['right']:.0f} of 100", "pictures of known classes are named right"
        yield f"{100 * at['let_through']:.0f} of 100", "strangers get a class they are not of"
    count = found.problems["suspect_count"]
    yield f"{count:,}", "label seems wrong" if count == 1 else "labels seem wrong"


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
