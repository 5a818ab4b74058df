"""Recipes: loss, regularizers, sampler, model, optimizer and schedule of a run, in TOML.

`defaults/` has a short one for each method, `papers/` one for each setting the papers print.
"""

from kinspace.recipes.description import describe, formulas
from kinspace.recipes.model_sections import (
    IndexPart,
    LossPart,
    ModelPart,
    RegularizerPart,
    SamplerPart,
    TransformPart,
    WarmStartPart,
)
from kinspace.recipes.overrides import changed, parse_set, with_loss, with_regularizers
from kinspace.recipes.reading import read_recipe, recipe_names
from kinspace.recipes.recipe import Recipe
from kinspace.recipes.run_sections import (
    OptimizerPart,
    Range,
    SchedulePart,
    TestPart,
    ValidationPart,
)

__all__ = [
    "IndexPart",
    "LossPart",
    "ModelPart",
    "OptimizerPart",
    "Range",
    "Recipe",
    "RegularizerPart",
    "SamplerPart",
    "SchedulePart",
    "TestPart",
    "TransformPart",
    "ValidationPart",
    "WarmStartPart",
    "changed",
    "describe",
    "formulas",
    "parse_set",
    "read_recipe",
    "recipe_names",
    "with_loss",
    "with_regularizers",
]
