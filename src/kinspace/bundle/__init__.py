"""A run folder as a bundle: the model, its gallery and thresholds, ready to be asked."""

from kinspace.bundle.answers import UNKNOWN, Added, Neighbor, Verdict
from kinspace.bundle.embedding import embed_dataset, embed_to_file
from kinspace.bundle.indexing import index_run
from kinspace.bundle.loading import load
from kinspace.bundle.model import Model
from kinspace.bundle.onnx import export_onnx
from kinspace.bundle.thresholds import Thresholds, calibrate

__all__ = [
    "UNKNOWN",
    "Added",
    "Model",
    "Neighbor",
    "Thresholds",
    "Verdict",
    "calibrate",
    "embed_dataset",
    "embed_to_file",
    "export_onnx",
    "index_run",
    "load",
]
