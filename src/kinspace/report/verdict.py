"""The verdict in two sentences: the result, and what it means."""

from __future__ import annotations

from kinspace._core.checks import plural
from kinspace.evaluation.summary import Evaluation

__all__ = ["NAMES", "WIDE", "percent", "verdict"]

NAMES = {"untrained": "the backbone before training", "pixels": "raw pixels"}
WIDE = 0.15  # a gap of Recall@1 between training and test classes that is mentioned


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; "-" if it is missing.

    >>> percent(0.1234), percent(None), percent(float("nan"))
    ('12.3 %', '-', '-')
    """
    return "-" if value is None or value != value else f"{100 * value:.{digits}f} %"


def verdict(
    found: Evaluation, *, unseen: bool, trained: bool = True, kept: bool = False
) -> tuple[str, str]:
    """Two sentences. unseen: whether no test class was in the training part.

    trained: False for a pretrained backbone as it is. kept: whether the start of the training was
    chosen, because no step was better.

    >>> import numpy as np
    >>> from kinspace.evaluation.summary import summarize
    >>> from kinspace.embeddings import EmbeddingTable
    >>> x, y = np.eye(4).repeat(3, 0), np.arange(12) // 3
    >>> verdict(summarize(EmbeddingTable(x, y)), unseen=False)[0]
    'For 12 pictures of 4 classes, the nearest other picture is of the same class in 100.0 % of
    cases.'
    """
    test, recall = found.parts["test"], found.retrieval["model"]["recall@1"]
    kind = plural(test["classes"], "class", "classes")
    kind += " never seen in training" if unseen else ""
    first = (
        f"For {plural(test['pictures'], 'picture')} of {kind}, the nearest other picture is "
        f"of the same class in {percent(recall)} of cases"
    )
    baselines = [
        f"{NAMES.get(name, name)} {'reach' if name == 'pixels' else 'reaches'} "
        f"{percent(row['recall@1'])}"
        for name, row in found.retrieval.items()
        if name != "model" and not (kept and name == "untrained")
    ]
    second = _advice(found, trained, kept)
    return first + ("; " + ", ".join(baselines) if baselines else "") + ".", second


def _advice(found: Evaluation, trained: bool, kept: bool) -> str:
    weakest = min(found.by_class.items(), key=lambda item: item[1]["recall@1"])
    weak = f"the weakest class is {weakest[0]} with {percent(weakest[1]['recall@1'])}"
    gains = {name: row for name, row in found.gain.items() if not (kept and name == "untrained")}
    if not gains:
        if found.parts["test"]["classes"] < 2:
            return "There is only one class, so this result says little."
        return f"There are no baselines to compare it with; {weak}."
    name, best = min(gains.items(), key=lambda item: item[1]["difference"])
    than = NAMES.get(name, name)
    points = f"{100 * abs(best['difference']):.1f} points"
    low, high = 100 * best["low"], 100 * best["high"]
    interval = f"95 % interval {low:.1f} to {high:.1f}"
    if best["low"] > 0:
        said = f"That is {points} above {than} ({interval})"
        if kept:
            why = "No training is known to be better than the backbone as it was"
            return f"{said}. {why}, so the model is that."
        gap = found.gap["gap"]["recall@1"] if found.gap else 0.0
        if gap > WIDE:
            ours = percent(found.gap["train"]["recall@1"] if found.gap else None)
            return (
                f"{said}, but on the training classes it is {ours}: part of what the model learned "
                "does not generalize to new classes."
            )
        return f"{said}; {weak}."
    if best["high"] < 0:
        verb = "are" if name == "pixels" else "is"
        worse = f"{than} {verb} {points} better (95 % interval {-high:.1f} to {-low:.1f})."
        if not trained or kept:
            return f"{worse[0].upper()}{worse[1:]} Try another backbone, or train."
        if name == "pixels":
            return (
                f"{worse[0].upper()}{worse[1:]} The model has not learned what tells these classes "
                "apart: check the training curves and the recipe."
            )
        return (
            f"Training has made it worse: {worse} Check the training curves and the recipe before "
            "you use this model."
        )
    difference = (
        f"the difference from {than} is {100 * best['difference']:+.1f} points ({interval})"
    )
    if not trained or kept:
        what = "The backbone as it is" if kept else "The pretrained backbone"
        return f"{what} is not clearly better: {difference}. Try another backbone, or train."
    if name == "pixels":
        return f"It is not clear that the model is of use here: {difference}."
    return f"It is not clear that training has helped: {difference}."
