"""kinspace.train: from a data set and a method to a run folder; a run that goes on.

run = kinspace.train("photos/", method="nra")
run = kinspace.train("moths", method="almn", changes={"loss.beta": 2.0}, seed=1)
run = kinspace.train(my_dataset, model=my_module, method="triplet")
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import nn

from kinspace.data.pictures import ADVICE, UnreadablePictures
from kinspace.distributed import (
    broadcast_from_main,
    init_process_group,
    is_main_process,
)
from kinspace.recipes import Recipe, default_recipe, read_recipe, with_changes
from kinspace.training.callbacks import Callback, make_callbacks
from kinspace.training.settings import RunSettings
from kinspace.training.trainer import Trainer

if TYPE_CHECKING:
    from kinspace.run import Run

__all__ = ["resume_training", "train"]


def train(  # noqa: PLR0913 - every option of the command line is a parameter
    data: Any,
    *,
    method: str | Recipe | None = None,
    changes: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    final: bool = False,
    split: str | None = None,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
    micro_batch: int | None = None,
    cache: str = "auto",
    workers: int | None = None,
    save_every: int = 200,
    log_every: int = 10,
    keep_every: int | None = None,
    skip_bad: bool = False,
    columns: Mapping[str, str] | None = None,
    allow_outside: bool = False,
    baselines: bool = True,
    channels_last: bool = True,
    compile: bool = False,  # noqa: A002 - the name of the option
    cuda_graphs: bool = True,
    tensorboard: bool = False,
    callbacks: Sequence[str | Callback] = (),
    quiet: bool = False,
) -> Run:
    """Train a model and evaluate it on the test part; returns the run folder.

    data: a folder, table, archive or name (`kinspace.data.load_dataset`), a `Dataset`, or any
        data set of (input, label).
    method: the name of a recipe (`kinspace methods` lists them), a .toml file, or a `Recipe`; by
        default NRA, and on the features of a frozen backbone Proxy-NCA too
        (`kinspace.recipes.default_recipe`).
    changes: other values for keys of the recipe, {"loss.beta": 2.0}.
    model: any module that returns vectors, in place of the recipe's.
    out: the run folder; by default runs/DATA-METHOD-NUMBER.
    resume: resume the run in `out`.
    final: then train once more with the same settings on all classes, also those of the test, in
        RUN/final, and return that run: the model to use, of which RUN has the expected quality.
    split: "random_classes", "zero_shot", "official", "stratified", "all", or "auto": of a
        standard set the published classes train, for most the first half, of other data a half
        drawn by the seed. By default the recipe's.
    seed: the random seed of the split, the weights, the batches and the crops.
    device: "cpu", "cuda", "cuda:1"; by default a GPU if there is one.
    precision: "float32", "bf16" or "fp16" for the model; by default bf16 on a GPU, float32 on a
        CPU. The loss is always in float32.
    micro_batch: samples that go through the model at a time, if a batch does not fit; the gradient
        is still that of the whole batch.
    cache: where decoded pictures are kept: in "memory", on the "gpu", in a folder of that name,
        or "none"; "auto" chooses by the free memory.
    workers: processes that read pictures; by default one a core, at most 8.
    save_every, log_every: steps between two checkpoints, and between two rows of metrics.
    keep_every: keep the weights every so many steps, and the last, as
        RUN/checkpoints/step-000100.safetensors; steps of a warm start count.
    skip_bad: train without pictures that cannot be read, instead of raising.
    columns: the columns of a table that are path and label, {"path": "file", "label": "species"}.
    allow_outside: a table may name pictures outside its folder.
    baselines: evaluate raw pixels and the untrained backbone too.
    channels_last: use the channels-last memory format, which is faster.
    compile: run the model through torch.compile.
    cuda_graphs: without `compile`, on a GPU: run the model as CUDA graphs where that is possible.
    tensorboard: write the metrics for TensorBoard too (extra `tensorboard`).
    callbacks: "tensorboard", "wandb", "mlflow", or objects with the methods of
        `kinspace.training.Callback`: called with every row of metrics and with the results.
    quiet: print nothing.

    >>> train("digits", sed=1)
    Traceback (most recent call last):
    TypeError: train() got an unexpected keyword argument 'sed'...
    """
    settings = RunSettings(
        split=split,
        seed=seed,
        device=device,
        precision=precision,
        micro_batch=micro_batch,
        cache=cache,
        workers=workers,
        save_every=save_every,
        log_every=log_every,
        keep_every=keep_every,
        skip_bad=skip_bad,
        columns=columns,
        allow_outside=allow_outside,
        baselines=baselines,
        channels_last=channels_last,
        compile=compile,
        cuda_graphs=cuda_graphs,
        tensorboard=tensorboard,
        quiet=quiet,
    )
    if method is None:
        method = default_recipe()
    recipe = method if isinstance(method, Recipe) else read_recipe(method)
    recipe = with_changes(recipe, changes, where="changes") if changes else recipe
    recipe = replace(recipe, tune={})  # for `kinspace.tune`
    untrained = copy.deepcopy(model) if final else None
    called = make_callbacks([*callbacks, *(["tensorboard"] if tensorboard else [])])
    started = init_process_group(settings.on_device())
    try:
        trainer = Trainer.create(data, recipe, settings, model, out, resume=resume)
        trainer.callbacks = called if is_main_process() else []
        run = trainer.run()
        return _train_final(run, data, settings, untrained) if final else run
    finally:
        if started:
            dist.destroy_process_group()


def _train_final(run: Run, data: Any, settings: RunSettings, model: nn.Module | None) -> Run:
    """The run in RUN/final: the settings of a run on all of its data, with as many epochs."""
    from kinspace.run import Run

    about, folder = run.about, run.folder / "final"
    if about["split"] == "all":
        raise ValueError(f"final: {run.folder} has trained on all classes already (split 'all')")
    if (found := Run(folder)).finished:
        return found
    pictures = about["pictures"]
    share = sum(pictures.values()) / pictures["train"]
    recipe = run.recipe
    steps = max(1, round(recipe.schedule.steps * share))
    recipe = with_changes(recipe, {"schedule.steps": steps, "validation.fraction": 0.0})
    settings = replace(settings, split="all", baselines=False)
    resume = broadcast_from_main((folder / "run.json").exists())
    trainer = Trainer.create(
        data, recipe, settings, model, folder, resume=resume, evaluated_by=run.folder
    )
    return trainer.run()


def resume_training(
    run: str | Path | Run,
    data: Any = None,
    *,
    final: bool = False,
    device: str | None = None,
    workers: int | None = None,
    callbacks: Sequence[str | Callback] = (),
    quiet: bool | None = None,
) -> Run:
    """Continue an interrupted run with its recipe and settings; returns the run.

    data: the run's data, if it has moved. device, workers, quiet: in place of the run's. final,
    callbacks: as of `train`; the run may have ended.
    """
    from kinspace.run import Run, data_source, open_run

    run = run if isinstance(run, Run) else open_run(run)
    about = run.about
    changes = {"device": device, "workers": workers, "quiet": quiet}
    given = {name: value for name, value in changes.items() if value is not None}
    settings = RunSettings.from_dict(about["settings"] | given).to_dict()
    recipe = Recipe.from_dict(about["recipe"])
    data = data_source(about) if data is None else data
    try:
        return train(
            data,
            method=recipe,
            out=run.folder,
            resume=True,
            final=final,
            callbacks=callbacks,
            **settings,
        )
    except UnreadablePictures as error:
        text = str(error).removesuffix(ADVICE)
        raise ValueError(
            f"{text}restore them: {run.folder} was started with these pictures"
        ) from None
