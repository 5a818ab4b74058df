"""Options that the papers' claims need, each trained for some steps as a recipe asks for it."""

from pathlib import Path
from typing import Any

import pytest

from kinspace.training.run_folder import read_checkpoint
from small_trainings import losses, trained

CLUSTERS: dict[str, Any] = {
    "sampler.classes": None,
    "sampler.clusters": 3,
    "index.clusters": 2,
    "warm_start.steps": 0,
}


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("density", {"regularizers.density.share": 0.1}),
        ("density", {"regularizers.density.ratios": False}),
        ("density", {"regularizers.density.raw": True}),
        ("proxy_anchor", {"sampler.classes": None, "sampler.samples": None, "virtual": 3.0}),
        ("contrastive", {"virtual": 3.0}),
        ("nra", {"loss.sharpness": 8.0, "warm_start.steps": 0}),
        ("almn", {"model.start": "xavier", "model.normalize": False, "model.start_norm": "none"}),
        ("magnet", {**CLUSTERS, "index.disagreement": 0.01}),
    ],
)
def test_each_option_trains_to_the_end_with_finite_losses(
    method: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    given = {key: value for key, value in changes.items() if key != "virtual"}
    given |= {"loss.virtual_points": changes["virtual"]} if "virtual" in changes else {}
    found = losses(trained(tmp_path, method=method, changes=given))
    assert len(found) == 6
    assert len(set(found)) > 1


def test_the_weight_by_the_gradients_is_among_the_metrics_and_resumes(tmp_path: Path) -> None:
    changes = {"regularizers.density.share": 0.1}
    run = trained(tmp_path, method="density", changes=changes)
    assert all(row["density_weight"] > 0 for row in run.metrics if "loss" in row)
    saved, _ = read_checkpoint(run.folder / "last.safetensors")
    assert any(name.endswith("shares.density.norms") for name in saved)


def test_clusters_that_are_left_are_made_anew(tmp_path: Path) -> None:
    def refreshes(folder: Path, disagreement: Any) -> int:
        changes = {
            **CLUSTERS,
            "schedule.steps": 12,
            "optimizer.lr": 0.1,
            "index.disagreement": disagreement,
            "index.refresh": 100,
        }
        run = trained(folder, method="magnet", changes=changes)
        _, rest = read_checkpoint(run.folder / "last.safetensors")
        return int(rest["index"]["refreshes"])

    assert refreshes(tmp_path / "often", 0.01) > refreshes(tmp_path / "seldom", "none")
