"""A training in its run folder: the search for settings, the phases, the results."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kinspace import __version__
from kinspace._core.atomic_files import read_json, write_json
from kinspace._core.checks import plural
from kinspace._core.locks import FolderLock
from kinspace._core.vectors import unit
from kinspace.data import Dataset
from kinspace.data.load import load_dataset
from kinspace.data.named_splits import require_trainable, split_for, split_names
from kinspace.data.pictures import fingerprint
from kinspace.distributed import (
    barrier,
    is_main_process,
    world_size,
)
from kinspace.embeddings import EmbeddingTable
from kinspace.models import Embedder
from kinspace.recipes import Recipe, with_changes
from kinspace.recipes.overrides import fit_batch_size
from kinspace.recipes.sections import AUTO
from kinspace.training.callbacks import Callback
from kinspace.training.components import (
    choose_backbone,
    densities_for,
    fit_dim,
    init_head,
    make_model,
    make_plan,
    make_state,
    supports_channels_last,
    transform_settings,
    warm_start_recipe,
)
from kinspace.training.cuda_graphs import Graphed
from kinspace.training.data_parts import DataParts, embedding_dim, prepare
from kinspace.training.diagnostics import small_classes_warning
from kinspace.training.embedding import evaluate_weights
from kinspace.training.frozen import freeze, with_features
from kinspace.training.log import NotFinite, OneBar, make_progress
from kinspace.training.loop import Stopped, fit, make_hooks
from kinspace.training.run_folder import (
    FORMAT,
    LOCK,
    EmbeddingFile,
    create_run,
    hardware,
    read_checkpoint,
    recipe_in_force,
    resume_run,
    write_checkpoint,
    write_run,
)
from kinspace.training.samples import require_names
from kinspace.training.selection import Selection
from kinspace.training.settings import RunSettings
from kinspace.training.state import State, from_checkpoint
from kinspace.training.trials import enough_classes, fresh_model, start_recipe

if TYPE_CHECKING:
    from kinspace.run import Run

__all__ = ["Trainer"]


@dataclass
class Trainer:
    """A training: its recipe, data and model, and the run folder that it writes.

    resumed: the checkpoint to start from, until it is loaded.
    """

    recipe: Recipe
    settings: RunSettings
    parts: DataParts
    model: nn.Module
    dim: int
    folder: Path
    resumed: tuple[dict[str, Tensor], dict[str, Any]] | None
    notes: list[str]
    callbacks: Sequence[Callback] = ()

    @classmethod
    def create(
        cls,
        data: Any,
        recipe: Recipe,
        settings: RunSettings,
        model: nn.Module | None,
        out: str | Path | None,
        *,
        resume: bool,
        evaluated_by: Path | None = None,
    ) -> Trainer:
        """Open the data, make the model, and make or open the run folder.

        evaluated_by: the run that tells how good this one is expected to be.
        """
        dataset = load_dataset(data, columns=settings.columns, allow_outside=settings.allow_outside)
        dataset.require_labels("train")
        recipe = recipe_in_force(out, recipe) if resume else recipe
        require_names(recipe.samples, dataset)
        given, note = recipe.to_dict(), None
        if model is None:
            recipe = choose_backbone(recipe, dataset)
            model = make_model(recipe, seed=settings.seed)
            recipe, note = fit_dim(recipe, model)
            model = make_model(recipe, seed=settings.seed) if note else model
        elif recipe.model.backbone == AUTO:
            recipe = replace(recipe, model=replace(recipe.model, backbone="small"))
        recipe = replace(recipe, fine_tuning={})  # for other backbones
        if not supports_channels_last(model, settings.on_device()):
            settings = replace(settings, channels_last=False)
        split = split_for(dataset, settings.split or recipe.split)
        transform = transform_settings(recipe, model)
        notes = [note] if note else []
        require_trainable(dataset, split, seed=settings.seed)  # before all pictures are read
        recipe, note = _searchable(recipe, dataset, split, settings)
        notes += [note] if note else []
        parts = prepare(dataset, split, transform, settings, validation=recipe.validation.fraction)
        parts.require_views(recipe.test.views)
        recipe, note = fit_batch_size(recipe, parts.train.dataset.labels)
        notes += [note] if note else []
        dim = embedding_dim(model, parts.train)
        about = {
            "data": str(data) if isinstance(data, (str, Path)) else dataset.name,
            "columns": settings.columns and dict(settings.columns),
            "working_folder": str(Path.cwd()),
            "contents": fingerprint(dataset.pictures, times=False),
            "split": split,
            **parts.to_dict(),
            "notes": notes,
            "given": given,
            "recipe": recipe.to_dict(),
            "seed": settings.seed,
            "settings": settings.to_dict(),
            "model": _config(model),
            "transform": None if parts.train.settings is None else transform.to_dict(),
            "hardware": hardware(parts.train.device),
            "format": FORMAT,
            "kinspace": __version__,
        }
        if evaluated_by is not None:
            about["evaluated_by"] = os.path.relpath(evaluated_by, out)
        resumed = None
        if resume:
            folder, resumed = resume_run(out, about)
        else:
            folder = create_run(out, f"{dataset.name}-{recipe.name}", about, recipe)
        return cls(recipe, settings, parts, model, dim, folder, resumed, notes)

    def run(self) -> Run:
        """The search for settings, the training by what it found, and the final evaluation.

        No other process may write the folder meanwhile.
        """
        lock = FolderLock(self.folder / LOCK)
        with lock.held("kinspace train", wait=1) if is_main_process() else nullcontext():
            try:
                return self._run()
            finally:
                for callback in self.callbacks:
                    callback.close()

    def _run(self) -> Run:
        from kinspace.run import Run

        started = time.monotonic()
        for callback in self.callbacks:
            callback.started(Run(self.folder))
        progress = OneBar(make_progress(quiet=self.settings.quiet))
        try:
            self._print_summary(progress)
            own = self._own_steps()
            progress.plan(int(self.recipe.search.budget * self.recipe.schedule.steps) + own)
            if self.recipe.search.budget:
                self._select(progress)
                progress.plan(self._own_steps())
            if self.recipe.model.freeze:
                self._freeze(progress)
            if self.resumed is None:
                self._initialize()
            kept = self._keeps_start()
            trained = _Trained(self.model, 0) if kept else self._train(progress)
        except NotFinite as error:
            raise ValueError(self._not_finite(error)) from error
        finally:
            progress.close()
        self._evaluate(trained, time.monotonic() - started)
        return Run(self.folder)

    def _own_steps(self) -> int:
        """Steps of the warm start and the training, by the recipe as it is now."""
        return self.recipe.warm_start.steps + self.recipe.schedule.steps

    def _select(self, progress: OneBar) -> None:
        """Choose settings on held-out training classes, and go on with them."""
        part = self.recipe.model
        choice = Selection(
            self.recipe,
            self.settings,
            self.model,
            self.parts.train,
            self.folder,
            progress,
            has_weights=part.pretrained or part.weights is not None,
        ).run()
        recipe = with_changes(self.recipe, {"search.budget": 0.0}, where="selection")
        if choice.train:
            recipe = with_changes(recipe, choice.changes, where="selection")
            self.recipe, _ = fit_batch_size(recipe, self.parts.train.dataset.labels)
        else:
            self.recipe = start_recipe(recipe, choice.changes)
        self.model = fresh_model(self.model, self.recipe, self.settings.seed)
        self.dim = embedding_dim(self.model, self.parts.train)
        if is_main_process():
            about = read_json(self.folder / "run.json")
            found = {"recipe": self.recipe.to_dict(), "model": _config(self.model)}
            write_run(self.folder, {**about, **found}, self.recipe)
        barrier()

    def _keeps_start(self) -> bool:
        """Whether a search has found no training that is better than the start."""
        from kinspace.run import Run

        run = Run(self.folder)
        selection = (run.evaluated_by or run).selection
        return selection is not None and not selection["trained"]

    def _train(self, progress: OneBar) -> _Trained:
        """The warm start if the recipe has one, then the method."""
        phase = 0 if self.resumed is None else int(self.resumed[1]["phase"])
        original = self._original_densities(phase)
        if self.recipe.warm_start.steps and phase == 0:
            before = warm_start_recipe(self.recipe)
            before, _ = fit_batch_size(before, self.parts.train.dataset.labels)
            self._train_phase(0, before, None, progress)
        state = self._train_phase(1, self.recipe, original, progress)
        return _Trained(state.eval_model, state.step, state.best.recall)

    def _print_summary(self, progress: OneBar) -> None:
        train, skipped = self.parts.train.dataset, self.parts.skipped
        sizes = [
            f"{name}: {len(part.dataset):,} in {part.dataset.num_classes:,} classes"
            for name, part in self.parts.by_name().items()
        ]
        progress.message(f"{train.name}, {', '.join(sizes)}")
        progress.message(self._model_line())
        if skipped:
            pictures = plural(len(skipped), "picture")
            progress.message(f"left out, unreadable: {pictures} (run.json lists them)")
        samples = self.recipe.resolved().sampler.options.get("samples")
        counts = train.labels.bincount().tolist()
        if samples and (warning := small_classes_warning(counts, samples)):
            progress.message(f"warning: {warning}")
        for note in self.notes:
            progress.message(note)
        progress.message(f"run folder: {self.folder}")

    def _model_line(self) -> str:
        """The backbone, what it has learned from, the dimensions and the device, in words."""
        part, device = self.recipe.model, self.parts.train.device
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        if not isinstance(self.model, Embedder):
            return f"model: {type(self.model).__name__}, {self.dim} dimensions, on {where}"
        known = "not pretrained"
        if part.pretrained or part.weights is not None:
            known = f"weights of {part.weights}" if part.weights else "pretrained"
        frozen = ", frozen" if part.freeze else ""
        return f"backbone: {part.backbone}, {known}{frozen}; {self.dim} dimensions; on {where}"

    def _freeze(self, progress: OneBar) -> None:
        """Freeze the backbone, and put its features in place of the pictures."""
        if not isinstance(self.model, Embedder):
            name = type(self.model).__name__
            raise ValueError(
                f"model.freeze: expected a model with a backbone and a head, got {name}"
            )
        self.model.to(self.parts.train.device)
        freeze(self.model)
        progress.message("computing the features of the frozen backbone")
        self.parts = with_features(
            self.parts,
            self.model,
            folder=self.folder / "features",
            views=self.recipe.model.freeze_views,
            test_views=self.recipe.test.views,
            progress=partial(progress.status, "features of the frozen backbone"),
        )

    def _initialize(self) -> None:
        """Initialize the head, and save the weights before the first step."""
        self.model.to(self.parts.train.device)
        init_head(self.recipe, self.model, self.parts.train)
        if is_main_process():
            weights = self.model.state_dict()
            write_checkpoint(self.folder / "start.safetensors", weights, {})
            if self._keeps_start():
                write_checkpoint(
                    self.folder / "model.safetensors", weights, {"step": 0, "phase": 1}
                )

    def _original_densities(self, phase: int) -> Tensor | None:
        """The densities of the pretrained features; the checkpoint of a resumed run has them."""
        if self.resumed is not None and phase == 1:
            return torch.zeros(self.parts.train.dataset.num_classes)
        return densities_for(self.recipe, self.model, self.parts.train)

    def _train_phase(
        self, number: int, recipe: Recipe, original: Tensor | None, progress: OneBar
    ) -> State:
        """Train the warm start (0) or the method (1)."""
        steps_before = self.recipe.warm_start.steps if number else 0
        plan = make_plan(recipe, self.settings, steps_before=steps_before)
        progress.start(plan.steps)
        state = make_state(
            recipe, self.settings, self.model, self.parts.train, dim=self.dim, original=original
        )
        self.model = state.model
        after = (0, steps_before) if steps_before else None
        if self.resumed is not None and self.resumed[1]["phase"] == number:
            try:
                from_checkpoint(state, *self.resumed, self.parts.train.device)
                if not 0 <= state.step <= plan.steps:
                    raise ValueError(f"step {state.step:,} of {plan.steps:,}")
            except (RuntimeError, KeyError, IndexError, TypeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise ValueError(
                    f"{self.folder / 'last.safetensors'}: expected a checkpoint of the model in "
                    f"run.json, got another: {reason}"
                ) from None
            after, self.resumed = (number, state.step), None
            progress.message(f"resuming at step {state.step} of {plan.steps}")
        elif not number:
            progress.message(f"warm start: {recipe.loss.name}, {plan.steps} steps")
        self._accelerate(state)
        hooks = make_hooks(self.folder, number, after, progress, callbacks=self.callbacks)
        try:
            fit(state, plan, self.parts.train, self.parts.validation if number else None, hooks)
        except Stopped:
            resume = f"kinspace train --resume {self.folder}"
            progress.message(f"stopped at step {state.step}; resume with: {resume}")
            raise
        finally:
            hooks.close()
        return state

    def _accelerate(self, state: State) -> None:
        """Compile the model, or record CUDA graphs where that is safe."""
        if self.settings.compile:
            state.compiled = torch.compile(state.model)  # type: ignore[assignment]
            return
        # one shape of input, gradients that are not accumulated, and a model of known code
        safe = world_size() == 1 and self.settings.micro_batch is None
        safe = safe and isinstance(self.model, Embedder) and not self.recipe.model.freeze
        if self.settings.cuda_graphs and safe and self.parts.train.device.type == "cuda":
            state.compiled = Graphed(state.model, state.precision)

    def _not_finite(self, error: NotFinite) -> str:
        """The pictures of the batch, the last checkpoint, and what to do."""
        pictures = self.parts.train.dataset.pictures
        names = ", ".join(pictures.name(index) for index in error.indices[:5])
        more = f" and {len(error.indices) - 5} more" if len(error.indices) > 5 else ""
        last = self.folder / "last.safetensors"
        kept = f"the last good checkpoint is {last}" if last.exists() else "there is no checkpoint"
        return (
            f"{error}, on the batch of {names}{more}; {kept}. Lower the learning rate, clip the "
            "gradients (optimizer.clip_norm), or use precision bf16 or float32"
        )

    def _evaluate(self, trained: _Trained, seconds: float) -> None:
        """Evaluate on the test part; write results.json. Leaves the chosen weights in the model.

        Every process embeds a share; the main process writes.
        """
        barrier()
        device, model = self.parts.train.device, trained.model
        final = {name: value.clone() for name, value in model.state_dict().items()}
        selected, chosen = read_checkpoint(self.folder / "model.safetensors", device)
        results: dict[str, Any] = {"selected_step": chosen["step"], "steps": trained.steps}
        results["seconds"] = round(seconds, 1)
        if self.parts.validation is not None:
            results["validation_recall@1"] = trained.recall
        if self.parts.test is not None:
            weights = {"final": final}
            if self.settings.baselines:
                start, _ = read_checkpoint(self.folder / "start.safetensors", device)
                weights = {"untrained": start, **weights}
            if chosen["step"] != trained.steps:
                weights["selected"] = selected
            found, vectors = evaluate_weights(
                model,
                weights,
                self.parts.test,
                pixels=self.settings.baselines,
                views=1 if self.recipe.model.freeze else self.recipe.test.views,
            )
            results |= found
            results.setdefault("selected", results["final"])  # the last step was chosen
            if is_main_process():  # a report reads the embeddings of the chosen weights
                test = self.parts.test.dataset
                table = EmbeddingTable.from_dataset(test, unit(vectors))
                EmbeddingFile(self.folder, "test").write(table, test)
        model.load_state_dict(selected)
        if is_main_process():
            write_json(self.folder / "results.json", results)
        for callback in self.callbacks:
            callback.finished(results)
        barrier()


@dataclass(frozen=True, eq=False)
class _Trained:
    """A model after its training; the best Recall@1 on validation classes, where there are any."""

    model: nn.Module
    steps: int
    recall: float = 0.0


def _searchable(
    recipe: Recipe, dataset: Dataset, split: str, settings: RunSettings
) -> tuple[Recipe, str | None]:
    """The recipe as the data allow it: a search holds out training classes by itself.

    With too few of them it keeps a backbone that has learnt, and any other trains as it is told.
    """
    if not recipe.search.budget:
        return recipe, None
    train, _, _ = split_names(dataset, split, validation=0.0, seed=settings.seed)
    learnt = recipe.model.pretrained or recipe.model.weights is not None
    if learnt or enough_classes(train.num_classes):
        return replace(recipe, validation=replace(recipe.validation, fraction=0.0)), None
    note = f"{plural(train.num_classes, 'training class', 'training classes')}: too few to hold "
    note += "some out, so settings are the recipe's own"
    return replace(recipe, search=replace(recipe.search, budget=0.0)), note


def _config(model: nn.Module) -> dict[str, Any] | str:
    return model.config() if isinstance(model, Embedder) else type(model).__name__
