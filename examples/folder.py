"""A folder end to end: check, train, report, gallery, search.

Sixteen species of moths are drawn into a folder a class. Half of the species train, the others are
searched, and so is a picture that is not in the gallery. The pictures decide on a pretrained net,
and settings are chosen on held-out classes: `quick` trains a small net from scratch instead, for a
test of the program.

Run it with `python examples/folder.py`. About a minute on two cores; the weights come with the
extra `pretrained`.
"""

import tempfile
from pathlib import Path

from PIL import Image

import kinspace
from kinspace.data.moths import draw_moths
from kinspace.inference import Verdict, index_run
from kinspace.report import write_report

QUICK = {"model.backbone": "small", "schedule.steps": 60, "validation.every": 30}


def draw(folder: Path, *, species: int = 16, pictures: int = 16) -> Path:
    """A folder a species, and outside of it a picture of the last one."""
    moths = draw_moths(species=species, per_species=pictures, size=128, workers=1)
    for number, (image, label) in enumerate(zip(moths.images, moths.labels, strict=True)):
        last = number == len(moths.labels) - 1
        place = folder if last else folder / "photos" / moths.class_names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{'query' if last else number}.png")
    return folder / "photos"


def run(folder: Path, *, quick: bool = False) -> tuple[kinspace.Run, Path, Verdict]:
    """The run, its report, and the answer to the picture outside of the gallery."""
    photos, changes = draw(folder), QUICK if quick else None
    trained = kinspace.train(
        photos, changes=changes, out=folder / "run", device="cpu", workers=0, quiet=True
    )
    page = write_report(trained)
    model = index_run(trained)
    return trained, page, model.classify(folder / "query.png")


def main() -> None:
    """Print the numbers, the report's place and the answer."""
    with tempfile.TemporaryDirectory() as parent:
        trained, page, verdict = run(Path(parent))
        for name in ("pixels", "untrained", "selected"):
            recall = trained.results[name]["recall@1"]
            print(f"{name:10} Recall@1 on species never seen: {recall:.1%}")
        print(f"report: {page.name}, {page.stat().st_size // 1024} KB")
        print(f"the picture that is not in the gallery: {verdict}")


if __name__ == "__main__":
    main()
