"""Regularizers: added to any loss with a weight. `REGULARIZERS` maps names to modules.

Every module may be called as `module(vectors, labels)`. For density, divergence, adversarial,
orthogonal, entropy and global statistics the vectors are a batch of embeddings; for the spreads
they are class centers, one row a class (proxies of a loss, or means of the batch), and the labels
only say which to keep when centers are sampled.
"""

from torch import nn

from kinspace.regularizers.adversarial import Adversarial, adversarial_penalty
from kinspace.regularizers.center_sample import CenterSample, sample_centers
from kinspace.regularizers.density import DensityAdaptivity, density
from kinspace.regularizers.divergence import Divergence, divergence
from kinspace.regularizers.entropy import Entropy, entropy
from kinspace.regularizers.global_statistics import GlobalStatistics, global_statistics
from kinspace.regularizers.hyperspherical_energy import (
    HypersphericalEnergy,
    hyperspherical_energy,
)
from kinspace.regularizers.orthogonal import Orthogonal, orthogonal
from kinspace.regularizers.skewed_mean import (
    LogExpSpread,
    PowerSpread,
    log_exp_spread,
    power_spread,
)
from kinspace.regularizers.uniform import UniformSpread, uniform_spread

__all__ = [
    "REGULARIZERS",
    "Adversarial",
    "CenterSample",
    "DensityAdaptivity",
    "Divergence",
    "Entropy",
    "GlobalStatistics",
    "HypersphericalEnergy",
    "LogExpSpread",
    "Orthogonal",
    "PowerSpread",
    "UniformSpread",
    "adversarial_penalty",
    "density",
    "divergence",
    "entropy",
    "global_statistics",
    "hyperspherical_energy",
    "log_exp_spread",
    "orthogonal",
    "power_spread",
    "sample_centers",
    "uniform_spread",
]

REGULARIZERS: dict[str, type[nn.Module]] = {
    "adversarial": Adversarial,
    "density": DensityAdaptivity,
    "divergence": Divergence,
    "entropy": Entropy,
    "global_statistics": GlobalStatistics,
    "hyperspherical_energy": HypersphericalEnergy,
    "log_exp_spread": LogExpSpread,
    "orthogonal": Orthogonal,
    "power_spread": PowerSpread,
    "uniform_spread": UniformSpread,
}
