"""The demonstration: a model of the built-in moths, and new pictures to try it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from kinspace.data.moths.collection import draw_picture
from kinspace.data.moths.species_list import make_species
from kinspace.inference.model import EmbeddingModel
from kinspace.run import open_run
from kinspace.search.class_votes import Verdict

__all__ = ["Demo", "demo_pictures", "prepare_demo"]

SPECIES = 120  # of the data set "moths"
PER_SPECIES = 40
TRIED = 6  # species of each kind to try


@dataclass(frozen=True)
class Demo:
    """A model with its gallery, and pictures that are not in it, each with the model's answer.

    known: of species of the gallery, the surest first. strangers: of species that it does not have,
    the least sure first.
    """

    model: EmbeddingModel
    known: dict[Path, Verdict]
    strangers: dict[Path, Verdict]


def prepare_demo(
    out: str | Path,
    *,
    data: Any = "moths",
    with_report: bool = True,
    status: Callable[[str], object] = lambda text: None,
    **training: Any,
) -> Demo:
    """Train on the moths, index them, write the report and draw new pictures; all in one folder.

    What the folder has already is kept. data, training: other data and options of `train`.
    """
    from kinspace.inference import index_run, load
    from kinspace.report import write_report
    from kinspace.training import train

    folder = Path(out)
    run = open_run(folder) if (folder / "results.json").exists() else None
    if run is None:
        run = train(data, out=folder, **training)
    if not run.indexed:
        status("making the gallery")
        index_run(run)
    if with_report and not (folder / "report" / "index.html").exists():
        write_report(run, checked=False, status=status)
    status("drawing new moths")
    model = load(folder)
    known, strangers = (_answers(model, files) for files in demo_pictures(folder / "try"))
    return Demo(model, dict(reversed(known.items())), strangers)


def _answers(model: EmbeddingModel, files: Sequence[Path]) -> dict[Path, Verdict]:
    """What the model says of each picture, the least sure first."""
    vectors = zip(files, model.encode(list(files)), strict=True)
    found = {file: model.classify_vector(vector) for file, vector in vectors}
    return dict(sorted(found.items(), key=lambda item: item[1].confidence or 0.0))


def demo_pictures(folder: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """New moths: of species of the data set, and of species after those; a file each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     known, strangers = demo_pictures(Path(place))
    >>> known[0].parent.name, len(known), len(strangers)
    ('known', 6, 6)
    """
    kinds = {
        "known": range(SPECIES // TRIED // 2, SPECIES, SPECIES // TRIED),
        "strangers": range(SPECIES + 2, SPECIES + 2 + 4 * TRIED, 4),  # of different genera
    }
    found: dict[str, list[Path]] = {}
    for kind, numbers in kinds.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            name = make_species(number).name.replace(" ", "-").lower()
            file = folder / kind / f"{name}.png"
            Image.fromarray(draw_picture(number, PER_SPECIES + 1).image).save(file)
            found.setdefault(kind, []).append(file)
    return tuple(found["known"]), tuple(found["strangers"])
