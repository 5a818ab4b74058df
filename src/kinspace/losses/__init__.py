"""Losses: a function and, beside it in the same file, a module. `LOSSES` maps names to modules.

`PAIRED_LOSSES` has those of two views, of queries and keys, or of a student and a teacher.

Losses of pairs and triplets take a reference, to which the samples of the batch are then compared:
a memory of earlier batches, a gallery, the vectors of a teacher, a second view.

- reference (rows, dim) and reference_labels (rows,): every row of the embeddings is an anchor, and
  all positives and negatives are rows of the reference. Nothing is left out as "itself".
- includes_batch: the reference begins with the batch itself, and no sample is its own positive.

Every loss of labels takes `ignore_label`, where it is a mean of terms `weights` and `singletons`,
and words as labels where it has no table of classes; some take a matrix of labels, some a
`distance`, a word of `DISTANCES`. What these do is in docs/methods.md under "How to use them".

Triplet, contrastive and margin loss take chosen pairs (P, 2) or triplets (T, 3), rows of indices as
miners return them: anchors are rows of the embeddings, the others of the reference where there is
one.
"""

from torch import nn

from kinspace._core.distances import DISTANCES
from kinspace.losses.adacos import AdaCos, adacos_loss
from kinspace.losses.almn import ALMN, almn_loss
from kinspace.losses.angular import Angular, angular_loss
from kinspace.losses.arcface import ArcFace, arcface_loss
from kinspace.losses.barlow_twins import BarlowTwins, barlow_twins_loss
from kinspace.losses.bier import BIER, bier_loss
from kinspace.losses.center import Center, center_loss
from kinspace.losses.circle import Circle, circle_loss
from kinspace.losses.class_centers import ClassCenters, update_centers
from kinspace.losses.cluster_nca import ClusterNCA, cluster_nca_loss
from kinspace.losses.clustering import Clustering, clustering_loss
from kinspace.losses.contrastive import Contrastive, contrastive_loss
from kinspace.losses.cosface import CosFace, cosface_loss
from kinspace.losses.cross_batch_memory import CrossBatchMemory
from kinspace.losses.fast_ap import FastAP, fast_ap_loss
from kinspace.losses.fixed_margin import FixedMargin, fixed_margin_loss
from kinspace.losses.hdc import HDC, hdc_loss
from kinspace.losses.hierarchical_triplet import (
    HierarchicalTriplet,
    hierarchical_triplet_loss,
)
from kinspace.losses.hist import HIST, hist_loss
from kinspace.losses.histogram import Histogram, histogram_loss
from kinspace.losses.info_nce import InfoNCE, info_nce_loss
from kinspace.losses.lifted_structure import LiftedStructure, lifted_structure_loss
from kinspace.losses.magnet import Magnet, magnet_loss
from kinspace.losses.margin import Margin, margin_loss
from kinspace.losses.matryoshka import Matryoshka
from kinspace.losses.multi_similarity import MultiSimilarity, multi_similarity_loss
from kinspace.losses.n_pair import NPair, n_pair_loss
from kinspace.losses.nca import NCA, nca_loss
from kinspace.losses.ncm import NCM, ncm_loss
from kinspace.losses.nra import NRA, nra_loss
from kinspace.losses.nt_xent import NTXent, nt_xent_loss
from kinspace.losses.pddm import PDDM, pddm_loss
from kinspace.losses.pfml import PFML, pfml_loss
from kinspace.losses.proxy_anchor import ProxyAnchor, proxy_anchor_loss
from kinspace.losses.proxy_nca import ProxyNCA, proxy_nca_loss
from kinspace.losses.rank_extremes import rank_statistics
from kinspace.losses.ranked_list import RankedList, ranked_list_loss
from kinspace.losses.recall_surrogate import RecallSurrogate, recall_surrogate_loss
from kinspace.losses.relational import (
    RelationalAngle,
    RelationalDistance,
    relational_angle_loss,
    relational_distance_loss,
)
from kinspace.losses.roadmap import Roadmap, roadmap_loss
from kinspace.losses.sigmoid_pair import SigmoidPair, sigmoid_pair_loss
from kinspace.losses.smooth_ap import SmoothAP, smooth_ap_loss
from kinspace.losses.soft_triple import SoftTriple, soft_triple_loss
from kinspace.losses.softmax import (
    NormalizedSoftmax,
    Softmax,
    normalized_softmax_loss,
    softmax_loss,
)
from kinspace.losses.sphereface import SphereFace, sphereface_loss
from kinspace.losses.sub_center_arcface import SubCenterArcFace, sub_center_arcface_loss
from kinspace.losses.supcon import SupCon, supcon_loss
from kinspace.losses.triplet import Triplet, triplet_loss
from kinspace.losses.tuplet_margin import TupletMargin, tuplet_margin_loss
from kinspace.losses.vicreg import VICReg, vicreg_loss
from kinspace.losses.virtual_points import VirtualPoints, virtual_points

__all__ = [
    "ALMN",
    "BIER",
    "DISTANCES",
    "HDC",
    "HIST",
    "LOSSES",
    "NCA",
    "NCM",
    "NRA",
    "PAIRED_LOSSES",
    "PDDM",
    "PFML",
    "AdaCos",
    "Angular",
    "ArcFace",
    "BarlowTwins",
    "Center",
    "Circle",
    "ClassCenters",
    "ClusterNCA",
    "Clustering",
    "Contrastive",
    "CosFace",
    "CrossBatchMemory",
    "FastAP",
    "FixedMargin",
    "HierarchicalTriplet",
    "Histogram",
    "InfoNCE",
    "LiftedStructure",
    "Magnet",
    "Margin",
    "Matryoshka",
    "MultiSimilarity",
    "NPair",
    "NTXent",
    "NormalizedSoftmax",
    "ProxyAnchor",
    "ProxyNCA",
    "RankedList",
    "RecallSurrogate",
    "RelationalAngle",
    "RelationalDistance",
    "Roadmap",
    "SigmoidPair",
    "SmoothAP",
    "SoftTriple",
    "Softmax",
    "SphereFace",
    "SubCenterArcFace",
    "SupCon",
    "Triplet",
    "TupletMargin",
    "VICReg",
    "VirtualPoints",
    "adacos_loss",
    "almn_loss",
    "angular_loss",
    "arcface_loss",
    "barlow_twins_loss",
    "bier_loss",
    "center_loss",
    "circle_loss",
    "cluster_nca_loss",
    "clustering_loss",
    "contrastive_loss",
    "cosface_loss",
    "fast_ap_loss",
    "fixed_margin_loss",
    "hdc_loss",
    "hierarchical_triplet_loss",
    "hist_loss",
    "histogram_loss",
    "info_nce_loss",
    "lifted_structure_loss",
    "magnet_loss",
    "margin_loss",
    "multi_similarity_loss",
    "n_pair_loss",
    "nca_loss",
    "ncm_loss",
    "normalized_softmax_loss",
    "nra_loss",
    "nt_xent_loss",
    "pddm_loss",
    "pfml_loss",
    "proxy_anchor_loss",
    "proxy_nca_loss",
    "rank_statistics",
    "ranked_list_loss",
    "recall_surrogate_loss",
    "relational_angle_loss",
    "relational_distance_loss",
    "roadmap_loss",
    "sigmoid_pair_loss",
    "smooth_ap_loss",
    "soft_triple_loss",
    "softmax_loss",
    "sphereface_loss",
    "sub_center_arcface_loss",
    "supcon_loss",
    "triplet_loss",
    "tuplet_margin_loss",
    "update_centers",
    "vicreg_loss",
    "virtual_points",
]

LOSSES: dict[str, type[nn.Module]] = {
    "adacos": AdaCos,
    "almn": ALMN,
    "angular": Angular,
    "arcface": ArcFace,
    "bier": BIER,
    "center": Center,
    "circle": Circle,
    "cluster_nca": ClusterNCA,
    "clustering": Clustering,
    "contrastive": Contrastive,
    "cosface": CosFace,
    "fast_ap": FastAP,
    "fixed_margin": FixedMargin,
    "hdc": HDC,
    "hierarchical_triplet": HierarchicalTriplet,
    "hist": HIST,
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
    "nt_xent": NTXent,
    "pddm": PDDM,
    "pfml": PFML,
    "proxy_anchor": ProxyAnchor,
    "proxy_nca": ProxyNCA,
    "ranked_list": RankedList,
    "recall_surrogate": RecallSurrogate,
    "roadmap": Roadmap,
    "smooth_ap": SmoothAP,
    "soft_triple": SoftTriple,
    "softmax": Softmax,
    "sphereface": SphereFace,
    "sub_center_arcface": SubCenterArcFace,
    "supcon": SupCon,
    "triplet": Triplet,
    "tuplet_margin": TupletMargin,
}

# Losses of two tables that have a row for each sample: queries and keys, two views, student and
# teacher. Their modules are called on both, without labels.
PAIRED_LOSSES: dict[str, type[nn.Module]] = {
    "barlow_twins": BarlowTwins,
    "info_nce": InfoNCE,
    "relational_angle": RelationalAngle,
    "relational_distance": RelationalDistance,
    "sigmoid_pair": SigmoidPair,
    "vicreg": VICReg,
}
