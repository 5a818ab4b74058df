"""What the loss is told of the samples of a batch: weights, and whom to ignore.

A recipe names classes and an attribute (`SamplesConfig`); here they become a weight for each sample
of the training part, and the number of a class in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kinspace.data import Dataset
from kinspace.recipes.fields import require_choice
from kinspace.recipes.sections import SamplesConfig

__all__ = ["SampleOptions", "require_names", "sample_options"]


@dataclass(frozen=True, eq=False)
class SampleOptions:
    """Options of the loss for any batch of the training part.

    weights: one for each of its samples, on the device of the training.

    >>> SampleOptions(torch.tensor([1.0, 0.5]), ignore_label=3)(torch.tensor([1, 1, 0]))
    {'weights': tensor([0.5000, 0.5000, 1.0000]), 'ignore_label': 3}
    """

    weights: Tensor | None = None
    ignore_label: int | None = None
    singletons: str = "count"

    def __call__(self, indices: Tensor) -> dict[str, Any]:
        """The options for the batch of these samples."""
        found: dict[str, Any] = {}
        if self.weights is not None:
            found["weights"] = self.weights[indices.to(self.weights.device)]
        if self.ignore_label is not None:
            found["ignore_label"] = self.ignore_label
        if self.singletons != "count":
            found["singletons"] = self.singletons
        return found


def sample_options(
    config: SamplesConfig, train: Dataset, device: torch.device
) -> SampleOptions | None:
    """The options of a recipe for its training part; None where it has none.

    Classes that are held out of the training part have no samples there to weight or to ignore.

    >>> from kinspace.data import digits_dataset
    >>> options = sample_options(
    ...     SamplesConfig({"3": 2}, ignore="8"), digits_dataset(), torch.device("cpu")
    ... )
    >>> options.weights.unique(), options.ignore_label
    (tensor([1., 2.]), 8)
    """
    if not config.options:
        return None
    ignored = None
    if config.ignore in train.class_names:
        ignored = train.class_names.index(config.ignore)
    weights = None
    if "weights" in config.options:
        weights = (_class_weights(config, train, ignored) * _own_weights(config, train)).to(device)
    return SampleOptions(weights, ignored, config.singletons)


def require_names(config: SamplesConfig, dataset: Dataset) -> None:
    """Raise a ValueError for a class or an attribute that the data set does not have."""
    classes = [] if config.ignore is None else [("samples.ignore", config.ignore)]
    if isinstance(config.weights, Mapping):
        classes += [("samples.weights", name) for name in config.weights]
    for key, name in classes:
        require_choice(key, name, dataset.class_names, what="class")
    if config.attribute is not None:
        names = () if dataset.attributes is None else dataset.attributes.names
        require_choice("samples.attribute", config.attribute, names, what="attribute")


def _class_weights(config: SamplesConfig, train: Dataset, ignored: int | None) -> Tensor:
    """The weight of each sample by its class, (samples,)."""
    if config.weights == "balanced":
        sizes = train.labels.bincount().float()
        taken = torch.arange(len(sizes)) != (-1 if ignored is None else ignored)
        by_class = sizes[taken].mean() / sizes
    else:
        weights = config.weights or {}
        by_class = torch.tensor([weights.get(name, 1.0) for name in train.class_names])
    return by_class[train.labels]


def _own_weights(config: SamplesConfig, train: Dataset) -> Tensor:
    """The weight of each sample by its attribute, (samples,)."""
    if config.attribute is None:
        return torch.ones(len(train))
    assert train.attributes is not None  # `require_names` has checked the whole
    return train.attributes.values[:, train.attributes.names.index(config.attribute)]
