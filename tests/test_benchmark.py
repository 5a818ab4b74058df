"""`kinspace.benchmark`: a loss of the user's beside shipped ones, in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import command_line
from kinspace.benchmark import benchmark, own_method, search_space, shipped_method
from kinspace.benchmark.methods import draw, shipped_names
from kinspace.benchmark.table import compared_rows, holm
from kinspace.losses import LOSSES
from kinspace.recipes import read_recipe
from small_trainings import pictures

GOOD = """
import torch

RECIPE = {"sampler.classes": 3, "sampler.samples": 4}

def cosine_pairs(embeddings, labels, *, margin=0.3, weight: float = 1.0):
    table = embeddings @ embeddings.T
    same = labels[:, None] == labels
    push = ((table - margin).relu() * ~same).sum() / (~same).sum().clamp(min=1)
    return ((1 - table) * same).sum() / same.sum() + weight * push
"""
CLASS = """
import torch
from torch import nn

class Means(nn.Module):
    def __init__(self, num_classes, dim, *, scale=8.0):
        super().__init__()
        self.means = nn.Parameter(torch.randn(num_classes, dim))
        self.scale = scale

    def forward(self, embeddings, labels):
        return nn.functional.cross_entropy(self.scale * embeddings @ self.means.T, labels)
"""
SMALL = {"trials": 2, "seeds": 2, "steps": 4, "backbone": "small", "device": "cpu", "workers": 1}


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def run(file: Path, out: Path, said: list[str], **others: Any) -> Any:
    options = {"against": ["contrastive"], "dim": 8, "out": out, "status": said.append}
    return benchmark(file, pictures(12), **{**SMALL, **options, **others})


def photo_folder(folder: Path) -> Path:
    photos = folder / "photos"
    rng = np.random.default_rng(0)
    for number in range(8):
        (photos / f"class {number}").mkdir(parents=True)
        pattern = rng.integers(0, 200, (20, 20, 3))
        for each in range(5):
            noisy = (pattern + rng.integers(0, 56, pattern.shape)).astype(np.uint8)
            Image.fromarray(noisy).save(photos / f"class {number}" / f"{each}.png")
    return photos


def test_each_method_has_the_same_trials_seeds_and_classes(tmp_path: Path) -> None:
    said: list[str] = []
    table = run(written(tmp_path, GOOD), tmp_path / "out", said)
    assert [row["method"] for row in table.rows] == ["mine", "contrastive"]
    for row in table.rows:
        assert (row["trials"], row["failed"], row["recall@1"]["count"]) == (2, 0, 2)
    assert table.rows[1]["verdict"] in ("above", "below", "not told apart")
    assert "verdict" not in table.rows[0]
    classes = table.settings["classes"]
    assert not set(classes["train"]) & set(classes["test"])
    assert len([line for line in said if line.startswith("mine")]) == 4
    assert "mine" not in LOSSES
    assert "**mine**" in (tmp_path / "out" / "benchmark.md").read_text()


def test_goes_on_where_it_was_and_repeats_what_it_found(tmp_path: Path) -> None:
    file, said = written(tmp_path, GOOD), []
    first = run(file, tmp_path / "out", said)
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.safetensors")}
    assert run(file, tmp_path / "out", said).rows == first.rows
    more = run(file, tmp_path / "out", said, trials=3)
    assert all(
        path.stat().st_mtime_ns == stamp for path, stamp in stamps.items() if "trial" in path.name
    )
    assert [row["trials"] for row in more.rows] == [3, 3]
    elsewhere = run(file, tmp_path / "elsewhere", said)
    same = ("chosen", "steps", "validation", "recall@1", "map@r")
    for one, other in zip(first.rows, elsewhere.rows, strict=True):
        assert [one[key] for key in same] == [other[key] for key in same]


def test_a_loss_that_was_edited_is_trained_again(tmp_path: Path) -> None:
    said: list[str] = []
    run(written(tmp_path, GOOD), tmp_path / "out", said)
    kept = (tmp_path / "out" / "mine" / "trial-00.safetensors").stat().st_mtime_ns
    run(written(tmp_path, GOOD + "\n# edited\n"), tmp_path / "out", said)
    assert (tmp_path / "out" / "mine" / "trial-00.safetensors").stat().st_mtime_ns > kept


def test_a_class_is_given_the_classes_and_dimensions(tmp_path: Path) -> None:
    file = written(tmp_path, CLASS)
    method = own_method(file, {})
    assert list(method.ranges) == ["optimizer.lr", "optimizer.loss", "loss.scale"]
    assert run(file, tmp_path / "out", []).rows[0]["recall@1"]["mean"] > 0


def test_ranges_of_the_file_take_the_place_of_the_rule(tmp_path: Path) -> None:
    text = GOOD + 'RANGES = {"loss.margin": (0.1, 0.2), "sampler.samples": [2, 4, 8]}\n'
    ranges = own_method(written(tmp_path, text), {}).ranges
    assert (ranges["loss.margin"].low, ranges["loss.margin"].high) == (0.1, 0.2)
    assert ranges["sampler.samples"].choices == (2, 4, 8)
    assert "loss.weight" in ranges


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "expected one loss in it, .* got none"),
        (GOOD + CLASS, r"got cosine_pairs, Means; write .*mine.py:cosine_pairs"),
        (
            "def f(embeddings, labels, margin): return 0",
            "expected a default of the option 'margin'",
        ),
        (GOOD + 'RECIPE = {"optimizer.rl": 1}', "optimizer.rl: unknown key 'rl'"),
        (GOOD + 'RANGES = {"loss.margin": 3}', "RANGES: loss.margin: expected"),
    ],
)
def test_a_file_without_a_clear_loss_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        own_method(written(tmp_path, text), {})


def test_a_value_that_is_no_scalar_is_an_error(tmp_path: Path) -> None:
    text = "def f(embeddings, labels): return embeddings"
    with pytest.raises(ValueError, match=r"mine.py: expected a scalar tensor of f, got"):
        run(written(tmp_path, text), tmp_path / "out", [])


def test_an_unknown_method_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a Python file with a loss or one of"):
        benchmark("contrastiv", pictures(12))
    with pytest.raises(ValueError, match="against: expected one of"):
        run(written(tmp_path, GOOD), tmp_path / "out", [], against=["contrastiv"])


@pytest.mark.parametrize("name", shipped_names())
def test_the_ends_of_every_range_are_valid(name: str) -> None:
    recipe = read_recipe(name)
    for key, span in search_space(recipe).items():
        assert 0 < span.low < span.high, key
    method = shipped_method(name, {})
    for trial in (1, 2):
        assert set(draw(method, trial, seed=0)) == set(method.ranges)


def test_the_verdict_needs_the_classes_and_the_seeds() -> None:
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(40), 5)
    base = rng.uniform(0, 1, 200)

    def method(shift: float, spread: float) -> list[dict[str, Any]]:
        return [{"map@r": base + shift + each} for each in (spread, 0.0, -spread)]

    found = compared_rows(
        {"mine": method(0.2, 0.0), "worse": method(0.0, 0.01), "better": method(0.4, 0.01)}, classes
    )
    assert [found[name]["verdict"] for name in ("worse", "better")] == ["above", "below"]
    apart = compared_rows({"mine": method(0.02, 0.3), "other": method(0.0, -0.3)}, classes)
    assert apart["other"]["verdict"] == "not told apart"
    assert holm([0.02, 0.02, 0.9]) == pytest.approx([0.06, 0.06, 0.9])


def test_features_of_a_frozen_backbone_are_computed_once(tmp_path: Path) -> None:
    photos = photo_folder(tmp_path)
    file, said = written(tmp_path, GOOD), []
    options = {**SMALL, "against": "contrastive", "dim": 8, "out": tmp_path / "out"}
    table = benchmark(file, photos, **options, whole_network=False, cache="none")
    assert table.settings["frozen"]
    kept = (tmp_path / "out" / "features" / "train.safetensors").stat().st_mtime_ns
    again = benchmark(file, photos, **options, whole_network=False, status=said.append)
    assert again.rows == table.rows
    assert again.starts == table.starts
    assert (tmp_path / "out" / "features" / "train.safetensors").stat().st_mtime_ns == kept


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    words = [
        written(tmp_path, GOOD),
        photo_folder(tmp_path),
        "--against",
        "contrastive",
        "--trials",
        "1",
    ]
    words += ["--seeds", "1", "--steps", "2", "--dim", "4", "--out", tmp_path / "out"]
    assert "| **mine** |" in command_line.run("benchmark", *words, "--device", "cpu")
    wrong = command_line.run("benchmark", tmp_path / "no.py", "digits", code=2)
    assert wrong.startswith("loss: expected a Python file with a loss or one of adacos")
