"""Recipes: loss, regularizers, sampler, model, optimizer and schedule of a run, in TOML.

`defaults/` has a short one for each method, `papers/` one for each setting the papers print.
"""

from kinspace.recipes.overrides import parse_set, with_changes, with_loss, with_regularizers
from kinspace.recipes.recipe_files import (
    default_recipe,
    describe,
    describe_as_dict,
    formulas,
    list_recipes,
    read_recipe,
    recipe_names,
)
from kinspace.recipes.schema import Recipe
from kinspace.recipes.sections import (
    IndexConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    Range,
    RegularizerConfig,
    SamplerConfig,
    ScheduleConfig,
    TestConfig,
    TransformConfig,
    ValidationConfig,
    WarmStartConfig,
)

__all__ = [
    "IndexConfig",
    "LossConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Range",
    "Recipe",
    "RegularizerConfig",
    "SamplerConfig",
    "ScheduleConfig",
    "TestConfig",
    "TransformConfig",
    "ValidationConfig",
    "WarmStartConfig",
    "default_recipe",
    "describe",
    "describe_as_dict",
    "formulas",
    "list_recipes",
    "parse_set",
    "read_recipe",
    "recipe_names",
    "with_changes",
    "with_loss",
    "with_regularizers",
]
