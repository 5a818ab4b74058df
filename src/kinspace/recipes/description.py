"""What a recipe does, in full: formulas and every option."""

from __future__ import annotations

import inspect

from kinspace.losses import LOSSES
from kinspace.recipes.recipe import Recipe
from kinspace.regularizers import REGULARIZERS

__all__ = ["describe", "formulas"]


def formulas(recipe: Recipe) -> dict[str, str]:
    """For the loss and each regularizer the text of its file: formula, symbols, paper.

    >>> from kinspace.recipes import read_recipe
    >>> list(formulas(read_recipe("density")))
    ['triplet', 'density']
    """
    modules = {recipe.loss.name: LOSSES[recipe.loss.name]}
    modules |= {part.name: REGULARIZERS[part.name] for part in recipe.regularizers}
    return {name: inspect.getdoc(inspect.getmodule(cls)) or "" for name, cls in modules.items()}


def describe(recipe: Recipe) -> str:
    """The recipe as TOML with every option and default, the formulas in comments above.

    It is a recipe file of its own: what a reader changes in it, `read_recipe` reads.

    >>> from kinspace.recipes import read_recipe
    >>> print(describe(read_recipe("nra"))[:42])
    # NRA: a loss on nonlinear approximated ra
    """
    texts = "\n\n".join(formulas(recipe).values())
    comment = "\n".join(f"# {line}".rstrip() for line in texts.splitlines())
    return f"{comment}\n\n{recipe.resolved().to_toml()}"
