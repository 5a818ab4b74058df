"""kinspace trains, judges, searches and explains embedding models.

The names below are loaded when they are first asked for: `import kinspace` alone is quick, and so
are the command line's help and the start of a process that needs only a part.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinspace import (
        clustering,
        data,
        distributed,
        losses,
        miners,
        numerics,
        regularizers,
        samplers,
    )
    from kinspace._kernels import use_kernels
    from kinspace.embeddings import EmbeddingTable
    from kinspace.inference import load
    from kinspace.losses import LOSSES
    from kinspace.regularizers import REGULARIZERS
    from kinspace.samplers import SAMPLERS
    from kinspace.training import train, tune

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "SAMPLERS",
    "EmbeddingTable",
    "__version__",
    "clustering",
    "data",
    "distributed",
    "load",
    "losses",
    "miners",
    "numerics",
    "regularizers",
    "samplers",
    "train",
    "tune",
    "use_kernels",
]

__version__ = "0.1.0"

_MODULE_OF = {
    "LOSSES": "losses",
    "REGULARIZERS": "regularizers",
    "SAMPLERS": "samplers",
    "EmbeddingTable": "embeddings",
    "load": "inference",
    "train": "training",
    "tune": "training",
    "use_kernels": "_kernels",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kinspace' has no attribute {name!r}")
    module = import_module(f"kinspace.{_MODULE_OF.get(name, name)}")
    return getattr(module, name) if name in _MODULE_OF else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
