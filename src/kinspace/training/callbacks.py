"""Callbacks: what else happens with the rows and results of a training.

run = kinspace.train("photos/", callbacks=["wandb"])                     # by name
run = kinspace.train("photos/", callbacks=[MLflow(experiment="moths")])  # with options
run = kinspace.train("photos/", callbacks=[MyCallback()])                # your own

A callback is called in the main process only, and an error that it raises ends the training, which
can be resumed. metrics.jsonl and results.json are written with or without callbacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kinspace._core import checks

if TYPE_CHECKING:
    from kinspace.run import Run

__all__ = ["CALLBACKS", "Callback", "MLflow", "TensorBoard", "WandB", "make_callbacks"]


class Callback(Protocol):
    """What a training calls; a class of your own may inherit the methods that do nothing.

    >>> class Printer(Callback):
    ...     def logged(self, row):
    ...         print(row["step"], row.get("loss"))
    """

    def started(self, run: Run) -> None:
        """The run folder is there, with run.json and recipe.toml; `run.about` says what is run."""

    def logged(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.jsonl was written. phase: 0 in a warm start, 1 in the method."""

    def finished(self, results: Mapping[str, Any]) -> None:
        """The run has ended, and these are its results.json."""

    def close(self) -> None:
        """The training is over: ended, stopped or failed."""


class TensorBoard(Callback):
    """Scalars in RUN/tensorboard (extra `tensorboard`)."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _not_installed("tensorboard") from None
        self._make: Any = SummaryWriter
        self._writer: Any = None

    def started(self, run: Run) -> None:
        """Open the log."""
        self._writer = self._make(str(run.folder / "tensorboard"))

    def logged(self, row: Mapping[str, Any]) -> None:
        """Add the row's numbers."""
        for name, value in _numbers(row):
            self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def close(self) -> None:
        """Close the log."""
        if self._writer is not None:
            self._writer.close()


class WandB(Callback):
    """A run of Weights & Biases (extra `wandb`); WANDB_MODE=offline keeps it on the disk.

    project: its project. options: of `wandb.init`, as entity, group or tags.
    """

    def __init__(self, *, project: str = "kinspace", **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise _not_installed("wandb") from None
        self._wandb: Any = wandb
        self._options = {"project": project, **options}
        self._run: Any = None

    def started(self, run: Run) -> None:
        """Open the run, with the recipe as its configuration."""
        own = {"name": run.folder.name, "dir": str(run.folder), "config": _about(run)}
        self._run = self._wandb.init(**(own | self._options))
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def logged(self, row: Mapping[str, Any]) -> None:
        """Log the row's numbers."""
        self._run.log({"step": row["step"], **dict(_numbers(row))})

    def finished(self, results: Mapping[str, Any]) -> None:
        """Put the measures of the test part into the summary."""
        self._run.summary.update(dict(_measures(results)))

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()


class MLflow(Callback):
    """A run of MLflow (extra `mlflow`), at MLFLOW_TRACKING_URI or tracking_uri.

    experiment: its experiment, made where there is none.
    """

    def __init__(self, *, experiment: str = "kinspace", tracking_uri: str | None = None) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise _not_installed("mlflow") from None
        self._make: Any = MlflowClient
        self._uri, self._experiment = tracking_uri, experiment
        self._client: Any = None
        self._id, self._state = "", "FAILED"

    def started(self, run: Run) -> None:
        """Open the run, with the recipe as its parameters."""
        self._client = self._make(self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        number = found.experiment_id if found else self._client.create_experiment(self._experiment)
        self._id = self._client.create_run(number, run_name=run.folder.name).info.run_id
        for name, value in _flat(_about(run)):
            self._client.log_param(self._id, name, str(value)[:500])  # all that MLflow takes

    def logged(self, row: Mapping[str, Any]) -> None:
        """Log the row's numbers."""
        for name, value in _numbers(row):
            self._client.log_metric(self._id, _mlflow_name(name), value, step=row["step"])

    def finished(self, results: Mapping[str, Any]) -> None:
        """Log the measures of the test part."""
        for name, value in _measures(results):
            self._client.log_metric(self._id, _mlflow_name(name), value)
        self._state = "FINISHED"

    def close(self) -> None:
        """End the run."""
        if self._id:
            self._client.set_terminated(self._id, self._state)


CALLBACKS = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def make_callbacks(given: Sequence[str | Callback]) -> list[Callback]:
    """The callbacks, those given by name with their defaults.

    >>> make_callbacks(["tensorbord"])
    Traceback (most recent call last):
    ValueError: callbacks: unknown callback 'tensorbord'; did you mean 'tensorboard'? ...
    """
    made: list[Callback] = []
    for each in [given] if isinstance(given, str) else given:
        if not isinstance(each, str):
            made.append(each)
            continue
        try:
            made.append(checks.lookup("callback", each, CALLBACKS)())
        except ValueError as error:
            raise ValueError(f"callbacks: {error}") from None
    return made


def _not_installed(name: str) -> ValueError:
    return ValueError(
        f"{name} is not installed; pip install 'kinspace[{name}]', or leave the "
        "option out: metrics.jsonl has the same numbers"
    )


def _about(run: Run) -> dict[str, Any]:
    about = run.about
    chosen: dict[str, Any] = {
        key: about[key] for key in ("data", "split", "seed", "kinspace") if key in about
    }
    return {**chosen, "recipe": about["recipe"]}


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a row; those of a warm start by names of their own."""
    before = "" if row.get("phase", 1) else "warm_start/"
    for name, value in row.items():
        is_number = isinstance(value, (int, float)) and name not in ("step", "phase")
        if is_number and math.isfinite(value):
            yield f"{before}{name}", float(value)


def _measures(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in results.get("selected", {}).items():
        if isinstance(value, (int, float)):
            yield f"test/{name}", float(value)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted keys."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value


def _mlflow_name(name: str) -> str:
    return name.replace("@", "_at_")  # which MLflow refuses
