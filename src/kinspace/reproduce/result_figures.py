"""The figures of an experiment, drawn from its results alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinspace.report.figures import COLORS, Plot, make_plot
from kinspace.reproduce.experiment import Experiment, Row, Sweep
from kinspace.reproduce.records import Records
from kinspace.reproduce.table_measures import LOSS, at, title

__all__ = ["draw_figures", "experiment_figures"]

Content = Mapping[str, Any]
DASHES = ["-", "--", ":"]  # every color has each of them
PROFILES = {"attributes": "that share an attribute, %", "recall": "Recall@K, %"}
IN_PLOT = 5  # more lines than this have their legend below the plot


def draw_figures(records: Records) -> list[Path]:
    """Draw the figures beside the results file, and list them in it."""
    if not records.runs:
        return []
    name, folder = records.path.name.removesuffix(".json"), records.path.parent
    made = []
    records.figures = []
    for plot in experiment_figures(records.experiment, records.to_dict()):
        file = folder / f"{name}-{plot.name}.svg"
        file.write_text(plot.svg, encoding="utf-8")
        file.with_suffix(".png").write_bytes(plot.png)
        records.figures.append({"file": file.name, "alt": plot.alt})
        made.append(file)
    records.write()
    return made


def experiment_figures(experiment: Experiment, content: Content) -> list[Plot]:
    """A figure for each sweep, and the curves, profile and scatter of the experiment."""
    beside = {name for sweep in experiment.sweeps for name in sweep.beside}
    sweeps = [sweep for sweep in experiment.sweeps if sweep.name not in beside]
    plots = [_sweep(experiment, sweep, content) for sweep in sweeps]
    if experiment.curve is not None:
        plots.append(_curves(experiment, content))
    if experiment.profile is not None:
        plots.append(_profile(experiment, experiment.profile, content))
    if experiment.scatter:
        plots.append(_scatter(experiment, content))
    return [plot for plot in plots if plot is not None]


def _sweep(experiment: Experiment, sweep: Sweep, content: Content) -> Plot | None:
    """The first measure against the swept value, on test and on validation classes."""
    measure = experiment.measures[0]
    found = _points(experiment, sweep, content)
    if len(found) < 2:
        return None
    words = not all(isinstance(row.x, (int, float)) for row, _ in found)
    x = [place if words else row.x for place, (row, _) in enumerate(found)]
    lines = {"test": [summary["test"][measure] for _, summary in found]}
    if measure == "recall@1" and all(summary["validation"] for _, summary in found):
        lines["validation"] = [summary["validation"] for _, summary in found]
    titles = {row.name: row.title for row in experiment.rows}
    others = {each.name: each for each in experiment.sweeps if each.name in sweep.beside}

    def draw(axes: Any) -> None:
        for color, (name, values) in zip(COLORS, lines.items(), strict=False):
            _line(axes, x, values, fmt="o-", color=color, label=name)
        for color, name in zip(COLORS[2:], sweep.beside, strict=False):
            if name in others:
                points = _points(experiment, others[name], content)
                place_of = {row.x: place for place, (row, _) in zip(x, found, strict=True)}
                places = [place_of[row.x] for row, _ in points]
                values = [summary["test"][measure] for _, summary in points]
                label = f"{others[name].label}, test"
                _line(axes, places, values, fmt="s--", color=color, label=label)
            elif measure in content["summary"].get(name, {"test": {}})["test"]:
                level = 100 * content["summary"][name]["test"][measure]["mean"]
                axes.axhline(level, color=color, ls="--", lw=1, label=f"{titles[name]}, test")
        printed = [_printed(content, row.name, measure) for row, _ in found]
        if all(printed):
            source = printed[0][0][0]
            axes.plot(x, [each[0][1] for each in printed], "x:", color=COLORS[2], label=source)
        if sweep.log and not words:
            axes.set_xscale("log")
        axes.set_xticks(x, [_word(row.x) for row, _ in found])
        axes.minorticks_off()
        axes.set(xlabel=sweep.label, ylabel=f"{title(measure)}, %")
        axes.legend()

    columns = ("x", "mean", "spread")
    table = [(row.x, *list(s["test"][measure].values())[:2]) for row, s in found]
    alt = f"{title(measure)} on the test part by {sweep.label}: {_said(found, measure)}."
    for other in others.values():
        points = _points(experiment, other, content)
        alt += f" The same of {other.label}: {_said(points, measure)}."
    return make_plot(sweep.name, sweep.label, alt, draw, columns=columns, rows=table)


def _line(axes: Any, x: Sequence[Any], values: Sequence[Any], **style: Any) -> None:
    means = [100 * value["mean"] for value in values]
    spreads = [100 * value["spread"] for value in values]
    axes.errorbar(x, means, spreads, capsize=3, ms=4, **style)


def _points(experiment: Experiment, sweep: Sweep, content: Content) -> list[tuple[Row, Any]]:
    """The rows of a sweep that have been run, with what came out."""
    rows = [row for row in experiment.rows if row.sweep == sweep.name]
    found = [(row, content["summary"][row.name]) for row in rows if row.name in content["summary"]]
    measure = experiment.measures[0]
    return [(row, summary) for row, summary in found if measure in summary["test"]]


def _said(points: Sequence[tuple[Row, Any]], measure: str) -> str:
    return ", ".join(
        f"{row.x}: {100 * summary['test'][measure]['mean']:.1f}" for row, summary in points
    )


def _word(x: Any) -> str:
    return x.replace("x", " x ") if isinstance(x, str) else f"{x:g}"


def _printed(content: Content, row: str, measure: str) -> list[tuple[str, float]]:
    return [
        (each["source"], each["numbers"][measure])
        for each in content["printed"].get(row, [])
        if measure in each["numbers"]
    ]


def _curves(experiment: Experiment, content: Content) -> Plot | None:
    """The measure over the steps, the mean over seeds with its spread, a line a row."""
    assert experiment.curve is not None
    name = title(experiment.curve.measure)
    loss = experiment.curve.measure == LOSS
    scale, unit = (1, "") if loss else (100, ", %")
    lines = _of_rows(experiment, content, "curve")
    if not lines:
        return None

    many = len(lines) > IN_PLOT

    def draw(axes: Any) -> None:
        for place, (row, points) in enumerate(lines.items()):
            color = COLORS[place % len(COLORS)]
            steps, means = [p[0] for p in points], [scale * p[1] for p in points]
            low = [scale * (p[1] - p[2]) for p in points]
            high = [scale * (p[1] + p[2]) for p in points]
            dashes = DASHES[place // len(COLORS) % len(DASHES)]
            axes.plot(steps, means, color=color, ls=dashes, label=row, lw=1.5)
            axes.fill_between(steps, low, high, color=color, alpha=0.15, lw=0)
        axes.set(xlabel="step", ylabel=f"{name}{unit}")
        if many:
            axes.figure.legend(loc="outside lower left")
        else:
            axes.legend()

    said = "; ".join(
        f"{row} from {scale * points[0][1]:.1f} to {scale * points[-1][1]:.1f}"
        for row, points in lines.items()
    )
    rows = [(row, *point) for row, points in lines.items() for point in points]
    columns = ("row", "step", "mean", "spread")
    alt = f"{name} over the steps: {said}."
    size = (5.2, 3.2 + 0.21 * len(lines)) if many else (5.2, 3.2)
    words = "curves", f"{name} over the steps", alt
    return make_plot(*words, draw, columns=columns, rows=rows, size=size)


def _profile(experiment: Experiment, kind: str, content: Content) -> Plot | None:
    """A measure at K over K, a line a row."""
    ks = sorted(
        found[1] for name in experiment.measures if (found := at(name)) and found[0] == kind
    )
    lines: dict[str, list[dict[str, float]]] = {}
    for row in experiment.rows:
        test = content["summary"].get(row.name, {}).get("test", {})
        if ks and all(f"{kind}@{k}" in test for k in ks):
            lines[row.title] = [test[f"{kind}@{k}"] for k in ks]
    if not lines:
        return None

    def draw(axes: Any) -> None:
        for color, (row, values) in zip(_colors(len(lines)), lines.items(), strict=True):
            means, spreads = ([100 * v[one] for v in values] for one in ("mean", "spread"))
            axes.errorbar(ks, means, spreads, fmt="o-", color=color, capsize=3, ms=4, label=row)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.set(xlabel="neighbors", ylabel=PROFILES.get(kind, f"{kind}, %"))
        axes.legend()

    said = "; ".join(
        f"{row} from {100 * values[0]['mean']:.1f} at {ks[0]} to {100 * values[-1]['mean']:.1f} "
        f"at {ks[-1]}"
        for row, values in lines.items()
    )
    rows = [
        (row, k, v["mean"], v["spread"])
        for row, vs in lines.items()
        for k, v in zip(ks, vs, strict=True)
    ]
    columns = ("row", "k", "mean", "spread")
    alt = f"{kind} by the number of neighbors: {said}."
    return make_plot(kind, experiment.title, alt, draw, columns=columns, rows=rows)


def _scatter(experiment: Experiment, content: Content) -> Plot | None:
    """The embeddings of some samples of a part, a panel a row."""
    panels = {
        row.title: record["points"]
        for row in experiment.rows
        for record in content["runs"]
        if record["row"] == row.name and record.get("points")
    }
    if not panels:
        return None

    def draw(axes: Any) -> None:
        import matplotlib

        figure, size = axes.figure, len(panels)
        axes.remove()
        colors = matplotlib.colormaps["tab10"]
        for place, (row, points) in enumerate(panels.items()):
            panel = figure.add_subplot((size + 1) // 2, min(size, 2), place + 1)
            x, y = ([float(word) for word in points[axis].split()] for axis in "xy")
            each: list[Any] = [colors(int(label) % 10) for label in points["labels"].split()]
            if "marked" in points:
                marked = points["marked"].split()
                each = ["#e8871e" if word == "1" else "#c8ccd0" for word in marked]
            panel.scatter(x, y, s=2, c=each, rasterized=True)
            if "centers_x" in points:
                x, y = ([float(w) for w in points[f"centers_{axis}"].split()] for axis in "xy")
                panel.scatter(x, y, s=14, c="white", edgecolors="black", linewidths=0.6)
            panel.set_title(row, fontsize=10)
            panel.set(xticks=[], yticks=[])

    count = len(next(iter(panels.values()))["labels"].split())
    by = "class" if experiment.attribute is None else experiment.attribute
    of = f"{count} {experiment.scatter} samples in two dimensions"
    alt = f"{of}, colored by {by}: {', '.join(panels)}."
    rows = [(row, len(points["labels"].split())) for row, points in panels.items()]
    return make_plot(
        "scatter",
        experiment.title,
        alt,
        draw,
        columns=("row", "samples"),
        rows=rows,
        size=(6.4, 3.2 * ((len(panels) + 1) // 2)),
    )


def _of_rows(experiment: Experiment, content: Content, key: str) -> dict[str, Sequence[Any]]:
    found = {row.title: content["summary"].get(row.name, {}).get(key) for row in experiment.rows}
    return {name: value for name, value in found.items() if value}


def _colors(count: int) -> list[str]:
    return [COLORS[place % len(COLORS)] for place in range(count)]
