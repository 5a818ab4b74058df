"""Callbacks of a training: what they are called with, and the trackers that come with kinspace."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bundles import QUICK
from kinspace.run import Run
from kinspace.training import Callback, train

OPTIONS: dict[str, Any] = {"device": "cpu", "workers": 1, "quiet": True, "log_every": 2}


class Diary(Callback):
    """Writes down what it is called with."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rows: list[Mapping[str, Any]] = []
        self.results: Mapping[str, Any] = {}

    def started(self, run: Run) -> None:
        assert run.about["data"] == "digits"
        self.calls.append("started")

    def logged(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)

    def finished(self, results: Mapping[str, Any]) -> None:
        self.results = results
        self.calls.append("finished")

    def close(self) -> None:
        self.calls.append("closed")


class Stop(Callback):
    """Fails at the second row; it has the methods it needs alone."""

    def __init__(self) -> None:
        self.rows = 0

    def logged(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        if self.rows == 2:
            raise ValueError("that is enough")


def trained(out: Path, **options: Any) -> Run:
    return train("digits", method="triplet", changes=QUICK, out=out, **OPTIONS, **options)


def test_a_callback_is_given_the_rows_and_the_results_of_the_run_folder(tmp_path: Path) -> None:
    diary = Diary()
    run = trained(tmp_path / "run", callbacks=[diary])
    assert diary.calls == ["started", "finished", "closed"]
    assert [dict(row) for row in diary.rows] == run.metrics
    assert dict(diary.results) == run.results


def test_a_callback_that_fails_ends_the_training_and_the_others_are_closed(tmp_path: Path) -> None:
    diary = Diary()
    with pytest.raises(ValueError, match="that is enough"):
        trained(tmp_path / "run", callbacks=[diary, Stop()])
    assert diary.calls == ["started", "closed"]
    assert not Run(tmp_path / "run").finished


@pytest.mark.parametrize(("name", "module"), [("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_tracker_that_is_not_installed_is_an_error_before_the_run(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"pip install 'kinspace\[{name}\]'"):
        trained(tmp_path / "run", callbacks=[name])
    assert not (tmp_path / "run").exists()


def test_an_unknown_name_is_an_error_with_the_names_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="callbacks: unknown callback 'wandbb'; did you mean 'wa"):
        trained(tmp_path / "run", callbacks=["wandbb"])


def test_tensorboard_has_the_loss_of_every_row(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = trained(tmp_path / "run", callbacks=["tensorboard"])
    log = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    rows = [row for row in run.metrics if "loss" in row]
    assert [event.step for event in log.Scalars("loss")] == [row["step"] for row in rows]


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_offline_has_the_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = trained(tmp_path / "run", callbacks=["wandb"])
    (log,) = (run.folder / "wandb").glob("offline-run-*/*.wandb")
    assert b"test/recall@1" in log.read_bytes()


@pytest.mark.filterwarnings("ignore")  # of the libraries that it stands on
def test_mlflow_has_rows_parameters_and_measures(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    from kinspace.training.callbacks import MLflow

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = trained(tmp_path / "run", callbacks=[MLflow(tracking_uri=address)])
    client = mlflow.MlflowClient(address)
    experiment = client.get_experiment_by_name("kinspace").experiment_id
    (found,) = client.search_runs([experiment])
    assert found.info.status == "FINISHED"
    assert found.data.params["recipe.loss.name"] == "triplet"
    recall = run.results["selected"]["recall@1"]
    assert found.data.metrics["test/recall_at_1"] == pytest.approx(recall)
    rows = [row for row in run.metrics if "loss" in row]
    assert len(client.get_metric_history(found.info.run_id, "loss")) == len(rows)
