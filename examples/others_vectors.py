"""Evaluate vectors of another model: measures, thresholds and a report, without its model.

Vectors and labels are all that is needed. Here they are 20 principal components of scikit-learn's
digits; in their place may be the output of any library, as arrays, or as a file: .npz, .npy beside
a .csv, .safetensors, .parquet.

Run it with `python examples/others_vectors.py`. About ten seconds on two cores, no download.
"""

import tempfile
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from kinspace import EmbeddingTable, evaluate
from kinspace.evaluation import verification_metrics
from kinspace.report import write_report


def table(rows: int = 1797) -> EmbeddingTable:
    """Vectors with labels and the names of the classes."""
    data = load_digits()
    vectors = PCA(20, random_state=0).fit_transform(data.data)
    names = tuple(str(digit) for digit in range(10))
    return EmbeddingTable(vectors[:rows], labels=data.target[:rows], class_names=names)


def run(folder: Path, *, rows: int = 1797) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """Retrieval measures, verification measures, and the report."""
    vectors = table(rows)
    vectors.save(folder / "vectors.npz")  # what `kinspace report vectors.npz` reads
    found = evaluate(folder / "vectors.npz")
    page = write_report(vectors, out=folder / "report")
    return found.retrieval["model"], verification_metrics(vectors), page


def main() -> None:
    """Print some of the measures."""
    with tempfile.TemporaryDirectory() as folder:
        retrieval, verification, page = run(Path(folder))
        print({name: round(value, 3) for name, value in retrieval.items() if "@" in name})
        print({name: value for name, value in verification.items() if isinstance(value, float)})
        print(f"{page.parent.name}/{page.name}: {page.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
