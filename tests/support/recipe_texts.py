"""Recipes from texts, by way of a file."""

from pathlib import Path

from kinspace.recipes import Recipe, read_recipe

MINIMAL = 'about = "a test"\n[loss]\nname = "nra"\n'


def read_text(folder: Path, text: str) -> Recipe:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_recipe(path)
