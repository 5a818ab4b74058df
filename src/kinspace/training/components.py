"""The components of a training, made from a recipe: model, optimizer, objective, sampler, plan."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core.class_index import class_means, class_sums
from kinspace._core.vectors import unit
from kinspace.clustering import ClusterIndex
from kinspace.data import Dataset, TransformSettings
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import UnreadablePicture
from kinspace.distributed import rank, world_size
from kinspace.losses import LOSSES
from kinspace.models import (
    DEFAULT_BACKBONE,
    Embedder,
    layer_scales,
    make_embedder,
    parameter_groups,
)
from kinspace.models.head import FILLERS
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.recipes import Recipe, with_changes
from kinspace.recipes.overrides import samples_per_batch
from kinspace.recipes.sections import AUTO
from kinspace.samplers import SAMPLERS, BatchSampler, neighborhoods
from kinspace.training.data_parts import DataPart
from kinspace.training.embedding import embed_all
from kinspace.training.frozen import freeze
from kinspace.training.loop import Plan
from kinspace.training.optimizer import make_optimizer
from kinspace.training.samples import sample_options
from kinspace.training.settings import RunSettings
from kinspace.training.state import State, WeightAverage
from kinspace.training.step import Precision, seed_everything

__all__ = [
    "choose_backbone",
    "densities_for",
    "fit_dim",
    "init_head",
    "make_model",
    "make_plan",
    "make_state",
    "original_densities",
    "supports_channels_last",
    "transform_settings",
    "warm_start_recipe",
]

_CALIBRATION = 512  # pictures to measure the norm of the embeddings before training
_LOOKED_AT = 9  # pictures whose size decides the backbone
_PHOTOGRAPH = 64  # pixels of the shorter side from which on a picture is taken for a photograph


def choose_backbone(recipe: Recipe, dataset: Dataset) -> Recipe:
    """The recipe with a backbone in place of "auto": pretrained, but for small pictures.

    The median of the shorter sides of a few pictures decides; `DEFAULT_BACKBONE` has learned from
    photographs, of which little is left below 64 pixels.

    >>> from kinspace.data import digits_dataset
    >>> from kinspace.recipes import read_recipe
    >>> choose_backbone(read_recipe("nra"), digits_dataset()).model.backbone
    'small'
    """
    if recipe.model.backbone != AUTO:
        return recipe
    sides = []
    if not isinstance(dataset.pictures, SampleInputs):
        places = torch.linspace(0, len(dataset) - 1, min(_LOOKED_AT, len(dataset))).long()
        for place in places.tolist():
            try:
                sides.append(min(dataset.pictures.read(place).size))
            except UnreadablePicture:  # what happens to it is decided where all are read
                continue
    large = bool(sides) and statistics.median(sides) >= _PHOTOGRAPH
    name = DEFAULT_BACKBONE if large else "small"
    return with_changes(recipe, {"model.backbone": name}, where="backbone")


def make_model(recipe: Recipe, *, seed: int) -> Embedder:
    """The embedder of a recipe; the seed draws its random weights."""
    part = recipe.model
    return make_embedder(
        {
            "backbone": {
                "name": part.backbone,
                "attention": part.attention,
                "depths": part.depths,
                "lora": part.lora,
                "options": part.options,
                "seed": seed,
            },
            "head": {
                "dim": part.dim,
                "pooling": part.pool,
                "dropout": part.dropout,
                "normalize": part.length if part.normalize else False,
                "groups": part.groups,
                "seed": seed,
            },
            "test": {"mirror": recipe.test.mirror, "scales": recipe.test.scales},
        },
        pretrained=part.pretrained and part.weights is None,
        weights=part.weights,
    )


def fit_dim(recipe: Recipe, model: Embedder) -> tuple[Recipe, str | None]:
    """The recipe with no more dimensions than its start has directions, and a note if so.

    A start from the features (`model.start`) has one direction for each of them at most.

    >>> from kinspace.recipes import read_recipe
    >>> changes = {"model.backbone": "small", "model.start": "whitened", "model.dim": 999}
    >>> recipe = with_changes(read_recipe("nra"), changes)
    >>> fit_dim(recipe, make_model(recipe, seed=0))[1]
    'embeddings of 128 dimensions in place of 999: the backbone has no more features'
    """
    layer, part = model.head.linear, recipe.model
    if part.start in ("random", *FILLERS) or not isinstance(layer, nn.Linear):
        return recipe, None
    if layer.out_features <= layer.in_features:
        return recipe, None
    note = f"embeddings of {layer.in_features} dimensions in place of {layer.out_features}: the "
    note += "backbone has no more features"
    return with_changes(recipe, {"model.dim": layer.in_features}), note


def supports_channels_last(model: nn.Module, device: torch.device) -> bool:
    """Whether the model can be trained in channels-last memory.

    It cannot on a CPU if it has a strided 1x1 convolution with fewer channels than a SIMD vector
    holds: oneDNN writes beyond its memory in that gradient (torch 2.15 with oneDNN 3.13 on AVX2,
    for 1 to 7 channels), which may crash the process later.

    >>> supports_channels_last(nn.Conv2d(4, 8, 1, stride=2), torch.device("cpu"))
    False
    """
    return device.type != "cpu" or not any(
        isinstance(layer, nn.Conv2d)
        and layer.in_channels < 16
        and layer.kernel_size == (1, 1)
        and max(layer.stride) > 1
        for layer in model.modules()
    )


def transform_settings(recipe: Recipe, model: nn.Module) -> TransformSettings:
    """The recipe's transform; what it leaves open is what the backbone expects.

    The square before the crop is by default 8/7 of the crop: 256 for 224.
    """
    part, wanted = recipe.transform, getattr(model, "preprocessing", None)
    defaults = TransformSettings()
    size = part.size or (wanted.size if wanted else defaults.size)
    return TransformSettings(
        size=size,
        resize=part.resize or max(size, part.test_size or 0, round(size * 8 / 7)),
        fit=part.fit,
        mirror=part.mirror,
        rescale=part.rescale,
        test_size=part.test_size,
        mean=part.mean or (wanted.mean if wanted else defaults.mean),
        std=part.std or (wanted.std if wanted else defaults.std),
    )


def make_plan(recipe: Recipe, settings: RunSettings, *, steps_before: int = 0) -> Plan:
    """The plan of a phase. steps_before: the steps of the warm start before it."""
    schedule, optimizer = recipe.schedule, recipe.optimizer
    return Plan(
        steps=schedule.steps,
        schedule={
            "kind": schedule.kind,
            "warm_up": schedule.warm_up,
            "milestones": schedule.milestones,
            "factor": schedule.factor,
            "every": schedule.every,
        },
        freeze_backbone=schedule.freeze_backbone,
        clip_norm=optimizer.clip_norm,
        clip_value=optimizer.clip_value,
        micro_batch=settings.micro_batch,
        refresh_every=0 if recipe.index is None else recipe.index.refresh,
        disagreement=None if recipe.index is None else recipe.index.disagreement,
        validate_every=recipe.validation.every,
        log_every=settings.log_every,
        save_every=settings.save_every,
        keep_every=settings.keep_every or 0,
        steps_before=steps_before,
        seed=settings.seed,
    )


def warm_start_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the warm start: a softmax loss, on random batches of the same size."""
    part = recipe.warm_start
    table: dict[str, Any] = recipe.to_dict() | {
        "loss": {"name": part.loss},
        "regularizers": [],
        "sampler": {
            "name": "random",
            "batch_size": samples_per_batch(recipe),
            "drop_last": True,
        },
        "tune": {},
        "fine_tuning": {},
    }
    table["samples"] = table["samples"] | {"singletons": "count"}  # softmax has none
    table.pop("index", None)
    table["optimizer"] = table["optimizer"] | {"lr": part.lr, "loss": 10.0, "ema": None}
    table["schedule"] = {"steps": part.steps, "kind": "constant"}
    return Recipe.from_dict(table)


def init_head(recipe: Recipe, model: nn.Module, train: DataPart, *, batch_size: int = 128) -> None:
    """Initialize the embedding layer of an Embedder, and the norm of unnormalized embeddings.

    The layer of normalized embeddings keeps its scale: with a smaller scale each step of the
    optimizer would rotate it further.
    """
    part = recipe.model
    if not isinstance(model, Embedder) or part.dim is None:
        return
    if part.start in FILLERS:
        model.head.init_from_filler(part.start)
    elif part.start != "random":
        features = _features(model, train, batch_size)
        labels = train.dataset.labels.to(features.device)
        if part.start == "discriminants":
            model.head.init_from_lda(features, labels)
        else:
            model.head.init_from_whitening(features, labels)
    if part.start_norm and not part.normalize:
        count = min(_CALIBRATION, len(train.dataset))
        places = torch.linspace(0, len(train.dataset) - 1, count).long()
        some = train.part(train.dataset.subset(places))
        model.head.calibrate(_features(model, some, batch_size), norm=part.start_norm)


def densities_for(recipe: Recipe, model: nn.Module, train: DataPart) -> Tensor | None:
    """The original densities that a recipe's density adaptivity needs; None: it needs none."""
    for part in recipe.regularizers:
        if part.name == "density" and part.options.get("ratios", True):
            return original_densities(model, train, raw=part.options.get("raw", False)).cpu()
    return None


def original_densities(
    model: nn.Module, train: DataPart, *, raw: bool = False, batch_size: int = 128
) -> Tensor:
    """The mean squared distance of each class's features to their mean.

    The features are those before the embedding layer, normalized as are the embeddings that density
    adaptivity compares them with; raw: as they are.
    """
    features = _features(model, train, batch_size)
    features = features if raw else unit(features)
    labels = train.dataset.labels.to(features.device)
    count = train.dataset.num_classes
    means, sizes = class_means(features, labels, count)
    offsets = (features - means[labels]).square().sum(1)
    return (class_sums(offsets, labels, count) / sizes).float()


def _features(model: nn.Module, part: DataPart, batch_size: int) -> Tensor:
    """The pooled features of an Embedder; the embeddings of any other model."""
    return embed_all(model, part, batch_size=batch_size, what="features")


def make_objective(
    recipe: Recipe, *, num_classes: int, dim: int, seed: int, original: Tensor | None
) -> Objective:
    """The loss and its weighted regularizers; the seed draws their random parameters."""
    seed_everything(seed, 1)
    options = dict(recipe.loss.options)
    if getattr(LOSSES[recipe.loss.name], "takes", None) == "clusters":
        options.setdefault("reduction", "none")  # the sampler draws seed clusters by these losses
    loss = make_loss(
        recipe.loss.name,
        options,
        num_classes=num_classes,
        dim=dim,
        virtual_points=recipe.loss.virtual_points,
    )
    return Objective(
        loss,
        [
            Term(
                part.name,
                make_regularizer(
                    part.name, part.options, num_classes=num_classes, dim=dim, original=original
                ),
                part.weight,
                part.centers,
                part.share,
            )
            for part in recipe.regularizers
        ],
    )


def make_state(
    recipe: Recipe,
    settings: RunSettings,
    model: nn.Module,
    train: DataPart,
    *,
    dim: int,
    original: Tensor | None = None,
) -> State:
    """The state of a training before its first step."""
    device, seed = train.device, settings.seed
    if device.type == "cuda" and world_size() > 1:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model.to(device)
    if (
        settings.channels_last and train.settings is not None and train.features is None
    ):  # faster on CPU and GPU
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.model.freeze and isinstance(model, Embedder):
        freeze(model)
    elif recipe.model.batch_norm_frozen and isinstance(model, Embedder):
        model.freeze_batch_norm()
    objective = make_objective(
        recipe, num_classes=train.dataset.num_classes, dim=dim, seed=seed, original=original
    ).to(device)
    part = recipe.optimizer
    optimizer = make_optimizer(
        {
            **parameter_groups(model),
            "loss": list(objective.loss.parameters()),
            "targets": list(objective.terms.parameters()),
        },
        {"head": part.head, "loss": part.loss, "targets": part.targets},
        name=part.name,
        lr=part.lr,
        momentum=part.momentum,
        weight_decay=part.weight_decay,
        scales=None if part.layer_decay is None else layer_scales(model, part.layer_decay),
    )
    index = None
    if recipe.index is not None:
        index = ClusterIndex(
            recipe.index.clusters,  # type: ignore[arg-type]
            max_clusters=recipe.index.max_clusters,
            seed=seed,
        )
    sampler = _sampler(recipe, train.dataset.labels, index, seed)
    return State(
        model=model,
        objective=objective,
        optimizer=optimizer,
        precision=Precision(settings.in_precision(device), device),
        sampler=sampler,
        loader=train.batches(sampler, train=True, seed=seed),
        index=index,
        average=None if part.ema is None else WeightAverage(model, part.ema),
        samples=sample_options(recipe.samples, train.dataset, device),
    )


def _sampler(recipe: Recipe, labels: Tensor, index: ClusterIndex | None, seed: int) -> BatchSampler:
    options: Mapping[str, Any] = {
        **recipe.sampler.options,
        "seed": seed,
        "rank": rank(),
        "world_size": world_size(),
    }
    if index is not None:
        return neighborhoods(index, **options)
    return SAMPLERS[recipe.sampler.name](labels, **options)
