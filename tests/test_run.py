"""Run: its parts, its model, and its embeddings, which are made once."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import kinspace
from kinspace.data import from_arrays, load_dataset
from kinspace.embeddings import EmbeddingTable
from kinspace.inference import embed_to_file, index_run
from kinspace.inference import run_embeddings as run_embeddings_module
from kinspace.report import write_report
from kinspace.run import Run, open_run
from kinspace.training.run_folder import read_checkpoint, write_checkpoint

QUICK: dict[str, Any] = {
    "model.options": {"width": 4, "size": 16},
    "model.dim": 6,
    "transform.size": 16,
    "transform.resize": 20,
    "schedule.steps": 4,
    "validation.every": 2,
    "validation.fraction": 0.4,
    "sampler.classes": 3,
    "sampler.samples": 4,
}
OPTIONS: dict[str, Any] = {"device": "cpu", "quiet": True, "workers": 1}


def write_pictures(folder: Path, classes: int = 10, each: int = 6) -> Path:
    rng = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"kind {label}").mkdir(parents=True)
        pattern = rng.integers(60, 200, (24, 20, 3))
        for number in range(each):
            noisy = (pattern + rng.integers(-50, 51, pattern.shape)).clip(0, 255)
            picture = Image.fromarray(noisy.astype(np.uint8))
            picture.save(folder / f"kind {label}" / f"{number}.png")
    return folder


def trained(photos: Path, out: Path, **changes: Any) -> Run:
    changes = QUICK | {f"test.{name}": value for name, value in changes.items()}
    return kinspace.train(
        str(photos), method="triplet", changes=changes, out=out, split="zero_shot", **OPTIONS
    )


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "photos")


@pytest.fixture(scope="module")
def original(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(photos, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(original: Run, tmp_path: Path) -> Run:
    """A copy of the run with what its training left."""
    return open_run(shutil.copytree(original.folder, tmp_path / "run"))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pictures of each data set that goes through a model."""
    counted: list[int] = []
    real = run_embeddings_module.embed_all

    def counting(model: Any, part: Any, **options: Any) -> Any:
        counted.append(len(part.dataset))
        return real(model, part, **options)

    monkeypatch.setattr(run_embeddings_module, "embed_all", counting)
    return counted


def test_its_parts_are_those_of_the_training(run: Run) -> None:
    splits = run.splits()
    assert splits.own
    assert list(splits.parts) == ["train", "validation", "test"]
    assert {name: len(part) for name, part in splits.parts.items()} == run.about["pictures"]
    names = {name: list(part.class_names) for name, part in splits.parts.items()}
    assert names == run.about["classes"]
    assert run.splits(splits) is splits


def test_skipped_pictures_are_left_out(run: Run, photos: Path) -> None:
    about = json.loads((run.folder / "run.json").read_text())
    about["skipped"] = [["kind 9/0.png", "empty file"]]
    about["pictures"]["test"] -= 1
    (run.folder / "run.json").write_text(json.dumps(about))
    splits = run.splits()
    assert len(splits.test) == 29
    names = [splits.whole.pictures.name(place) for place in range(len(splits.whole))]
    assert "kind 9/0.png" not in names


def test_a_run_on_all_pictures_is_evaluated_on_those(photos: Path, tmp_path: Path) -> None:
    run = kinspace.train(
        str(photos), method="triplet", changes=QUICK, out=tmp_path / "run", split="all", **OPTIONS
    )
    splits = run.splits()
    assert splits.test is splits.train
    assert "test" not in splits.parts
    assert "nothing was kept for a test" in splits.notes[0]
    assert run.embeddings("test").ids == run.embeddings("train").ids
    with pytest.raises(ValueError, match="part: expected one of"):
        run.embeddings("validate")


def test_the_training_leaves_the_embeddings_of_the_test_part(run: Run, passes: list[int]) -> None:
    table = run.embeddings("test")
    assert passes == []
    recall = kinspace.evaluation.recall_at_k(table.vectors, table.labels, (1,))[1]
    assert recall == pytest.approx(run.results["selected"]["recall@1"])


def test_embeddings_are_made_once_for_evaluation_report_and_index(
    run: Run, passes: list[int], tmp_path: Path
) -> None:
    sizes = run.about["pictures"]
    kinspace.evaluate(run)
    every = [sizes["test"], sizes["test"], sizes["train"], sizes["validation"]]
    assert passes == every  # untrained, pixels; the training left those of the model
    write_report(run, out=tmp_path / "report", checked=False)
    index_run(run)
    assert passes == every


def test_all_parts_come_in_the_order_of_the_data(run: Run) -> None:
    table, splits = run.embeddings("all"), run.splits()
    assert len(table) == 60
    assert table.class_names == splits.whole.class_names
    model = run.model("cpu")
    some = [0, 7, 33, 59]
    assert table.paths is not None
    found = model.encode([table.paths[place] for place in some])
    assert found == pytest.approx(table.vectors[some], abs=1e-6)


def test_other_weights_are_embedded_again(run: Run, passes: list[int]) -> None:
    before = run.embeddings("test")
    tensors, state = read_checkpoint(run.folder / "model.safetensors")
    tensors["head.linear.weight"] *= torch.linspace(0.5, 2, 6)[:, None]
    write_checkpoint(run.folder / "model.safetensors", tensors, state)
    after = run.embeddings("test")
    assert passes == [30]
    assert not np.allclose(after.vectors, before.vectors, atol=1e-3)


def test_changed_pictures_are_embedded_again(
    run: Run, photos: Path, passes: list[int], tmp_path: Path
) -> None:
    mine = shutil.copytree(photos, tmp_path / "photos")
    changed = mine / "kind 9" / "3.png"
    Image.new("RGB", (20, 24), "red").save(changed)
    before, after = run.embeddings("test"), run.embeddings("test", data=str(mine))
    assert passes == [30]
    differ = [
        name
        for name, one, other in zip(after.ids, before.vectors, after.vectors, strict=True)
        if not np.allclose(one, other, atol=1e-5)
    ]
    assert differ == ["kind 9/3.png"]


def test_moved_pictures_are_found_and_not_embedded_again(
    run: Run, photos: Path, passes: list[int], tmp_path: Path
) -> None:
    moved = shutil.copytree(photos, tmp_path / "moved")
    before, after = run.embeddings("test"), run.embeddings("test", data=str(moved))
    assert passes == []
    assert after.ids == before.ids
    assert after.paths is not None
    assert all(path.startswith(str(moved)) and Path(path).is_file() for path in after.paths)


def test_another_data_set_is_one_part_beside_the_own(run: Run, passes: list[int]) -> None:
    images = np.random.default_rng(1).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    other = from_arrays(images, np.arange(12) % 3)
    splits = run.splits(other)
    assert not splits.own
    assert list(splits.parts) == ["test"]
    assert "other data than it was made of" in splits.notes[0]
    table = run.embeddings("test", data=other)
    assert len(table) == 12
    assert table.paths is None
    run.embeddings("test", data=splits)
    run.embeddings("test")
    assert passes == [12]
    with pytest.raises(ValueError, match="part: expected one of test, all, got 'train'"):
        run.embeddings("train", data=other)


def test_inputs_without_a_fingerprint_are_not_kept(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(60, 5), torch.arange(60) % 6)
    other = torch.utils.data.TensorDataset(torch.randn(60, 5), torch.arange(60) % 6)
    changes = {"schedule.steps": 2, "validation.fraction": 0}
    run = kinspace.train(
        data, model=torch.nn.Linear(5, 3), changes=changes, out=tmp_path / "run", **OPTIONS
    )
    assert not (run.folder / "embeddings").exists()
    one, two = (
        run.embeddings(data=each, device="cpu", module=torch.nn.Linear(5, 3))
        for each in (data, other)
    )
    assert not np.allclose(one.vectors, two.vectors)


@pytest.mark.parametrize(
    "test",
    [{"views": 1}, {"views": 4}, {"mirror": True, "scales": [1.0, 1.25]}],
    ids=["one view", "four views", "mirror and scales"],
)
def test_a_picture_has_the_vector_of_its_row(
    test: dict[str, Any], photos: Path, tmp_path: Path
) -> None:
    run = trained(photos, tmp_path / "run", **test)
    left = run.embeddings("test")
    shutil.rmtree(run.folder / "embeddings")
    made = run.embeddings("test", device="cpu")
    assert made.vectors == pytest.approx(left.vectors, abs=1e-6)
    assert np.linalg.norm(made.vectors, axis=1) == pytest.approx(np.ones(30), abs=1e-6)
    assert made.paths is not None
    model = kinspace.load(run.folder, "cpu")
    assert model.encode(list(made.paths)) == pytest.approx(made.vectors, abs=1e-6)
    assert model.encode(made.paths[3]) == pytest.approx(made.vectors[3:4], abs=1e-6)
    searched = index_run(run, device="cpu")
    assert searched.search(made.paths[3], 1)[0].id == made.ids[3]
    assert searched.search(made.paths[3], 1)[0].similarity == pytest.approx(1, abs=1e-5)
    if test.get("views", 1) > 1:
        model.views, center = 1, model.encode(made.paths[3])
        assert not np.allclose(model.encode(made.paths[3]), center, atol=1e-4)


def test_a_report_of_an_embedded_folder_shows_its_pictures(
    run: Run, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    embed_to_file(run.model("cpu"), load_dataset("photos"), tmp_path / "table.npz")
    monkeypatch.chdir(tmp_path)
    table = EmbeddingTable.load(tmp_path / "table.npz")
    assert table.ids[0] == "kind 0/0.png"
    assert table.paths is not None
    assert table.paths[0] == str(photos / "kind 0/0.png")
    page = write_report("table.npz", out=tmp_path / "page").read_text()
    assert page.count("data:image/jpeg") > 10
