"""An experiment on digits that takes seconds: two rows, a narrow net, a few steps."""

from pathlib import Path
from typing import Any

TOML = """
title = "Two losses on digits"
paper = "No paper's"
data = "digits"
measures = ["recall@1", "recall@3", "nmi", "f1", "map@r", "views_recall@1"]

[settings]
model = { dim = 8, options = { width = 4, size = 16 } }
transform = { size = 16, resize = 18 }
schedule.steps = 20
validation = { fraction = 0.4, every = 10 }

[[rows]]
name = "contrastive"
recipe = "contrastive"
printed = [
    { data = "digits", source = "Nobody, Table 9", "recall@1" = 12.3, nmi = 45.6 },
    { data = "cub200", source = "Nobody, Table 8", "recall@1" = 78.9 },
]

[[rows]]
name = "triplet"
title = "triplet, 0.3"
recipe = "triplet"
views = true
settings.loss.margin = 0.3
"""
OPTIONS: dict[str, Any] = {"device": "cpu", "workers": 1, "commit": "abc"}


def written(folder: Path, text: str = TOML, name: str = "small") -> Path:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file
