"""Parameter groups of a model for the optimizer, the rates of its layers, its batch norm."""

from __future__ import annotations

from torch import nn

__all__ = ["batch_norms", "freeze_batch_norm", "layer_scales", "parameter_groups"]

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


def layer_scales(model: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Factors of the learning rates of a backbone's layers: decay ** (layers after it).

    Layers are those of timm's `group_matcher`, for a transformer its blocks; of other nets the
    submodules of the trunk in their order. Parameters elsewhere, as of the head, have none.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False))
    >>> list(layer_scales(net, 0.5).values())
    [0.5, 0.5, 1.0]
    """
    backbone = getattr(model, "backbone", model)
    trunk: nn.Module = getattr(backbone, "trunk", backbone)
    if hasattr(trunk, "group_matcher"):
        from timm.models import group_parameters

        layers: dict[str, int] = group_parameters(trunk, trunk.group_matcher(), reverse=True)  # type: ignore[operator]
    else:
        firsts = list(dict.fromkeys(name.split(".")[0] for name, _ in trunk.named_parameters()))
        layers = {name: firsts.index(name.split(".")[0]) for name, _ in trunk.named_parameters()}
    last = max(layers.values(), default=0)
    return {value: decay ** (last - layers[name]) for name, value in trunk.named_parameters()}


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
