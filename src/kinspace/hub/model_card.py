"""The README.md of a model repository, written from what the run folder says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kinspace._core.checks import plural
from kinspace.evaluation.summary import MEASURES
from kinspace.evaluation.thresholds import Thresholds
from kinspace.inference.model import THRESHOLDS
from kinspace.run import UNSEEN, Run

__all__ = ["model_card"]

TAGS = ("metric-learning", "image-retrieval", "image-similarity", "embeddings")
ROWS = {
    "selected": "this model",
    "untrained": "its backbone before the training",
    "pixels": "raw pixels",
}
SHOWN = ("recall@1", "recall@4", "map@r", "map")


def model_card(run: Run, *, name: str, license: str | None = None) -> str:  # noqa: A002 - the field
    """The text of README.md: use, data, numbers, thresholds, limits and license.

    name: what `kinspace.load` is given, "user/photos". license: an identifier of the Hub, "mit";
    None: the card says that none was given.
    """
    about = run.about
    parts = [
        _front_matter(license),
        f"# {name.rpartition('/')[2]}",
        _summary(run, about),
        _use(name, thresholds=(run.folder / THRESHOLDS).exists()),
        "## Trained on",
        _data(about),
        "## Evaluated on",
        _numbers(run),
        "## Known or unknown",
        _thresholds(run.folder),
        "## Limits",
        "\n".join(f"- {line}" for line in _limits(run, about)),
        "## License",
        _license(about, license),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(license: str | None) -> str:  # noqa: A002
    lines = ["library_name: kinspace", "pipeline_tag: image-feature-extraction", "tags:"]
    lines += [f"- {tag}" for tag in TAGS]
    lines += [] if license is None else [f"license: {json.dumps(license)}"]
    return "\n".join(["---", *lines, "---"])


def _summary(run: Run, about: Mapping[str, Any]) -> str:
    model, recipe = about["model"], about["recipe"]
    if isinstance(model, str):
        network = f"a network of its author's own, `{model}`"
    else:
        network = f"`{recipe['model']['backbone']}`"
    version = about.get("kinspace", "")
    how = f"trained with the method `{recipe['name']}`" if run.trained else "without training"
    return (
        "An embedding model: pictures of one kind end up near each other. The network is "
        f"{network}, {how} by [kinspace](https://pypi.org/project/kinspace) {version}."
    )


def _use(name: str, *, thresholds: bool) -> str:
    lines = [
        "import kinspace",
        "",
        f"model = kinspace.load({name!r})",
        'vectors = model.encode(["a.jpg", "b.jpg"])  # length 1, so cosine is a product',
        'print(model.similarity("a.jpg", "b.jpg"))',
    ]
    lines += ['print(model.same("a.jpg", "b.jpg"))'] if thresholds else []
    return "\n".join(["```python", *lines, "```"])


def _data(about: Mapping[str, Any]) -> str:
    words = {"train": "trained", "validation": "chose the model", "test": "tested it"}
    classes, pictures = about["classes"], about["pictures"]
    sizes = [
        f"{plural(pictures[part], 'picture')} of {plural(len(names), 'class', 'classes')} "
        f"{words.get(part, part)}"
        for part, names in classes.items()
    ]
    return f"Data: {about['data']}, split `{about['split']}`: {'; '.join(sizes)}."


def _numbers(run: Run) -> str:
    """The table of the test part, and the verdict in sentences."""
    judge = run.evaluated_by
    results = (judge or run).results
    if "selected" not in results:
        return "Not evaluated: nothing was kept for a test."
    names = [name for name in SHOWN if name in results["selected"]]
    rows = ["| | " + " | ".join(MEASURES[name] for name in names) + " |"]
    rows.append("|---|" + "---:|" * len(names))
    for key, title in ROWS.items():
        if key in results:
            cells = " | ".join(f"{100 * results[key][name]:.1f} %" for name in names)
            rows.append(f"| {title} | {cells} |")
    return "\n".join(["\n".join(run.verdict), "", *rows])


def _thresholds(folder: Path) -> str:
    file = folder / THRESHOLDS
    if not file.exists():
        return "No thresholds were set, so the model calls nothing unknown."
    found = Thresholds.load(file)
    setting = found.at()
    return (
        f"Calibrated on {found.basis}. With the dial `strangers` at {found.strangers:g}: "
        f"{setting}. Two pictures are of one class from a cosine of {setting.cosine:.3f} on."
    )


def _limits(run: Run, about: Mapping[str, Any]) -> Iterator[str]:
    results = (run.evaluated_by or run).results
    if "selected" in results:
        queries = plural(results["selected"]["queries"], "picture")
        yield f"The numbers are those of {queries} of {about['data']}; other pictures may differ."
    if run.trained and about["split"] not in (*UNSEEN, "all"):
        yield "The test has classes of the training: for new classes the numbers may be lower."
    if results.get("steps") == 0:
        yield "No training is known to be better than the backbone as it is, so it was kept."
    if run.evaluated_by is not None:
        yield "The model has seen all classes; the numbers are those of a run that left some out."
    if (transform := about.get("transform")) is not None:
        yield f"Pictures are reduced to {transform['resize']} pixels: finer marks are not seen."
    yield "A similarity is no probability, and says nothing of why two pictures are alike."


def _license(about: Mapping[str, Any], license: str | None) -> str:  # noqa: A002
    own = license if license is not None else "Its author has given none; ask before you use it."
    part = about["recipe"].get("model", {})
    if part.get("pretrained"):
        own += f" The backbone started from weights of `{part['backbone']}`, which have their own."
    return own
