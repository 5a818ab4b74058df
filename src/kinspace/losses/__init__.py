"""Losses: a function and, beside it in the same file, a module. `LOSSES` maps names to modules.

Losses of pairs and triplets take a reference, to which the samples of the batch are then compared:
a memory of earlier batches, a gallery, the vectors of a teacher, a second view.

- reference (rows, dim) and reference_labels (rows,): every row of the embeddings is an anchor, and
  all positives and negatives are rows of the reference. Nothing is left out as "itself".
- includes_batch: the reference begins with the batch itself, and no sample is its own positive.

Triplet, contrastive and margin loss take chosen pairs (P, 2) or triplets (T, 3), rows of indices as
miners return them: anchors are rows of the embeddings, the others of the reference where there is
one.
"""

from torch import nn

from kinspace.losses.almn import ALMN, almn_loss, virtual_points
from kinspace.losses.angular import Angular, angular_loss
from kinspace.losses.bier import BIER, bier_loss
from kinspace.losses.center import Center, center_loss
from kinspace.losses.circle import Circle, circle_loss
from kinspace.losses.class_centers import ClassCenters, update_centers
from kinspace.losses.cluster_nca import ClusterNCA, cluster_nca_loss
from kinspace.losses.clustering import Clustering, clustering_loss
from kinspace.losses.contrastive import Contrastive, contrastive_loss
from kinspace.losses.cross_batch_memory import CrossBatchMemory
from kinspace.losses.fixed_margin import FixedMargin, fixed_margin_loss
from kinspace.losses.hdc import HDC, hdc_loss
from kinspace.losses.hierarchical_triplet import (
    HierarchicalTriplet,
    hierarchical_triplet_loss,
)
from kinspace.losses.histogram import Histogram, histogram_loss
from kinspace.losses.lifted_structure import LiftedStructure, lifted_structure_loss
from kinspace.losses.magnet import Magnet, magnet_loss
from kinspace.losses.margin import Margin, margin_loss
from kinspace.losses.multi_similarity import MultiSimilarity, multi_similarity_loss
from kinspace.losses.n_pair import NPair, n_pair_loss
from kinspace.losses.nca import NCA, nca_loss
from kinspace.losses.ncm import NCM, ncm_loss
from kinspace.losses.nra import NRA, nra_loss, rank_statistics
from kinspace.losses.pddm import PDDM, pddm_loss
from kinspace.losses.proxy_anchor import ProxyAnchor, proxy_anchor_loss
from kinspace.losses.proxy_nca import ProxyNCA, proxy_nca_loss
from kinspace.losses.softmax import (
    NormalizedSoftmax,
    Softmax,
    normalized_softmax_loss,
    softmax_loss,
)
from kinspace.losses.supcon import SupCon, supcon_loss
from kinspace.losses.triplet import Triplet, triplet_loss

__all__ = [
    "ALMN",
    "BIER",
    "HDC",
    "LOSSES",
    "NCA",
    "NCM",
    "NRA",
    "PDDM",
    "Angular",
    "Center",
    "Circle",
    "ClassCenters",
    "ClusterNCA",
    "Clustering",
    "Contrastive",
    "CrossBatchMemory",
    "FixedMargin",
    "HierarchicalTriplet",
    "Histogram",
    "LiftedStructure",
    "Magnet",
    "Margin",
    "MultiSimilarity",
    "NPair",
    "NormalizedSoftmax",
    "ProxyAnchor",
    "ProxyNCA",
    "Softmax",
    "SupCon",
    "Triplet",
    "almn_loss",
    "angular_loss",
    "bier_loss",
    "center_loss",
    "circle_loss",
    "cluster_nca_loss",
    "clustering_loss",
    "contrastive_loss",
    "fixed_margin_loss",
    "hdc_loss",
    "hierarchical_triplet_loss",
    "histogram_loss",
    "lifted_structure_loss",
    "magnet_loss",
    "margin_loss",
    "multi_similarity_loss",
    "n_pair_loss",
    "nca_loss",
    "ncm_loss",
    "normalized_softmax_loss",
    "nra_loss",
    "pddm_loss",
    "proxy_anchor_loss",
    "proxy_nca_loss",
    "rank_statistics",
    "softmax_loss",
    "supcon_loss",
    "triplet_loss",
    "update_centers",
    "virtual_points",
]

LOSSES: dict[str, type[nn.Module]] = {
    "almn": ALMN,
    "angular": Angular,
    "bier": BIER,
    "center": Center,
    "circle": Circle,
    "cluster_nca": ClusterNCA,
    "clustering": Clustering,
    "contrastive": Contrastive,
    "fixed_margin": FixedMargin,
    "hdc": HDC,
    "hierarchical_triplet": HierarchicalTriplet,
    "histogram": Histogram,
    "lifted_structure": LiftedStructure,
    "magnet": Magnet,
    "margin": Margin,
    "multi_similarity": MultiSimilarity,
    "n_pair": NPair,
    "nca": NCA,
    "ncm": NCM,
    "normalized_softmax": NormalizedSoftmax,
    "nra": NRA,
    "pddm": PDDM,
    "proxy_anchor": ProxyAnchor,
    "proxy_nca": ProxyNCA,
    "softmax": Softmax,
    "supcon": SupCon,
    "triplet": Triplet,
}
