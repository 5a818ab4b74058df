"""kinspace trains, evaluates, searches and explains embedding models.

Every name is imported when it is first used, so that `import kinspace` and the help of the command
line do not import PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinspace import (
        clustering,
        data,
        distributed,
        evaluation,
        losses,
        miners,
        models,
        numerics,
        regularizers,
        samplers,
        search,
        sklearn,
        training,
    )
    from kinspace._kernels import use_kernels
    from kinspace.embeddings import EmbeddingTable
    from kinspace.evaluation import compare, evaluate
    from kinspace.inference import EmbeddingModel, load
    from kinspace.losses import LOSSES
    from kinspace.objective import Objective
    from kinspace.recipes import Recipe
    from kinspace.regularizers import REGULARIZERS
    from kinspace.run import Run
    from kinspace.samplers import SAMPLERS
    from kinspace.training import train, tune

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "SAMPLERS",
    "EmbeddingModel",
    "EmbeddingTable",
    "Objective",
    "Recipe",
    "Run",
    "__version__",
    "clustering",
    "compare",
    "data",
    "distributed",
    "evaluate",
    "evaluation",
    "load",
    "losses",
    "miners",
    "models",
    "numerics",
    "regularizers",
    "samplers",
    "search",
    "sklearn",
    "train",
    "training",
    "tune",
    "use_kernels",
]

__version__ = "0.2.0"

_MODULE_OF = {  # the other names are modules themselves
    "LOSSES": "losses",
    "REGULARIZERS": "regularizers",
    "SAMPLERS": "samplers",
    "EmbeddingModel": "inference",
    "EmbeddingTable": "embeddings",
    "Objective": "objective",
    "Recipe": "recipes",
    "Run": "run",
    "compare": "evaluation",
    "evaluate": "evaluation",
    "load": "inference",
    "train": "training",
    "tune": "training",
    "use_kernels": "_kernels",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kinspace' has no attribute {name!r}")
    module = import_module(f"kinspace.{_MODULE_OF.get(name, name)}")
    value = getattr(module, name) if name in _MODULE_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__.copy()
