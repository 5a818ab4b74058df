"""The map: kept, seeded, near what is near."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import kinspace
from kinspace.server.map_positions import FILE, gallery_places, places


def groups(each: int, count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(each * count) % count
    x = 5 * np.eye(12)[y] + 0.3 * rng.standard_normal((len(y), 12))
    return x.astype(np.float32), y


def test_of_many_a_sample_is_laid_out_and_the_rest_put_where_it_belongs() -> None:
    x, y = groups(40)
    found = places(x, sample=60, seed=3)
    assert found.shape == (160, 2)
    assert 0 <= found.min() <= found.max() <= 1
    np.testing.assert_array_equal(found, places(x, sample=60, seed=3))
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (y[apart.argmin(1)] == y).all()  # groups this clear stay whole


def test_a_row_outside_the_sample_is_the_weighted_mean_of_its_nearest() -> None:
    x, _ = groups(20)
    found = places(x, sample=50, seed=1).astype(float)
    drawn = np.sort(np.random.default_rng(1).permutation(80)[:50])
    row = next(i for i in range(80) if i not in drawn)
    unit = x.astype(float) / np.linalg.norm(x.astype(float), axis=1, keepdims=True)
    cosines = unit[drawn] @ unit[row]
    near = np.argsort(-cosines)[:5]
    weights = np.exp(cosines[near] / 0.1)
    expected = (weights[:, None] * found[drawn[near]]).sum(0) / weights.sum()
    assert found[row] == pytest.approx(expected, abs=1e-5)


def test_it_is_kept_in_the_run_folder_and_made_anew_for_other_vectors(
    run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    model = kinspace.load(folder, "cpu")
    first = gallery_places(model)
    written = (folder / FILE).stat().st_mtime_ns
    np.testing.assert_array_equal(gallery_places(model), first)
    assert (folder / FILE).stat().st_mtime_ns == written
    assert model.gallery is not None
    model.gallery.table = model.table.select(range(50))
    assert gallery_places(model).shape == (50, 2)
    (folder / FILE).write_bytes(b"broken")
    assert gallery_places(model).shape == (50, 2)
