"""kinspace.train: from a data set and a method to a run folder.

run = kinspace.train("photos/", method="nra")
run = kinspace.train("moths", method="almn", changes={"loss.beta": 2.0}, seed=1)
run = kinspace.train(my_dataset, model=my_module, method="triplet")
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kinspace import __version__
from kinspace._core.atomic_files import clear_parts
from kinspace._core.json_files import write_json
from kinspace._core.normalization import unit
from kinspace._core.text import plural
from kinspace.data.load import load_dataset
from kinspace.distributed import (
    barrier,
    broadcast_from_main,
    init_process_group,
    is_main_process,
    world_size,
)
from kinspace.embeddings import EmbeddingTable
from kinspace.models import Embedder
from kinspace.recipes import Recipe, read_recipe, with_changes
from kinspace.recipes.batch_size import fit_batch_size
from kinspace.training.checkpoint import read_checkpoint, write_checkpoint
from kinspace.training.components import (
    make_model,
    make_plan,
    make_state,
    original_densities,
    start_head,
    supports_channels_last,
    transform_settings,
    warm_start,
    without_search,
)
from kinspace.training.cuda_graphs import Graphed
from kinspace.training.data_parts import DataParts, embedding_dim, prepare
from kinspace.training.diagnostics import few_pictures
from kinspace.training.embedding_files import EmbeddingFile
from kinspace.training.final_evaluation import final_results
from kinspace.training.hooks import run_hooks
from kinspace.training.log import NotFinite
from kinspace.training.log_output import blamed, reporter_for, tensorboard_writer
from kinspace.training.loop import Stopped, fit
from kinspace.training.run_folder import hardware, new_folder, same_run
from kinspace.training.settings import RunSettings, run_settings
from kinspace.training.state import State, from_checkpoint

if TYPE_CHECKING:
    from kinspace.run import Run

__all__ = ["resume_training", "train"]


def train(
    data: Any,
    *,
    method: str | Recipe = "nra",
    changes: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Train a model and judge it; returns the run folder.

    data: a folder, table, archive or name (`kinspace.data.load_dataset`), a `Dataset`, or any
        data set of (input, label).
    method: the name of a recipe (`kinspace methods` lists them), a .toml file, or a `Recipe`.
    changes: other values for some of its keys, {"loss.beta": 2.0}.
    model: any module that returns vectors, in place of the recipe's.
    out: the run folder; by default runs/DATA-METHOD-NUMBER.
    resume: go on with the run in `out`.
    settings: the options of `RunSettings`: seed, device, precision, micro_batch, cache, ...
    """
    recipe = method if isinstance(method, Recipe) else read_recipe(method)
    recipe = without_search(with_changes(recipe, changes, where="changes") if changes else recipe)
    chosen = run_settings(settings)
    began = init_process_group(chosen.on_device())
    try:
        job = _Job.prepare(data, recipe, chosen, model, out, resume=resume)
        return job.run()
    finally:
        if began:
            dist.destroy_process_group()


def resume_training(
    run: str | Path | Run,
    data: Any = None,
    *,
    device: str | None = None,
    workers: int | None = None,
    quiet: bool | None = None,
) -> Run:
    """Continue an interrupted run with its recipe and settings; returns the run.

    data: the run's data, if it has moved. device, workers, quiet: in place of the run's.
    """
    from kinspace.run import Run, open_run

    run = run if isinstance(run, Run) else open_run(run)
    about = run.about
    changes = {"device": device, "workers": workers, "quiet": quiet}
    settings = about["settings"] | {k: value for k, value in changes.items() if value is not None}
    recipe = Recipe.from_dict(about["recipe"])
    data = about["data"] if data is None else data
    return train(data, method=recipe, out=run.folder, resume=True, **settings)


@dataclass
class _Job:
    """A run on its way: what was asked, what was prepared, and where it is written."""

    recipe: Recipe
    settings: RunSettings
    parts: DataParts
    model: nn.Module
    dim: int
    folder: Path
    resumed: tuple[dict[str, Tensor], dict[str, Any]] | None
    notes: list[str]

    @classmethod
    def prepare(
        cls,
        data: Any,
        recipe: Recipe,
        settings: RunSettings,
        model: nn.Module | None,
        out: str | Path | None,
        *,
        resume: bool,
    ) -> _Job:
        dataset = load_dataset(data)
        if settings.tensorboard:
            tensorboard_writer()  # not there: an error now, not with a run folder half begun
        made = make_model(recipe, seed=settings.seed) if model is None else model
        if not supports_channels_last(made, settings.on_device()):
            settings = replace(settings, channels_last=False)
        split = settings.split or recipe.split
        transform = transform_settings(recipe, made)
        fraction = recipe.validation.fraction
        parts = prepare(dataset, split, transform, settings, validation=fraction)
        parts.require_views(recipe.test.views)
        recipe, said = fit_batch_size(recipe, parts.train.dataset.labels)
        notes = [said] if said else []
        dim = embedding_dim(made, parts.train)
        about = {
            "data": str(data) if isinstance(data, (str, Path)) else dataset.name,
            "split": split,
            **parts.to_dict(),
            "notes": notes,
            "recipe": recipe.to_dict(),
            "seed": settings.seed,
            "settings": settings.to_dict(),
            "model": made.config() if isinstance(made, Embedder) else type(made).__name__,
            "transform": None if parts.train.settings is None else transform.to_dict(),
            "hardware": hardware(parts.train.device),
            "format": 1,
            "kinspace": __version__,
        }
        if resume:
            if out is None:
                raise ValueError("resume: expected the run folder in `out`")
            from kinspace.run import open_run

            run = open_run(out)
            same_run(run.about, about, run.folder)
            if is_main_process():
                clear_parts(run.folder)
            last = run.folder / "last.safetensors"  # none: it was stopped before its first
            resumed = read_checkpoint(last) if last.exists() else None
            return cls(recipe, settings, parts, made, dim, run.folder, resumed, notes)
        name = f"{dataset.name}-{recipe.name}"
        folder = Path(broadcast_from_main(str(new_folder(out, name)) if is_main_process() else ""))
        if is_main_process():
            write_json(folder / "run.json", about)
            (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
        return cls(recipe, settings, parts, made, dim, folder, None, notes)

    def run(self) -> Run:
        """Warm start where the recipe has one, then the method, then the verdict."""
        begun = time.monotonic()
        phase = 0 if self.resumed is None else int(self.resumed[1]["phase"])
        reporter = reporter_for(quiet=self.settings.quiet)
        original = None
        try:
            self._say_first(reporter)
            if self.resumed is None:
                self._begin()
            if any(part.name == "density" for part in self.recipe.regularizers):
                original = self._originals(phase)
            if self.recipe.warm_start.steps and phase == 0:
                before, _ = fit_batch_size(warm_start(self.recipe), self.parts.train.dataset.labels)
                self._phase(0, before, None, reporter)
            state = self._phase(1, self.recipe, original, reporter)
        except NotFinite as error:
            raise ValueError(blamed(error, self.parts.train.dataset, self.folder)) from error
        finally:
            reporter.close()
        from kinspace.run import Run

        self._judge(state, time.monotonic() - begun)
        return Run(self.folder)

    def _say_first(self, reporter: Any) -> None:
        train, skipped = self.parts.train.dataset, self.parts.skipped
        words = [
            f"{part}: {len(feed.dataset):,} in {feed.dataset.num_classes:,} classes"
            for part, feed in (
                ("train", self.parts.train),
                ("validation", self.parts.validation),
                ("test", self.parts.test),
            )
            if feed is not None
        ]
        reporter.say(f"{train.name}, {', '.join(words)}")
        if skipped:
            reporter.say(
                f"left out, unreadable: {plural(len(skipped), 'picture')} (run.json lists them)"
            )
        samples = self.recipe.resolved().sampler.options.get("samples")
        if samples and (warning := few_pictures(train.labels.bincount().tolist(), samples)):
            reporter.say(f"warning: {warning}")
        for note in self.notes:
            reporter.say(note)
        reporter.say(f"run folder: {self.folder}")

    def _begin(self) -> None:
        """Before the first step: how the head starts, and the weights."""
        self.model.to(self.parts.train.device)
        start_head(self.recipe, self.model, self.parts.train)
        if is_main_process():
            write_checkpoint(self.folder / "start.safetensors", self.model.state_dict(), {})

    def _originals(self, phase: int) -> Tensor:
        """The densities of the pretrained features; a run that goes on has them in its state."""
        if self.resumed is not None and phase == 1:
            return torch.zeros(self.parts.train.dataset.num_classes)
        return original_densities(self.model, self.parts.train).cpu()

    def _phase(self, number: int, recipe: Recipe, original: Tensor | None, reporter: Any) -> State:
        plan = make_plan(recipe, self.settings)
        reporter.begin(plan.steps)
        state = make_state(
            recipe, self.settings, self.model, self.parts.train, dim=self.dim, original=original
        )
        self.model = state.model
        after = None
        if self.resumed is not None and self.resumed[1]["phase"] == number:
            tensors, rest = self.resumed
            from_checkpoint(state, tensors, rest, self.parts.train.device)
            after = (number, state.step)
            self.resumed = None
            reporter.say(f"going on at step {state.step} of {plan.steps}")
        elif not number:
            reporter.say(f"warm start: {recipe.loss.name}, {plan.steps} steps")
        elif number and recipe.warm_start.steps:
            after = (0, recipe.warm_start.steps)
        hooks = run_hooks(
            self.folder, number, after, reporter, tensorboard=self.settings.tensorboard
        )
        if self.settings.compile:
            state.compiled = torch.compile(state.model)  # type: ignore[assignment]
        elif self._may_record():
            state.compiled = Graphed(state.model, state.precision)
        validation = self.parts.validation if number else None
        try:
            fit(state, plan, self.parts.train, validation, hooks)
        except Stopped:
            reporter.say(
                f"stopped at step {state.step}; go on with: kinspace train --resume {self.folder}"
            )
            raise
        finally:
            hooks.close()
        return state

    def _may_record(self) -> bool:
        """Whether CUDA graphs are safe: our own model, in one piece, in one process."""
        alone = world_size() == 1
        whole = self.settings.micro_batch is None and isinstance(self.model, Embedder)
        on_gpu = self.parts.train.device.type == "cuda"
        return self.settings.graphs and alone and whole and on_gpu

    def _judge(self, state: State, seconds: float) -> None:
        """Write the verdict. Every process takes part in the embedding; one writes."""
        barrier()
        device = self.parts.train.device
        final = {name: value.clone() for name, value in state.judged.state_dict().items()}
        selected, chosen = read_checkpoint(self.folder / "model.safetensors", device)
        results: dict[str, Any] = {"selected_step": chosen["step"], "steps": state.step}
        results["seconds"] = round(seconds, 1)
        if self.parts.validation is not None:
            results["validation_recall@1"] = state.best.recall
        if self.parts.test is not None:
            weights = {"final": final}
            if self.settings.baselines:
                start, _ = read_checkpoint(self.folder / "start.safetensors", device)
                weights = {"untrained": start, **weights}
            if chosen["step"] != state.step:
                weights["selected"] = selected
            found, vectors = final_results(
                state.judged,
                weights,
                self.parts.test,
                pixels=self.settings.baselines,
                views=self.recipe.test.views,
            )
            results |= found
            results.setdefault("selected", results["final"])  # the last step was chosen
            if is_main_process():  # those of the chosen weights: a report needs them again
                test = self.parts.test.dataset
                table = EmbeddingTable.from_dataset(test, unit(vectors))
                EmbeddingFile(self.folder, "test").write(table, test)
        state.judged.load_state_dict(selected)
        if is_main_process():
            write_json(self.folder / "results.json", results)
        barrier()
