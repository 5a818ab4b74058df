"""kinspace trains, judges, searches and explains embedding models.

Today: the losses and regularizers of deep metric learning, as functions and modules.
"""

from kinspace import distributed, losses, miners, numerics, regularizers
from kinspace.losses import LOSSES
from kinspace.regularizers import REGULARIZERS

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "__version__",
    "distributed",
    "losses",
    "miners",
    "numerics",
    "regularizers",
]

__version__ = "0.1.0"
