"""Models: backbones by name, the head, and the Embedder of both."""

from kinspace.models.backbones import BACKBONES, Backbone, make_backbone
from kinspace.models.embedder import Embedder, make_embedder
from kinspace.models.ensembles import Attention
from kinspace.models.googlenet import GoogLeNet
from kinspace.models.head import POOLINGS, Head, pool
from kinspace.models.preprocessing import Preprocessing
from kinspace.models.roles import batch_norms, freeze_batch_norm, roles
from kinspace.models.small import SmallNet
from kinspace.models.two_conv import TwoConv
from kinspace.models.weights import load_weights, read_weights, save_weights

__all__ = [
    "BACKBONES",
    "POOLINGS",
    "Attention",
    "Backbone",
    "Embedder",
    "GoogLeNet",
    "Head",
    "Preprocessing",
    "SmallNet",
    "TwoConv",
    "batch_norms",
    "freeze_batch_norm",
    "load_weights",
    "make_backbone",
    "make_embedder",
    "pool",
    "read_weights",
    "roles",
    "save_weights",
]
