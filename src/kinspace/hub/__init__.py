"""A run as a model repository: a folder, or one on the Hugging Face Hub (extra `hub`).

    run.save_repository("my-model")                      # config.json, model.safetensors, README.md
    run.push_to_hub("user/photos", license="mit")
    model = kinspace.load("user/photos")

The page is docs/hub.md.
"""

from kinspace.hub.model_card import model_card
from kinspace.hub.repository import (
    fetch_repository,
    is_repository_name,
    push_to_hub,
    save_repository,
)

__all__ = [
    "fetch_repository",
    "is_repository_name",
    "model_card",
    "push_to_hub",
    "save_repository",
]
