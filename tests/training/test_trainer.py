"""kinspace.train: what it takes, and that how it computes does not change what it computes."""

import inspect
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import kinspace
from kinspace.data import TransformSettings, augmented_views, cache_in_memory
from kinspace.data.named_splits import split_names
from kinspace.models import make_embedder
from kinspace.models.projections import lda_projection
from kinspace.recipes import read_recipe, with_changes
from kinspace.training import RunSettings
from kinspace.training.components import original_densities, supports_channels_last
from kinspace.training.data_parts import DataPart
from kinspace.training.embedding import embed_all
from kinspace.training.run_folder import read_checkpoint
from small_trainings import NET, OPTIONS, QUICK, losses, net, pictures, trained, trained_net
from training_commands import assert_same_run

CPU = torch.device("cpu")
WIDE = {"model.options": {"width": 16, "size": 16}}  # narrower nets are not put in channels-last


def test_a_run_leaves_what_it_promises(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    names = {"run.json", "recipe.toml", "metrics.jsonl", "results.json", "run.lock"}
    names |= {f"{name}.safetensors" for name in ("start", "last", "model")} | {"embeddings"}
    assert {path.name for path in run.folder.iterdir()} == names
    results = run.results
    for who in ("pixels", "untrained", "final", "selected"):
        assert 0 <= results[who]["recall@1"] <= 1
    assert results["selected_step"] in (0, 3, 6)
    recalls = {row["step"]: row["recall@1"] for row in run.metrics if "recall@1" in row}
    assert recalls.keys() == {0, 3, 6}
    assert results["validation_recall@1"] == max(recalls.values())
    assert recalls[results["selected_step"]] == max(recalls.values())
    # the recipe in the folder trains the same run again
    again = kinspace.train(
        pictures(),
        method=str(run.folder / "recipe.toml"),
        out=tmp_path / "again",
        log_every=1,
        **OPTIONS,
    )
    assert losses(again) == losses(run)


def test_the_baselines_can_be_left_out(tmp_path: Path) -> None:
    whole, bare = trained(tmp_path / "whole"), trained(tmp_path / "bare", baselines=False)
    left_out = {"pixels", "untrained", "seconds"}
    kept = {name: value for name, value in whole.results.items() if name not in left_out}
    assert {name: value for name, value in bare.results.items() if name != "seconds"} == kept


def test_the_chosen_weights_are_those_that_were_judged(tmp_path: Path) -> None:
    run = trained(tmp_path, changes={"optimizer.lr": 0.01})
    model = make_embedder(run.about["model"])
    model.load_state_dict(read_checkpoint(run.folder / "model.safetensors")[0])
    data = pictures()
    held_out = [data.class_names.index(name) for name in run.about["classes"]["validation"]]
    places = torch.isin(data.labels, torch.tensor(held_out)).nonzero().flatten()
    settings = TransformSettings(**run.about["transform"])
    part = data.subset(places)
    embedded = embed_all(model, DataPart(part, settings, CPU, cache_in_memory(part, settings)))
    unit = nn.functional.normalize(embedded.double(), dim=1)
    table = (unit @ unit.T).fill_diagonal_(-2)
    recall = (part.labels[table.argmax(1)] == part.labels).double().mean()
    assert run.results["validation_recall@1"] == pytest.approx(float(recall))


def test_a_method_is_a_name_a_file_or_a_recipe(tmp_path: Path) -> None:
    by_name = trained(tmp_path / "name")
    recipe = with_changes(read_recipe("contrastive"), QUICK)
    (tmp_path / "mine.toml").write_text(recipe.to_toml())
    for number, method in enumerate((recipe, str(tmp_path / "mine.toml"))):
        run = kinspace.train(
            pictures(), method=method, out=tmp_path / str(number), log_every=1, **OPTIONS
        )
        assert losses(run) == losses(by_name)
    other = losses(trained(tmp_path / "seed", seed=1))
    assert other != losses(by_name)


def test_what_is_misspelt_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown recipe 'contrastiv'; did you mean 'contrastive'"):
        trained(tmp_path, method="contrastiv")
    with pytest.raises(ValueError, match=r"nowhere\.toml: cannot be read: No such file"):
        trained(tmp_path, method="nowhere.toml")
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        trained(tmp_path, sed=1)
    with pytest.raises(ValueError, match=r"changes: loss\.margn: .* did you mean 'margin'"):
        trained(tmp_path, changes={"loss.margn": 1})
    with pytest.raises(ValueError, match=r"precision: expected one of .*, got 'half'"):
        trained(tmp_path, precision="half")
    with pytest.raises(ValueError, match="device: expected cpu, cuda or cuda:1, got 'gpu'"):
        trained(tmp_path, device="gpu")
    with pytest.raises(ValueError, match="workers: expected at least 0, got -1"):
        trained(tmp_path, workers=-1)
    with pytest.raises(ValueError, match="resume: expected the run folder in `out`"):
        kinspace.train(pictures(), resume=True, **OPTIONS)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device: expected one that is there, got 'cuda'; GPUs: 0"):
        trained(tmp_path, device="cuda")


def test_any_module_learns_on_any_data_of_inputs_and_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    # three columns tell the classes apart, six louder ones do not
    labels = torch.arange(480) % 24
    signal = torch.randn(24, 3)[labels] + 0.1 * torch.randn(480, 3)
    inputs = torch.cat([signal, 4 * torch.randn(480, 6)], 1)
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 8))
    changes = {"schedule.steps": 150, "validation.every": 50, "optimizer.lr": 0.01}
    run = kinspace.train(
        TensorDataset(inputs, labels + 7),
        model=model,
        method="triplet",
        changes=changes,
        out=tmp_path,
        split="zero_shot",
        device="cpu",
        quiet=True,
    )
    assert run.about["classes"]["test"] == [str(label) for label in range(19, 31)]
    found = run.results
    assert found["selected"]["recall@1"] > found["pixels"]["recall@1"] + 0.1
    assert found["selected"]["recall@1"] > found["untrained"]["recall@1"] + 0.1


def test_a_model_that_returns_no_vectors_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"model: expected vectors \(batch, dim\), got \(2, 2, 3\)"
    ):
        trained_net(tmp_path / "run", nn.Unflatten(1, (2, 3)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_to_nearly_the_same(precision: str, tmp_path: Path) -> None:
    full = losses(trained(tmp_path / "full"))
    half = losses(trained(tmp_path / "half", precision=precision))
    assert half != full
    assert half == pytest.approx(full, rel=0.1)


def test_micro_batches_train_to_the_same(tmp_path: Path) -> None:
    whole = losses(trained_net(tmp_path / "whole", net()))
    for size in (1, 7):
        parts = losses(trained_net(tmp_path / str(size), net(), micro_batch=size))
        assert parts == pytest.approx(whole, rel=1e-4)


def test_channels_last_is_only_a_layout(tmp_path: Path) -> None:
    found = [
        losses(trained(tmp_path / str(last), channels_last=last, changes=WIDE))
        for last in (True, False)
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_a_net_that_channels_last_would_crash_is_not_put_in_it(tmp_path: Path) -> None:
    assert trained(tmp_path / "narrow").about["settings"]["channels_last"] is False
    wide = trained(tmp_path / "wide", changes={**WIDE, "schedule.steps": 1})
    assert wide.about["settings"]["channels_last"] is True
    assert supports_channels_last(nn.Conv2d(4, 8, 3, stride=2), CPU)
    assert supports_channels_last(nn.Conv2d(4, 8, 1, stride=2), torch.device("cuda"))


@pytest.mark.slow
def test_compiled_it_trains_to_the_same(tmp_path: Path) -> None:
    plain = losses(trained(tmp_path / "plain", changes=WIDE))
    compiled = losses(trained(tmp_path / "compiled", changes=WIDE, compile=True))
    assert compiled == pytest.approx(plain, rel=1e-3)


def test_a_resting_backbone_does_not_move(tmp_path: Path) -> None:
    run = trained(tmp_path, changes={"schedule.freeze_backbone": 6, "validation.fraction": 0.0})
    start, _ = read_checkpoint(tmp_path / "start.safetensors")
    end, _ = read_checkpoint(run.folder / "model.safetensors")
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    learnt = {name for name in moved if "running_" not in name and "num_batches" not in name}
    assert learnt
    assert all(name.startswith("head.") for name in learnt)


def test_the_rate_follows_its_schedule(tmp_path: Path) -> None:
    changes = {"schedule.kind": "step", "schedule.milestones": [2, 4], "schedule.warm_up": 2}
    run = trained(tmp_path, changes=changes | {"optimizer.lr": 0.01, "optimizer.head": 1.0})
    rates = [row["lr"] for row in run.metrics if "lr" in row]
    assert rates == pytest.approx([0.005, 0.01, 1e-3, 1e-3, 1e-4, 1e-4])


def test_the_average_of_the_weights_is_what_is_judged(tmp_path: Path) -> None:
    changes = {"optimizer.ema": 0.9, "validation.fraction": 0.0}
    run = trained(tmp_path, changes=changes)
    last, _ = read_checkpoint(run.folder / "last.safetensors")
    chosen, _ = read_checkpoint(run.folder / "model.safetensors")
    assert all(torch.equal(value, last[f"average.{name}"]) for name, value in chosen.items())
    assert not all(torch.equal(value, last[f"model.{name}"]) for name, value in chosen.items())


def test_several_views_are_the_mean_of_their_embeddings(tmp_path: Path) -> None:
    data, settings = pictures(classes=2), TransformSettings(size=16, resize=20)
    model = make_embedder({"backbone": {"name": "small", "options": NET["model.options"]}}).eval()
    cache = cache_in_memory(data, settings)
    found = embed_all(model, DataPart(data, settings, CPU, cache), batch_size=5, views=3)
    squares = cache.squares(list(range(len(data))))
    with torch.no_grad():
        expected = torch.stack([model(v) for v in augmented_views(squares, 3, settings)]).mean(0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    runs = [
        trained(tmp_path / str(n), changes={"test.views": n, "transform.rescale": 0.5})
        for n in (1, 8)
    ]
    assert losses(runs[0]) == losses(runs[1])  # of the test only
    assert runs[0].results["selected"]["map"] != runs[1].results["selected"]["map"]


def test_original_densities_are_those_of_a_loop_over_the_features() -> None:
    data, settings = pictures(), TransformSettings(size=16, resize=16)
    model = make_embedder(
        {"backbone": {"name": "small", "options": NET["model.options"]}, "head": {"dim": 3}}
    )
    feed = DataPart(data, settings, CPU, cache_in_memory(data, settings))
    found = original_densities(model, feed, batch_size=7)
    features = embed_all(model, feed, what="features").double()
    assert features.shape[1] == 32  # before the embedding layer
    for label in range(data.num_classes):
        own = [row / row.norm() for row in features[data.labels == label]]
        center = sum(own) / len(own)
        spread = sum(float((row - center).square().sum()) for row in own) / len(own)
        assert float(found[label]) == pytest.approx(spread, rel=1e-4)


def test_density_starts_from_the_features_before_the_first_step(tmp_path: Path) -> None:
    run = trained(tmp_path, method="density", changes={"warm_start.steps": 2})
    saved, _ = read_checkpoint(run.folder / "last.safetensors")
    start, _ = read_checkpoint(run.folder / "start.safetensors")
    model = make_embedder(run.about["model"])
    model.load_state_dict(start)
    data = pictures()
    classes = [data.class_names.index(name) for name in run.about["classes"]["train"]]
    places = torch.isin(data.labels, torch.tensor(classes)).nonzero().flatten()
    part, settings = data.subset(places), TransformSettings(**run.about["transform"])
    feed = DataPart(part, settings, CPU, cache_in_memory(part, settings))
    [original] = [value for name, value in saved.items() if name.endswith("density.original")]
    torch.testing.assert_close(original, original_densities(model, feed), rtol=1e-4, atol=1e-6)


def test_tensorboard_that_is_not_there_is_an_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'kinspace\[tensorboard\]'"):
        trained(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_run_json_says_what_was_run(tmp_path: Path) -> None:
    run = trained(tmp_path, seed=3)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about == run.about
    assert about["seed"] == about["settings"]["seed"] == 3
    assert about["recipe"]["loss"]["name"] == "contrastive"
    assert about["kinspace"] == kinspace.__version__


def test_kept_checkpoints_do_not_change_the_run(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"schedule.steps": 7, "warm_start.steps": 3}
    changes |= {"optimizer.ema": 0.9, "model.dropout": 0.3, "sampler.batch_size": 12}
    changes |= {"sampler.classes": None, "sampler.samples": None}
    options = {"changes": changes, "log_every": 2, "save_every": 4}
    plain = trained(tmp_path / "plain", method="proxy_anchor", **options)
    kept = trained(tmp_path / "kept", method="proxy_anchor", keep_every=2, **options)
    assert_same_run(plain.folder, kept.folder)
    assert not (plain.folder / "checkpoints").exists()
    # steps of the warm start count; the last step of each phase is kept too
    files = {path.name: path for path in (kept.folder / "checkpoints").iterdir()}
    assert sorted(files) == [f"step-{step:06}.safetensors" for step in (2, 3, 4, 6, 8, 10)]
    tensors, state = read_checkpoint(files["step-000010.safetensors"])
    assert state == {"step": 10, "phase": 1}
    last, _ = read_checkpoint(kept.folder / "last.safetensors")
    for name, value in tensors.items():  # the average of the weights is the model
        assert torch.equal(value, last[name.replace("model.", "average.")])
    assert "objective.loss.proxies" in tensors


def test_train_and_its_settings_have_the_same_defaults() -> None:
    settings = {field.name: field.default for field in fields(RunSettings)}
    for function in (kinspace.train, kinspace.tune):
        parameters = inspect.signature(function).parameters
        for name in settings.keys() & parameters.keys():
            assert parameters[name].default == settings[name]
    assert settings.keys() <= inspect.signature(kinspace.train).parameters.keys()


def test_a_head_starts_from_discriminants_of_the_training_pictures(tmp_path: Path) -> None:
    changes = {"model.start": "discriminants", "model.normalize": False, "validation.fraction": 0.0}
    run = trained(tmp_path / "run", changes=changes, split="stratified")
    model = make_embedder(run.about["model"])
    model.load_state_dict(read_checkpoint(run.folder / "start.safetensors")[0])
    data, settings = pictures(), TransformSettings(**run.about["transform"])
    part = split_names(data, "stratified", validation=0, seed=0)[0]
    feed = DataPart(part, settings, CPU, cache_in_memory(part, settings))
    pooled = embed_all(model, feed, what="features")
    weight, bias = lda_projection(pooled, part.labels, 8)
    scale = model.head.linear.weight.norm() / weight.norm()  # norms start at 1
    torch.testing.assert_close(model.head.linear.weight, scale * weight, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.head.linear.bias, scale * bias, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="start: 'discriminants' expects one embedding layer"):
        trained(tmp_path / "none", changes={"model.start": "discriminants", "model.dim": "none"})
    changes = {"model.start": "discriminants", "model.dim": 64}
    wide = trained(tmp_path / "wide", changes={**changes, "schedule.steps": 1})
    assert wide.recipe.model.dim == 32  # as many as the backbone has features
    assert any("32 dimensions in place of 64" in note for note in wide.about["notes"])
    with pytest.raises(ValueError, match="did you mean 'discriminants'"):
        trained(tmp_path / "misspelt", changes={"model.start": "discriminant"})
    assert {path.name for path in tmp_path.iterdir()} == {"run", "wide"}
