"""Whole data sets: tables in shards, galleries of other data, and the searches of a run."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinspace
from bundles import bare_run, digits, run_with_gallery
from kinspace.data import from_folder
from kinspace.embeddings import EmbeddingTable
from kinspace.inference import EmbeddingModel, embed_dataset, embed_to_file, index_run
from kinspace.inference import dataset_embedding as dataset_module
from training_commands import ENVIRONMENT


@pytest.fixture
def model(tmp_path: Path) -> EmbeddingModel:
    return kinspace.load(bare_run(tmp_path), "cpu")


def some_files(folder: Path, count: int = 24) -> Path:
    for place in range(count):
        path = folder / f"kind {int(digits().labels[place])}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        digits().pictures.read(place).save(path)
    return folder


def test_a_table_has_what_is_known_of_each_picture(model: EmbeddingModel, tmp_path: Path) -> None:
    data = from_folder(some_files(tmp_path / "files"))
    seen: list[tuple[int, int]] = []
    table = embed_dataset(model, data, batch_size=7, progress=lambda *done: seen.append(done))
    assert seen == [(7, 24), (14, 24), (21, 24), (24, 24)]
    names = [data.pictures.name(i) for i in range(24)]
    assert table.ids == tuple(names)
    assert names[0] == "kind 0/0.png"  # where the folder is does not matter
    assert table.paths == tuple(str(tmp_path / "files" / name) for name in names)
    assert table.class_names == data.class_names
    assert (table.labels == data.labels.numpy()).all()
    truth = model.encode([tmp_path / "files" / name for name in names])
    assert table.vectors == pytest.approx(truth, abs=1e-6)


def test_a_stopped_embedding_goes_on_with_the_shards_that_are_missing(
    model: EmbeddingModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = digits().subset(range(50))
    whole = embed_dataset(model, data)
    calls: list[list[int]] = []
    real = dataset_module._embedded

    def counted(model: EmbeddingModel, dataset: Any, rows: Any, *rest: Any, **options: Any) -> Any:
        calls.append(list(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(model, dataset, rows, *rest, **options)

    monkeypatch.setattr(dataset_module, "_embedded", counted)
    out = tmp_path / "table.npz"
    with pytest.raises(KeyboardInterrupt):
        embed_to_file(model, data, out, shard=12)
    assert not out.exists()
    embed_to_file(model, data, out, shard=12)
    starts = [rows[0] for rows in calls]
    assert starts == [0, 12, 24, 24, 36, 48]
    table = EmbeddingTable.load(out)
    assert table.ids == whole.ids
    assert table.vectors == pytest.approx(whole.vectors, abs=1e-6)
    assert (table.labels == whole.labels).all()
    assert not out.with_name("table.npz.parts").exists()


def test_shards_of_another_model_or_data_are_refused(
    model: EmbeddingModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = digits().subset(range(30)), tmp_path / "table.npz"
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda folder: None)
        embed_to_file(model, data, out, shard=10)
    out.unlink()
    with pytest.raises(ValueError, match="got some of other pictures; remove the folder"):
        embed_to_file(model, digits().subset(range(31)), out, shard=10)
    with pytest.raises(ValueError, match="got some of other shard; remove the folder"):
        embed_to_file(model, data, out, shard=11)
    next(model.module.parameters()).data += 1
    with pytest.raises(ValueError, match="got some of other weights; remove the folder"):
        embed_to_file(model, data, out, shard=10)


def test_a_table_is_not_written_over(model: EmbeddingModel, tmp_path: Path) -> None:
    (tmp_path / "there.npz").touch()
    for name in ("there.npz", "table.txt", "no folder/table.npz"):
        with pytest.raises(ValueError, match=r"expected a (new )?file"):
            embed_to_file(model, digits().subset(range(3)), tmp_path / name)


def test_a_picture_that_cannot_be_read_is_named(model: EmbeddingModel, tmp_path: Path) -> None:
    files = some_files(tmp_path / "files")
    (files / "kind 3" / "3.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"kind 3/3.png: empty file; `kinspace check` lists all"):
        embed_dataset(model, from_folder(files))


@pytest.mark.slow
def test_two_processes_write_the_table_of_one(model: EmbeddingModel, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    out, files = tmp_path / "table.npz", some_files(tmp_path / "files")
    started = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    started += ["--master-port", port, "-m", "kinspace", "embed", str(model.folder), str(files)]
    environment = {**ENVIRONMENT, "PYTHONWARNINGS": "default", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*started, "-o", str(out), "--shard", "5", "--device", "cpu"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("24 vectors of 8 numbers") == 1
    table, alone = EmbeddingTable.load(out), embed_dataset(model, from_folder(files))
    assert table.ids == alone.ids
    assert table.vectors == pytest.approx(alone.vectors, abs=1e-6)


def test_other_data_becomes_the_gallery_with_thresholds_of_its_own(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    before = kinspace.load(folder, "cpu").thresholds
    index_run(folder, some_files(tmp_path / "files"), replace_gallery=True)
    model = kinspace.load(folder, "cpu")
    assert len(model.table) == 24
    assert model.table.attribute_names == ()
    assert model.thresholds is not None
    assert model.thresholds != before
    assert model.thresholds.pictures == 24
    assert model.search(tmp_path / "files" / "kind 4" / "4.png", 1)[0].id == "kind 4/4.png"


def test_a_gallery_of_too_few_classes_has_no_thresholds(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    assert (folder / "thresholds.json").exists()
    model = index_run(
        folder, digits().subset((digits().labels < 2).nonzero().flatten()), replace_gallery=True
    )
    assert model.thresholds is None
    assert not (folder / "thresholds.json").exists()
    verdict = model.classify(digits().pictures.read(0))
    assert (verdict.known, verdict.confidence, verdict.neighbors[0].same) == (True, None, None)


def test_without_validation_classes_the_test_classes_set_the_thresholds(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    about = json.loads((folder / "run.json").read_text())
    about["recipe"]["validation"]["fraction"] = 0
    about["classes"]["train"] = [str(i) for i in range(5)]
    sizes = digits().labels.bincount()
    about["pictures"] = {"train": int(sizes[:5].sum()), "test": about["pictures"]["test"]}
    del about["classes"]["validation"]
    (folder / "run.json").write_text(json.dumps(about))
    results = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps(results | {"selected_step": 10}))
    model = index_run(folder, strangers=0.2)
    assert model.thresholds is not None
    assert (model.thresholds.classes, model.thresholds.held_out) == (5, True)
    assert model.thresholds.strangers == 0.2
    assert "part=train" in model.table.attribute_names


def test_data_that_has_moved_is_asked_for(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"data": "photos/gone"}))
    with pytest.raises(ValueError, match=r"its data cannot be opened .*; say where it is now"):
        index_run(folder)
    model = index_run(folder, "digits")  # the same pictures from elsewhere have their parts
    assert model.thresholds is not None


@pytest.mark.parametrize("backend", ["faiss", "milvus"])
def test_every_search_finds_the_same_in_a_run(backend: str, tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    picture = digits().pictures.read(11)
    where = {"class": ["1", "8"], "part=test": True}
    exact = kinspace.load(folder, "cpu")
    with pytest.raises(ValueError, match=r"has a gallery; add pictures to it \(kinspace add"):
        index_run(folder, backend=backend)
    index_run(folder, backend=backend, replace_gallery=True)
    index_run(folder, backend=backend, replace_gallery=True)  # again, in the place of the first
    model = kinspace.load(folder, "cpu")
    assert type(model.index).__name__.lower().startswith(backend)
    for options in ({}, {"where": where}):
        found, truth = (each.search(picture, 8, **options) for each in (model, exact))
        assert [near.id for near in found] == [near.id for near in truth]
        same = pytest.approx([near.similarity for near in truth], abs=1e-5)
        assert [near.similarity for near in found] == same
    model.add([picture.rotate(90)], "turned")
    model.save_gallery()
    again = kinspace.load(folder, "cpu")
    assert len(again.index) == len(again.table) == 1798
    assert again.search(picture.rotate(90), 1)[0].class_name == "turned"
    again.gallery = None
    index_run(folder, replace_gallery=True)  # the exact search takes its place
    assert not list(folder.glob("search*"))
    assert len(kinspace.load(folder, "cpu").table) == 1797


def test_a_gallery_of_truncated_vectors_is_searched_with_truncated_queries(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    whole = kinspace.load(folder, "cpu").table.vectors
    index_run(folder, replace_gallery=True, truncate_dim=5)
    model = kinspace.load(folder, "cpu")
    short = whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True)
    assert model.table.vectors == pytest.approx(short, abs=1e-5)
    picture = digits().pictures.read(11)
    assert model.encode(picture).shape == (1, 8)
    assert model.encode(picture, truncate_dim=5)[0] == pytest.approx(short[11], abs=1e-5)
    best = np.argsort(-(short @ short[11]), kind="stable")[:3].tolist()
    assert [near.row for near in model.search(picture, 3)] == best
    model.add([picture.rotate(90)], "turned")
    assert model.search(picture.rotate(90), 1)[0].class_name == "turned"
    for dim in (0, 9):
        with pytest.raises(ValueError, match=f"truncate_dim: expected 1 to 8, got {dim}"):
            model.encode(picture, truncate_dim=dim)
