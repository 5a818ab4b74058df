"""Tables of vectors as files, for commands that take them."""

from pathlib import Path

import numpy as np


def saved(folder: Path, vectors: object, labels: object = None) -> Path:
    file = folder / "vectors.npz"
    arrays = {"vectors": np.asarray(vectors, np.float32)}
    np.savez(file, **(arrays if labels is None else arrays | {"labels": np.asarray(labels)}))
    return file


def blobs(classes: int = 8, each: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(classes * each) % classes
    return 3 * rng.standard_normal((classes, 5))[labels] + rng.standard_normal(
        (len(labels), 5)
    ), labels
