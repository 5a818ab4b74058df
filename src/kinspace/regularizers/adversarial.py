"""Adversarial regressors: no subembedding of a vector should be predictable from another.

    R       = sum_{i < j} [ -mean (f_i * g_ij(f_j))^2 + c (P(W, b) + P(V, a)) ]
    g_ij(f) = relu(f W + b) V + a
    P(W, b) = mean_k (||w_k||^2 - 1)^2 + max(0, ||b||^2 - 1),   w_k the rows of W

f_i is the i-th group of dimensions (`groups`: how many, or their sizes) at length 1, the product is
taken in each dimension, and its mean is over samples and dimensions. For each pair a regressor g_ij
of its own brings the larger group into the space of the smaller one; of two of one size the later
into that of the earlier. W, b, V and a follow the gradient of R: they make the two similar, and P
keeps them from doing so by growing. The embeddings get the reversed gradient of the similarity:
they make the two dissimilar. One group: 0.

Opitz et al., Deep metric learning with BIER, TPAMI 2018 (arXiv 1801.04815), the adversarial loss of
A-BIER. Its text was not at hand: the formula, c = 100 and the 512 hidden units are those of the
authors' published code, and no equation is cited. A row w_k is, as there, what one input gives to
all outputs. The script beside that code has c = 100000 and the weight 0.00005 for R.

Deviations: there f is the embedding layer without its bias and before any normalization, R trains
that layer alone, and a term like P holds the layer's own rows. A function of embeddings does not
see these weights. So each group has length 1 instead, which it cannot shrink or grow, and R reaches
the whole model; no printed weight of R fits these lengths. The start of the regressors, random rows
of length 1 and biases 0, is our choice.

The similarity grows with the rows as fast as P does: where c is small against the hidden units over
the smaller size, R has no lower bound and the regressors can run away. In trials c = 100 held 512
units for groups of 16 dimensions and more, but not of 8 and fewer: take a smaller `width` there.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision, zero_with_grad
from kinspace._core.vectors import Groups, checked_groups, group_sizes, unit

__all__ = ["Adversarial", "adversarial_penalty"]


@full_precision
@takes_options(groups=checked_groups, weight_penalty=checks.at_least(0))
def adversarial_penalty(
    embeddings: Tensor,
    hidden: Tensor,
    output: Tensor,
    *,
    groups: Groups = 3,
    weight_penalty: float = 100.0,
) -> Tensor:
    """The regressors' loss, its gradient by the embeddings reversed (module docstring).

    hidden (sum of larger size + 1, width): one pair of groups below another, [W; b].
    output (width + 1, sum of smaller sizes): one pair beside another, [V; a].
    The pairs are (1, 2), (1, 3), ..., (2, 3), ... of the groups in the order of their sizes.

    Two groups, both 1: -(1 * 2)^2 + 0.1 * (4 - 1)^2.

    >>> hidden, output = torch.tensor([[2.0], [0.0]]), torch.tensor([[1.0], [0.0]])
    >>> x = torch.ones(1, 2)
    >>> adversarial_penalty(x, hidden, output, groups=2, weight_penalty=0.1)
    tensor(-3.1000)
    """
    checks.vectors("embeddings", embeddings)
    sizes = group_sizes(groups, embeddings.shape[1])
    width = max(1, hidden.shape[1]) if isinstance(hidden, Tensor) and hidden.ndim == 2 else 1
    inputs, (rows, columns) = f"{width} units and groups of sizes {sizes}", _shapes(sizes, width)
    hidden = checks.layer("hidden", hidden, rows, inputs, embeddings)
    output = checks.layer("output", output, columns, inputs, embeddings)
    parts = sorted(embeddings.split(sizes, 1), key=lambda part: part.shape[1])
    units = [_reversed(unit(part)) for part in parts]
    total = zero_with_grad(embeddings, hidden, output)
    pairs = zip(combinations(units, 2), _regressors(hidden, output, sizes), strict=True)
    for (f_i, f_j), (first, second) in pairs:
        predicted = _affine(_affine(f_j, first).relu(), second)  # g_ij(f_j), like f_i
        similarity = (f_i * predicted).square().mean()
        total = total - similarity + weight_penalty * (_growth(first) + _growth(second))
    return total


def _affine(x: Tensor, layer: Tensor) -> Tensor:
    """x W + b of a layer [W; b]."""
    weight, bias = layer.split([len(layer) - 1, 1])
    return torch.addmm(bias, x, weight)


def _reversed(x: Tensor) -> Tensor:
    """x, with its gradient reversed: the value of -x + 2x, 2x a constant."""
    return 2 * x.detach() - x


def _growth(layer: Tensor) -> Tensor:
    """P of a layer [W; b]."""
    squares: Tensor = layer.square().sum(1) - 1  # of the rows of W, then of b
    return squares[:-1].square().mean() + squares[-1].relu()


def _regressors(hidden: Tensor, output: Tensor, sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    """The layers [W; b] and [V; a] of each pair."""
    pairs = list(combinations(sorted(sizes), 2))
    firsts = hidden.split([larger + 1 for _, larger in pairs])
    seconds = output.split([smaller for smaller, _ in pairs], 1)
    return list(zip(firsts, seconds, strict=True)) if pairs else []


def _shapes(sizes: list[int], width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    pairs = list(combinations(sorted(sizes), 2))
    rows, columns = sum(larger + 1 for _, larger in pairs), sum(smaller for smaller, _ in pairs)
    return (rows, width), (width + 1, columns)


class Adversarial(nn.Module):
    """`adversarial_penalty` with its regressors; give them to the optimizer too.

    width: the hidden units of each regressor. Labels are taken and not used.

    >>> penalty = Adversarial(dim=7, groups=(2, 5), width=4)
    >>> penalty.hidden.shape, penalty.output.shape
    (torch.Size([6, 4]), torch.Size([5, 2]))
    """

    __call__: Callable[..., Tensor]
    takes = "embeddings"

    def __init__(
        self, dim: int, *, groups: Groups = 3, width: int = 512, weight_penalty: float = 100.0
    ) -> None:
        super().__init__()
        dim = checks.integer("dim", dim, at_least=1)
        width = checks.integer("width", width, at_least=1)
        keep_options(self, adversarial_penalty, groups=groups, weight_penalty=weight_penalty)
        sizes = group_sizes(groups, dim)
        hidden, output = (torch.randn(shape) for shape in _shapes(sizes, width))
        for layers in _regressors(hidden, output, sizes):
            for layer in layers:
                layer.copy_(unit(layer))
                layer[-1] = 0
        self.hidden, self.output = nn.Parameter(hidden), nn.Parameter(output)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        return adversarial_penalty(embeddings, self.hidden, self.output, **kept_options(self))

    def extra_repr(self) -> str:
        width = self.hidden.shape[1]
        return f"width={width}, {options_repr(self, 'groups', 'weight_penalty')}"
