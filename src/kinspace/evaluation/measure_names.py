"""The measures that tables and pages show, by key: their titles."""

__all__ = ["MEASURES"]

MEASURES = {
    "recall@1": "Recall@1",
    "recall@2": "Recall@2",
    "recall@4": "Recall@4",
    "recall@8": "Recall@8",
    "map@r": "MAP@R",
    "r_precision": "R-precision",
    "map": "mAP",
}
