"""Models: backbones by name, the head, and the Embedder of both."""

from kinspace.models.backbones import BACKBONES, DEFAULT_BACKBONE, Backbone, make_backbone
from kinspace.models.embedder import Embedder, make_embedder
from kinspace.models.ensembles import Attention
from kinspace.models.googlenet import GoogLeNet
from kinspace.models.head import POOLINGS, Head, pool
from kinspace.models.mnist_convnet import MnistConvNet
from kinspace.models.parameter_groups import (
    batch_norms,
    freeze_batch_norm,
    layer_scales,
    parameter_groups,
)
from kinspace.models.preprocessing import Preprocessing
from kinspace.models.small import SmallNet
from kinspace.models.weights import load_weights, read_weights, save_weights

__all__ = [
    "BACKBONES",
    "DEFAULT_BACKBONE",
    "POOLINGS",
    "Attention",
    "Backbone",
    "Embedder",
    "GoogLeNet",
    "Head",
    "MnistConvNet",
    "Preprocessing",
    "SmallNet",
    "batch_norms",
    "freeze_batch_norm",
    "layer_scales",
    "load_weights",
    "make_backbone",
    "make_embedder",
    "parameter_groups",
    "pool",
    "read_weights",
    "save_weights",
]
