"""The search for settings: on held-out training classes alone, repeatable, resumed, never worse."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import TensorDataset

import kinspace
from kinspace.data import Dataset, from_arrays
from kinspace.models import DEFAULT_BACKBONE
from kinspace.recipes import read_recipe, with_changes
from kinspace.report import write_report
from kinspace.run import Run, open_run
from kinspace.training.candidates import Candidate, Point, better, replaces
from kinspace.training.components import choose_backbone, make_model
from kinspace.training.frozen import freeze
from kinspace.training.trials import Trials, fresh_model
from small_trainings import NET, OPTIONS, pictures, trained, vectors
from training_commands import run_here

SEARCH = {"schedule.steps": 16, "search.budget": 3.0, "sampler.classes": 2, "validation.every": 8}


def searched(out: Path, data: Any = None, method: str = "contrastive", **options: Any) -> Run:
    changes = SEARCH | options.pop("changes", {})
    return trained(out, data, method, changes=changes, **options)


def plain(run: Run) -> dict[str, Any]:
    """selection.json without the seconds."""
    found = dict(run.selection or {})
    found["candidates"] = [{**c, "seconds": 0} for c in found["candidates"]]
    return found


def point(step: int, recall: list[float], precision: list[float]) -> Point:
    classes = torch.arange(len(recall)) // 4
    return Point(step, torch.tensor(recall), torch.tensor(precision), classes)


def test_recall_decides_then_precision_then_nothing() -> None:
    low = point(1, [0, 0, 0, 1] * 8, [0.1] * 32)
    high = point(2, [0, 1, 1, 1] * 7 + [0, 0, 0, 1], [0.1] * 32)
    precise = replace(low, precision=low.precision + 0.2)
    assert (better(high, low), better(low, high)) == (1, -1)
    assert (better(precise, low), better(low, precise)) == (1, -1)
    assert better(low, low) == 0
    # what one class gains and another loses is chance, however many pictures they have
    turned = point(3, [1, 1, 1, 1, 0, 0, 0, 0] + [0, 0, 0, 1] * 6, [0.1] * 32)
    assert better(turned, low) == 0
    one = point(3, [0, 1, 1, 1] + [0, 0, 0, 1] * 7, [0.1] * 32)
    assert better(one, low, errors=2.0) == 0
    assert better(high, low, errors=2.0) == 1


def test_of_equal_steps_the_more_precise_and_then_the_last_is_best() -> None:
    recall = [1.0, 0.0, 1.0, 1.0]
    equal = [point(step, recall, [0.5] * 4) for step in (1, 2, 4)]
    assert Candidate("a", "training", {}, tuple(equal), 0.0).best.step == 4
    precise = [equal[0], point(2, recall, [0.6] * 4), equal[2]]
    assert Candidate("a", "training", {}, tuple(precise), 0.0).best.step == 2


def test_a_poor_learning_rate_is_left_for_a_better_one(tmp_path: Path) -> None:
    # three columns tell the classes apart, six louder ones do not
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(960) % 48
    signal = torch.randn(48, 3, generator=generator)[labels]
    signal += 0.1 * torch.randn(960, 3, generator=generator)
    inputs = torch.cat([signal, 4 * torch.randn(960, 6, generator=generator)], 1)
    torch.manual_seed(0)
    run = kinspace.train(
        TensorDataset(inputs, labels),
        model=torch.nn.Sequential(torch.nn.Linear(9, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)),
        method="triplet",
        changes={"schedule.steps": 60, "optimizer.lr": 1e-4, "search.budget": 10.0},
        out=tmp_path / "run",
        **OPTIONS,
    )
    selection = plain(run)
    rates = [candidate["changes"]["optimizer.lr"] for candidate in selection["candidates"]]
    assert rates[:3] == [1e-4, 3e-4, 9e-4]
    assert selection["spent"] <= selection["budget"] == 600
    assert selection["trained"]
    assert run.recipe.optimizer.lr == selection["changes"]["optimizer.lr"] > 1e-4
    assert run.results["steps"] == run.recipe.schedule.steps
    assert run.results["selected"]["recall@1"] > run.results["untrained"]["recall@1"] + 0.05


def test_a_search_reads_no_test_pictures_and_is_the_same_twice(tmp_path: Path) -> None:
    data = pictures(10)
    images = np.stack([np.asarray(data[i][0]) for i in range(len(data))])
    tested = data.labels.numpy() >= 5  # the second half, by split zero_shot
    images[tested] = 255 - images[tested]
    other = from_arrays(images, data.labels.numpy())
    first, second = (
        searched(tmp_path / name, each, split="zero_shot")
        for name, each in (("one", data), ("two", other))
    )
    assert plain(first) == plain(second)
    held_out = {name for fold in plain(first)["folds"] for name in fold["held_out"]}
    assert held_out == set(first.about["classes"]["train"])  # every one once, in two folds
    assert not held_out & set(first.about["classes"]["test"])


def test_an_interrupted_search_goes_on_with_what_it_has_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = searched(tmp_path / "whole")
    files = sorted((whole.folder / "selection").iterdir())
    assert len(files) > 2
    tried: list[str] = []
    original = Trials.score

    def interrupted(self: Trials, name: str, *rest: Any, **lengths: int) -> Candidate:
        if len(tried) == 2:
            raise KeyboardInterrupt
        tried.append(name)
        return original(self, name, *rest, **lengths)

    with monkeypatch.context() as patch:
        patch.setattr(Trials, "score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "parts")
    parts = open_run(tmp_path / "parts")
    first, second = sorted((parts.folder / "selection").iterdir())
    second.write_bytes(second.read_bytes()[:-7])  # what a full disk leaves is tried again
    written = first.stat().st_mtime_ns
    kinspace.training.resume_training(parts, pictures())
    assert first.stat().st_mtime_ns == written
    assert plain(parts) == plain(whole)
    assert parts.results["selected"] == whole.results["selected"]


def test_with_few_classes_settings_are_those_of_the_recipe(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", pictures(6))
    assert run.selection is None
    assert any("too few to hold some out" in note for note in run.about["notes"])
    assert run.results["steps"] == 16


def test_a_start_that_no_training_improves_is_kept(tmp_path: Path) -> None:
    # plain colors: the features of an untrained net are right already, and training cannot help
    colors = np.random.default_rng(0).integers(0, 256, (12, 1, 1, 1, 3)).repeat(6, 1)
    images = colors.repeat(16, 2).repeat(16, 3).reshape(-1, 16, 16, 3).astype(np.uint8)
    data = from_arrays(images, np.repeat(np.arange(12), 6))
    run = searched(tmp_path / "run", data)
    selection = plain(run)
    assert not selection["trained"]
    assert "the start is kept" in selection["reason"]
    assert run.results["steps"] == 0
    assert run.results["selected"]["recall@1"] == 1.0
    assert "No training was better" in " ".join(run.verdict)
    model = run.model("cpu")
    features = make_model(run.recipe, seed=0)(torch.zeros(2, 3, 16, 16)).shape[1]
    assert model.encode(data[0][0]).shape == (1, features)


def test_given_steps_or_rate_leave_the_search_out() -> None:
    recipe = read_recipe("nra")
    assert recipe.search.budget == 3.0
    assert with_changes(recipe, {"loss.alpha": 5.0}).search.budget == 3.0
    for key, value in {"schedule.steps": 10, "optimizer.lr": 1e-3}.items():
        assert with_changes(recipe, {key: value}).search.budget == 0.0
        assert with_changes(recipe, {key: value, "search.budget": 2.0}).search.budget == 2.0
    assert read_recipe("nra_cub200").search.budget == 0.0  # the papers' settings are theirs


def test_photographs_get_the_pretrained_net_and_small_pictures_the_small_one() -> None:
    recipe = read_recipe("nra")
    for size, name in ((63, "small"), (64, DEFAULT_BACKBONE)):
        chosen = choose_backbone(recipe, pictures(2, 2, size))
        assert chosen.model.backbone == name
        assert chosen.model.pretrained == (name != "small")


def test_a_candidate_starts_from_the_backbone_of_the_run() -> None:
    recipe = with_changes(read_recipe("contrastive"), {"model.backbone": "small", **NET})
    model = make_model(recipe, seed=1)
    fresh = fresh_model(model, with_changes(recipe, {"model.dim": 5}), seed=0)
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, fresh.backbone.state_dict()[name])
    assert fresh.head.linear.out_features == 5


def test_frozen_training_leaves_the_backbone_as_it_is(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", changes={"model.freeze": True})
    start, end = (kinspace.training.run_folder.read_checkpoint(run.folder / name)[0]
                  for name in ("start.safetensors", "model.safetensors"))  # fmt: skip
    assert all(torch.equal(start[name], end[name]) for name in end if name.startswith("backbone"))
    assert not torch.equal(start["head.linear.weight"], end["head.linear.weight"])
    assert (run.folder / "features" / "train.safetensors").exists()
    model = make_model(run.recipe, seed=0)
    freeze(model)
    assert not any(p.requires_grad for p in model.backbone.parameters())


def test_a_final_training_has_all_classes_and_as_many_epochs(tmp_path: Path) -> None:
    data: Dataset = pictures()
    final = trained(tmp_path / "run", data, final=True)
    run = open_run(tmp_path / "run")
    assert final.folder == run.folder / "final"
    assert final.about["classes"] == {"train": list(data.class_names)}
    shares = run.about["pictures"]
    assert final.results["steps"] == round(6 * sum(shares.values()) / shares["train"])
    assert final.evaluated_by == run
    assert run.evaluated_by is None
    assert final.verdict[0].startswith("Trained on all 8 classes.")
    assert final.verdict[1:] == run.verdict
    written = (final.folder / "model.safetensors").stat().st_mtime_ns
    again = kinspace.training.resume_training(run, data, final=True)
    assert again.folder == final.folder
    assert (final.folder / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(ValueError, match="has trained on all classes already"):
        trained(tmp_path / "all", data, split="all", final=True)


def test_a_module_of_ones_own_is_trained_anew_for_the_final_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 5)
    changes = {"schedule.steps": 8, "warm_start.steps": 0}
    final = kinspace.train(
        vectors(), model=model, method="contrastive", changes=changes, out=tmp_path / "run",
        final=True, **OPTIONS,
    )  # fmt: skip
    starts = [
        kinspace.training.run_folder.read_checkpoint(folder / "start.safetensors")[0]["weight"]
        for folder in (tmp_path / "run", final.folder)
    ]
    assert torch.equal(*starts)


def test_the_command_says_what_it_found_and_what_is_next(photos: str, tmp_path: Path) -> None:
    arguments = ["--set", "model.options={width=4, size=16}", "--set", "model.dim=8"]
    arguments += [
        "--backbone",
        "small",
        "--set",
        "transform.size=16",
        "--set",
        "transform.resize=18",
    ]
    out = str(tmp_path / "run")
    done = run_here(
        photos, *arguments, "--steps", "12", "--budget", "2", "--device", "cpu", "--out", out
    )
    assert done.exit_code == 0, done.stderr
    assert "choosing settings on" in done.stderr
    assert "2 times a training" in done.stderr
    assert "backbone: small, not pretrained; 8 dimensions; on CPU" in done.stderr
    assert f"kinspace train --resume {out} --final" in done.stdout
    assert f"next: kinspace index {out}" in done.stdout
    done = run_here("--resume", out, "--final")
    assert done.exit_code == 0, done.stderr
    assert "Trained on all" in done.stdout
    assert f"kinspace index {out}/final" in done.stdout
    refused = run_here("--resume", out, "--budget", "1")
    assert refused.exit_code == 2
    assert "--budget" in refused.stderr


def test_the_default_tries_another_loss_on_frozen_features(tmp_path: Path) -> None:
    frozen = {"model.freeze": True, "model.pool": "avg"}
    run = searched(tmp_path / "default", method=None, changes=frozen)
    tried = {c["changes"].get("loss.name", "nra") for c in plain(run)["candidates"]}
    assert tried == {"nra", "proxy_nca"}
    run = searched(tmp_path / "named", method="nra", changes=frozen)
    assert all("loss.name" not in c["changes"] for c in plain(run)["candidates"])


def test_with_few_classes_a_backbone_that_has_learnt_is_kept(tmp_path: Path) -> None:
    recipe = with_changes(read_recipe("contrastive"), {**NET, "model.backbone": "small"})
    net = make_model(recipe, seed=1).backbone.get_submodule("trunk")
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    weights = {"model.weights": str(tmp_path / "net.safetensors")}
    run = searched(tmp_path / "run", pictures(6), changes=weights)
    assert not (run.selection or {})["trained"]
    assert "too few to tell whether a training is better" in (run.selection or {})["reason"]
    assert run.results["steps"] == 0
    assert run.results["selected"]["recall@1"] == run.results["untrained"]["recall@1"]
    assert "The classes are too few" in " ".join(run.verdict)
    page = write_report(run, data=pictures(6), checked=False)
    assert "too few to tell" in page.read_text(encoding="utf-8")
    trained_run = searched(tmp_path / "own", pictures(6), changes=weights | {"search.budget": 0.0})
    assert trained_run.results["steps"] == 16


def test_a_lower_recall_is_no_gain_however_precise_the_rest() -> None:
    start = point(0, [1.0] * 32, [0.1] * 32)
    assert replaces(point(9, [1.0] * 32, [0.9] * 32), start)
    assert not replaces(point(9, [0.0] + [1.0] * 31, [0.9] * 32), start)
    assert not replaces(start, start)
