"""The figures of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kinspace._core.checks import plural
from kinspace.evaluation.summary import Evaluation
from kinspace.report.figures import COLORS, INK, Plot, make_plot
from kinspace.report.verdict import percent

__all__ = ["LABELS", "curves", "evaluation_plots", "map_plot", "selection_plot", "spectrum"]

LABELS = {"model": "this model", "untrained": "backbone before training", "pixels": "raw pixels"}
BARS = 120  # classes up to which each has a bar


def evaluation_plots(found: Evaluation) -> dict[str, Plot]:
    """By name: recall, densities, spectrum, and roc and attributes if they were measured."""
    plots = [recall_by_k(found.retrieval), densities(found)]
    if "shares" in found.geometry:
        plots.append(spectrum(found.geometry))
    if found.verification is not None:
        plots.append(roc(found.verification))
    if found.decision is not None:
        plots.append(reliability(found.decision))
    if found.attributes is not None:
        plots.append(attributes(found.attributes))
    return {plot.name: plot for plot in plots}


def recall_by_k(retrieval: Mapping[str, Mapping[str, float]]) -> Plot:
    """Recall@K of the model and its baselines."""
    first = next(iter(retrieval.values()))
    ks = sorted(int(name.partition("@")[2]) for name in first if name.startswith("recall@"))
    lines = {name: [row[f"recall@{k}"] for k in ks] for name, row in retrieval.items()}

    def draw(axes: Any) -> None:
        for color, (name, values) in zip(COLORS, lines.items(), strict=False):
            percents = [100 * value for value in values]
            axes.plot(ks, percents, "o-", color=color, label=LABELS.get(name, name), ms=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.set(xlabel="K", ylabel="Recall@K, %", ylim=(0, 102))
        axes.legend()

    ranges = "; ".join(
        f"{LABELS.get(name, name)} from {percent(values[0])} at 1 to {percent(values[-1])} "
        f"at {ks[-1]}"
        for name, values in lines.items()
    )
    rows = [(k, *(values[at] for values in lines.values())) for at, k in enumerate(ks)]
    return make_plot(
        "recall", "Recall by K", f"Recall@K: {ranges}.", draw, columns=("k", *lines), rows=rows
    )


def densities(found: Evaluation) -> Plot:
    """The spread of each class: a bar for each, or a histogram if there are many."""
    classes = sorted(found.geometry["classes"], key=lambda row: float(row["density"]))
    values = [float(row["density"]) for row in classes]

    def draw(axes: Any) -> None:
        if len(values) <= BARS:
            axes.bar(range(len(values)), values, color=COLORS[0], width=0.8)
            axes.set(xlabel="classes, compact first", ylabel="mean squared distance to the mean")
            axes.set_xticks([])
        else:
            axes.hist(values, bins=60, color=COLORS[0])
            axes.set(xlabel="mean squared distance to the class mean", ylabel="classes")
        axes.grid(visible=False, axis="x")

    alt = (
        f"Spread of {plural(len(values), 'class', 'classes')}, from {values[0]:.3g} "
        f"({classes[0]['class']}) to {values[-1]:.3g} ({classes[-1]['class']}), "
        f"median {np.median(values):.3g}."
    )
    columns = ("class", "count", "density", "gap", "neighbor")
    rows = [tuple(row[name] for name in columns) for row in classes]
    return make_plot("densities", "Spread of each class", alt, draw, columns=columns, rows=rows)


def spectrum(geometry: Mapping[str, Any]) -> Plot:
    """The singular values as shares of their sum."""
    shares = [float(value) for value in geometry["shares"]]

    def draw(axes: Any) -> None:
        axes.plot(range(1, len(shares) + 1), shares, color=COLORS[0])
        axes.axhline(1 / len(shares), color=COLORS[2], ls="--", lw=1, label="uniform")
        axes.set(xlabel="direction", ylabel="share of singular values", ylim=(0, None))
        axes.legend()

    alt = (
        f"Shares of {plural(len(shares), 'singular value')}, the largest {shares[0]:.3g}; "
        f"effective rank {geometry['effective_rank']:.1f}."
    )
    rows = list(enumerate(shares, 1))
    return make_plot(
        "spectrum", "Use of the dimensions", alt, draw, columns=("direction", "share"), rows=rows
    )


def roc(found: Mapping[str, Any]) -> Plot:
    """True-match rate by false-match rate, and the chosen threshold with its interval."""
    false, true = (np.asarray(found["curve"][name]) for name in ("fmr", "tmr"))
    shown = false > 0
    low = min(1e-4, float(false[shown].min(initial=1e-4)))

    def draw(axes: Any) -> None:
        axes.plot(false[shown], 100 * true[shown], color=COLORS[0])
        at, height = max(found["fmr"], low), 100 * found["tmr"]
        bars = [[height - 100 * found["tmr_low"]], [100 * found["tmr_high"] - height]]
        axes.errorbar(
            [at],
            [height],
            yerr=np.clip(np.nan_to_num(bars), 0, None),
            fmt="o",
            color=COLORS[1],
            capsize=4,
            label=f"false matches {100 * found['target_fmr']:g} %",
        )
        axes.set_xscale("log")
        axes.set(xlabel="false-match rate", ylabel="true-match rate, %", ylim=(0, 102))
        axes.set_xlim(low, 1)
        axes.legend(loc="upper left")

    alt = (
        f"ROC curve with area {found['auc']:.3f}. At the false-match rate of "
        f"{percent(found['target_fmr'])}, {percent(found['tmr'])} of pairs of one class and "
        f"{percent(found['fmr'], 3)} of pairs of two classes are accepted."
    )
    rows = list(zip(false.tolist(), true.tolist(), strict=True))
    return make_plot("roc", "Same or different?", alt, draw, columns=("fmr", "tmr"), rows=rows)


def reliability(decision: Mapping[str, Any]) -> Plot:
    """How often an answer is right, by its confidence."""
    points = [(float(x), float(y), int(n)) for x, y, n in decision["reliability"]]

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=COLORS[2], ls="--", lw=1, label="as it should be")
        axes.plot([x for x, _, _ in points], [y for _, y, _ in points], "o-", color=COLORS[0])
        axes.set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
        axes.legend()

    gap = max(abs(x - y) for x, y, _ in points)
    alt = (
        "The share of answers that are right by their confidence, with as many strangers as "
        f"pictures of known classes; at most {100 * gap:.0f} points apart."
    )
    columns = ("confidence", "right", "pictures")
    return make_plot("reliability", "Confidence", alt, draw, columns=columns, rows=points)


def attributes(found: Mapping[str, Any]) -> Plot:
    """The share of neighbors with the same attribute, by the size of the neighborhood."""
    sizes = [int(size) for size in found["precision"]]
    values = [float(value) for value in found["precision"].values()]

    def draw(axes: Any) -> None:
        axes.plot(sizes, [100 * v for v in values], "o-", color=COLORS[0], ms=4, label="neighbors")
        axes.axhline(100 * found["chance"], color=COLORS[2], ls="--", lw=1, label="random pictures")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set(xlabel="neighbors", ylabel="share with the attribute, %", ylim=(0, 102))
        axes.legend()

    alt = (
        f"{percent(values[0])} of the nearest pictures share an attribute with the query, and "
        f"{percent(values[-1])} of the {sizes[-1]} nearest; of random pictures it would be "
        f"{percent(found['chance'])}."
    )
    rows = list(zip(sizes, values, strict=True))
    return make_plot(
        "attributes", "Attributes", alt, draw, columns=("neighbors", "precision"), rows=rows
    )


def curves(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Plot]:
    """Loss and validation Recall@1 by step, of one run or several."""
    found = {}
    for key, name, title, measure in (
        ("loss", "loss", "Loss", "loss"),
        ("recall@1", "validation", "Validation Recall@1, %", "Recall@1 on validation classes"),
    ):
        times = 100 if key == "recall@1" else 1
        lines = {
            run: [(row["step"], times * row[key]) for row in rows if _trained(row, key)]
            for run, rows in runs.items()
        }
        lines = {run: points for run, points in lines.items() if points}
        if lines:
            found[name] = _lines(name, title, measure, lines)
    return found


def _trained(row: Mapping[str, Any], key: str) -> bool:
    return row.get("phase", 1) == 1 and isinstance(row.get(key), float)


def _lines(
    name: str, title: str, measure: str, lines: Mapping[str, Sequence[tuple[int, float]]]
) -> Plot:
    def draw(axes: Any) -> None:
        for number, (run, points) in enumerate(lines.items()):
            color = COLORS[number % len(COLORS)]
            mark = "o-" if len(points) < 30 else "-"
            axes.plot(*zip(*points, strict=True), mark, color=color, ms=4, label=run)
        axes.set(xlabel="step", ylabel=title)
        if len(lines) > 1:
            axes.legend()

    ranges = "; ".join(
        f"{run} from {points[0][1]:.3g} to {points[-1][1]:.3g}" for run, points in lines.items()
    )
    rows = [(run, *point) for run, points in lines.items() for point in points]
    alt = f"The {measure} by step: {ranges}."
    return make_plot(name, title, alt, draw, columns=("run", "step", name), rows=rows)


def selection_plot(selection: Mapping[str, Any]) -> Plot:
    """The settings that were tried: Recall@1 on held-out classes by step, and the starts."""
    tried = [each for each in selection["candidates"] if each["points"]]
    starts = [each for each in tried if each["kind"] == "start"]
    trained = [each for each in tried if each["kind"] != "start"]

    def draw(axes: Any) -> None:
        for number, each in enumerate(trained):
            steps = [point["step"] for point in each["points"]]
            recalls = [100 * point["recall@1"] for point in each["points"]]
            style = "o--" if each["kind"] == "frozen" else "o-"
            color = COLORS[number % len(COLORS)]
            axes.plot(steps, recalls, style, color=color, ms=3, label=each["name"])
            if each["name"] == selection["chosen"]:
                at = steps.index(selection["step"])
                axes.plot(steps[at], recalls[at], "*", color=color, ms=13)
        for dashes, each in zip((":", "-.", (0, (1, 4))), starts, strict=False):
            height = 100 * each["points"][0]["recall@1"]
            axes.axhline(height, ls=dashes, lw=1, color=INK, label=f"{each['name']}, no training")
        axes.set(xlabel="step", ylabel="Recall@1 on held-out classes, %")
        if trained:
            axes.set_xscale("log")
        axes.legend(fontsize=7)

    best = "; ".join(
        f"{each['name']} {percent(max(point['recall@1'] for point in each['points']))}"
        for each in tried
    )
    keys = ("step", "recall@1", "map@r")
    rows = [
        (each["name"], each["kind"], *(point[key] for key in keys))
        for each in tried
        for point in each["points"]
    ]
    return make_plot(
        "selection",
        "Settings that were tried",
        f"Recall@1 on held-out training classes, at best: {best}.",
        draw,
        columns=("candidate", "kind", *keys),
        rows=rows,
        size=(6.4, 4.2),
    )


def map_plot(data: Mapping[str, Any]) -> Plot:
    """The map as a still picture: a dot for each row in the color of its class."""
    x, y = (np.asarray(data[name]) / 10_000 for name in ("x", "y"))
    names = data["names"]
    numbers = np.asarray(data["classes"] or [1] * len(x))  # without classes all of one color

    def draw(axes: Any) -> None:
        from matplotlib.colors import hsv_to_rgb

        hues = (numbers * 0.618034) % 1  # consecutive numbers get distant colors
        colors = hsv_to_rgb(np.stack([hues, np.full(len(x), 0.65), np.full(len(x), 0.8)], 1))
        axes.scatter(x, 1 - y, c=colors, s=5, linewidths=0)
        axes.set_axis_off()
        axes.set_aspect("equal")

    kinds = f" of {plural(len(names), 'class', 'classes')}" if names else ""
    alt = f"A t-SNE map of {plural(len(x), 'picture')}{kinds}."
    rows = [
        (data["ids"][at], names[numbers[at]] if names else "", float(x[at]), float(y[at]))
        for at in range(len(x))
    ]
    columns = ("id", "class", "x", "y")
    return make_plot("map", "Map", alt, draw, columns=columns, rows=rows, size=(6, 6))
