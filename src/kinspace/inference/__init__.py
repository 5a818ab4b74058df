"""A model in use: encode, search, classify, embed whole data sets, export to ONNX."""

from kinspace.evaluation.thresholds import Thresholds, calibrate
from kinspace.inference.dataset_embedding import embed_dataset, embed_to_file
from kinspace.inference.export import Exported, export_run
from kinspace.inference.gallery_additions import AddedPictures, add_pictures
from kinspace.inference.loader import load
from kinspace.inference.model import EmbeddingModel
from kinspace.inference.onnx import export_onnx
from kinspace.inference.pretrained import pretrained_model, pretrained_run
from kinspace.inference.program import export_program
from kinspace.search.class_votes import UNKNOWN, Added, Neighbor, Verdict
from kinspace.search.run_gallery import gallery_recall, index_run, rebuild_index

__all__ = [
    "UNKNOWN",
    "Added",
    "AddedPictures",
    "EmbeddingModel",
    "Exported",
    "Neighbor",
    "Thresholds",
    "Verdict",
    "add_pictures",
    "calibrate",
    "embed_dataset",
    "embed_to_file",
    "export_onnx",
    "export_program",
    "export_run",
    "gallery_recall",
    "index_run",
    "load",
    "pretrained_model",
    "pretrained_run",
    "rebuild_index",
]
