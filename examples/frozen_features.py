"""Frozen features in a minute: a pretrained net stays as it is, head and loss train on its output.

Every picture goes through the backbone once. The features are kept in the run folder, and a
training on them takes seconds on a CPU: any loss, any sampler. The pictures are drawn moths; half
of the species train.

Run it with `python examples/frozen_features.py`. About half a minute on two cores; the weights come
with the extra `pretrained`.
"""

import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

import kinspace
from kinspace.data.moths import draw_moths

FROZEN = {
    "model.backbone": "tf_efficientnet_lite0",
    "model.freeze": True,
    "transform.size": 96,
    "schedule.steps": 100,
    "validation.every": 50,
}


def run(folder: Path, *, species: int = 16, pictures: int = 10) -> dict[str, dict[str, Any]]:
    """Measures on the species that were not in training, by the name of the loss."""
    moths = draw_moths(species=species, per_species=pictures, workers=1)
    for number, (image, label) in enumerate(zip(moths.images, moths.labels, strict=True)):
        place = folder / "photos" / moths.class_names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    found = {}
    for method in ("proxy_anchor", "multi_similarity"):
        trained = kinspace.train(
            folder / "photos",
            method=method,
            changes=FROZEN,
            out=folder / method,
            device="cpu",
            workers=0,
            quiet=True,
        )
        found[method] = trained.results
    return found


def main() -> None:
    """Print Recall@1 of each loss, beside the net as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for method, results in run(Path(folder)).items():
            before, after = (results[name]["recall@1"] for name in ("untrained", "final"))
            print(f"{method:18} Recall@1 {after:6.1%}, the pretrained net alone {before:6.1%}")


if __name__ == "__main__":
    main()
