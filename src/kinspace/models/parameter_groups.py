"""Parameter groups of a model for the optimizer, and its batch norm layers."""

from __future__ import annotations

from torch import nn

__all__ = ["batch_norms", "freeze_batch_norm", "parameter_groups"]

# SyncBatchNorm and the lazy forms are among its subclasses
_BATCH_NORM = nn.modules.batchnorm._BatchNorm


def parameter_groups(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """A model's parameters, each once, as "head" and "backbone"; an empty group is left out.

    The head is the submodule `head`, where there is one; all else is the backbone. Frozen
    parameters are in it, since they may thaw. An optimizer sets its multipliers by group.

    >>> {name: len(found) for name, found in parameter_groups(nn.Linear(2, 3)).items()}
    {'backbone': 2}
    """
    head = getattr(model, "head", None)
    of_head = list(head.parameters()) if isinstance(head, nn.Module) else []
    known = {id(parameter) for parameter in of_head}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    return {name: found for name, found in (("backbone", rest), ("head", of_head)) if found}


def batch_norms(model: nn.Module) -> dict[str, nn.Module]:
    """The batch norm layers of a model by name.

    >>> list(batch_norms(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    ['1']
    """
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BATCH_NORM)}


def freeze_batch_norm(model: nn.Module, *, affine: bool = False) -> None:
    """Put every batch norm in eval mode: it uses its running mean and variance and keeps them.

    affine: its scale and shift stay trainable. `model.train()` undoes the mode: call this after
    it. `Embedder.freeze_batch_norm` remembers by itself.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> freeze_batch_norm(model); model[1].training, model[1].weight.requires_grad
    (False, False)
    """
    for layer in batch_norms(model).values():
        layer.eval()
        if not affine:
            layer.requires_grad_(False)
