"""Adversarial regressors: no learner of one embedding should be foretold by another.

    R       = sum_{i < j} [ -mean (f_i * g_ij(f_j))^2 + c (P(W, b) + P(V, a)) ]
    g_ij(f) = relu(f W + b) V + a
    P(W, b) = mean_k (||w_k||^2 - 1)^2 + max(0, ||b||^2 - 1),   w_k the rows of W

f_i is the i-th group of dimensions (`kinspace.learners`) at length 1, the product is taken in each
dimension, and its mean is over samples and dimensions. For each pair a regressor g_ij of its own
brings the larger learner into the space of the smaller one; of two of one size the later into that
of the earlier. W, b, V and a follow the gradient of R: they make the two similar, and P keeps them
from doing so by growing. The embeddings get the reversed gradient of the similarity: they make the
two dissimilar. One learner: 0.

Opitz et al., Deep metric learning with BIER, TPAMI 2018 (arXiv 1801.04815), the adversarial loss of
A-BIER. Its text was not at hand: the formula, c = 100 and the 512 hidden units are those of the
authors' published code, and no equation is cited. A row w_k is, as there, what one input gives to
all outputs. The script beside that code has c = 100000 and the weight 0.00005 for R.

Deviations: there f is the embedding layer without its bias and before any normalization, R trains
that layer alone, and a term like P holds the layer's own rows. A function of embeddings does not
see these weights. So each learner has length 1 instead, which it cannot shrink or grow, and R
reaches the whole model; no printed weight of R fits these lengths. The start of the regressors,
random rows of length 1 and biases 0, is our choice.

The similarity grows with the rows as fast as P does: where c is small against the hidden units over
the smaller size, R has no lower bound and the regressors can run away. In trials c = 100 held 512
units for learners of 16 dimensions and more, but not of 8 and fewer: take a smaller `width` there.
"""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.learners import checked_groups, group_sizes
from kinspace.numerics import full_precision, unit
from kinspace.slopes import unit_with_pull, with_slopes

__all__ = ["Adversarial", "adversarial_penalty"]


@full_precision
def adversarial_penalty(
    embeddings: Tensor,
    hidden: Tensor,
    output: Tensor,
    *,
    groups: int | tuple[int, ...] = 3,
    weight_penalty: float = 100.0,
) -> Tensor:
    """The regressors' loss, its gradient by the embeddings reversed (module docstring).

    hidden (sum of larger size + 1, width): one pair of learners below another, [W; b].
    output (width + 1, sum of smaller sizes): one pair beside another, [V; a].
    The pairs are (1, 2), (1, 3), ..., (2, 3), ... of the learners in the order of their sizes.

    Two learners, both 1: -(1 * 2)^2 + 0.1 * (4 - 1)^2.

    >>> hidden, output = torch.tensor([[2.0], [0.0]]), torch.tensor([[1.0], [0.0]])
    >>> x = torch.ones(1, 2)
    >>> adversarial_penalty(x, hidden, output, groups=2, weight_penalty=0.1)
    tensor(-3.1000)
    """
    checks.vectors("embeddings", embeddings)
    checks.finite("weight_penalty", weight_penalty, at_least=0)
    sizes = group_sizes(groups, embeddings.shape[1])
    hidden, output = _layers(hidden, output, sizes, embeddings.dtype)
    similarity, *by_regressors = _similarity(embeddings, hidden, output, sizes)
    growth, *by_growth = _growth(hidden, output, sizes)
    by_hidden, by_output = (
        grown.mul_(weight_penalty).sub_(regressed)
        for grown, regressed in zip(by_growth, by_regressors[1:], strict=True)
    )
    return with_slopes(
        growth * weight_penalty - similarity,
        (embeddings, lambda: by_regressors[0]),  # reversed
        (hidden, lambda: by_hidden),
        (output, lambda: by_output),
    )


@torch.no_grad()
def _similarity(
    embeddings: Tensor, hidden: Tensor, output: Tensor, sizes: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sum mean (f_i * g_ij(f_j))^2, and its slopes by the embeddings and by both layers."""
    units, pulls = zip(*(unit_with_pull(part) for part in embeddings.split(sizes, 1)), strict=True)
    slopes = [torch.zeros_like(part) for part in units]
    values, by_hidden, by_output = [embeddings.new_zeros(())], [], []
    for (smaller, larger), first, second in _regressors(hidden, output, sizes):
        active = torch.addmm(first[-1], units[larger], first[:-1]).relu_()  # (batch, width)
        foretold = torch.addmm(second[-1], active, second[:-1])  # (batch, size of the smaller)
        product = units[smaller] * foretold
        values.append(product.square().mean())
        flow = product.mul_(2 / product.numel())
        slopes[smaller].addcmul_(flow, foretold)
        flow.mul_(units[smaller])
        by_output.append(_with_bias(active, flow))
        back = (flow @ second[:-1].T).mul_(active > 0)
        by_hidden.append(_with_bias(units[larger], back))
        slopes[larger].addmm_(back, first[:-1].T)
    pulled = [pull(slope) for pull, slope in zip(pulls, slopes, strict=True)]
    rows = torch.cat(by_hidden) if by_hidden else torch.zeros_like(hidden)
    columns = torch.cat(by_output, 1) if by_output else torch.zeros_like(output)
    return torch.stack(values).sum(), torch.cat(pulled, 1), rows, columns


def _with_bias(inputs: Tensor, flow: Tensor) -> Tensor:
    """The slope of a layer and, in the last row, of its bias, from that of its outputs."""
    return torch.cat((inputs.T @ flow, flow.sum(0, keepdim=True)))


@torch.no_grad()
def _growth(hidden: Tensor, output: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """sum P over all layers, how far rows are from length 1 and biases beyond it; both slopes."""
    layers = [layer for _, *both in _regressors(hidden, output, sizes) for layer in both]
    if not layers:
        return hidden.new_zeros(()), torch.zeros_like(hidden), torch.zeros_like(output)
    lengths = [len(layer) for layer in layers]
    # of each row of a layer its part of the mean, but of the last, the bias; made on the host
    real, none = hidden.dtype, torch.zeros(1, dtype=hidden.dtype)
    shares = [torch.full((rows - 1,), 1 / (rows - 1), dtype=real) for rows in lengths]
    means = torch.cat([part for share in shares for part in (share, none)])
    means = means.to(hidden.device, non_blocking=True)
    excess = torch.cat([layer.square().sum(1) for layer in layers]).sub_(1)
    beyond = excess.relu().masked_fill_(means > 0, 0)
    value = torch.addcmul(beyond, means * excess, excess).sum()
    # by the squared lengths, and these by the rows
    pulls = torch.addcmul((beyond > 0).to(means.dtype), means, excess, value=2).mul_(2)
    flows = [
        layer * pull[:, None] for layer, pull in zip(layers, pulls.split(lengths), strict=True)
    ]
    return value, torch.cat(flows[::2]), torch.cat(flows[1::2], 1)


def _pairs(sizes: list[int]) -> list[tuple[int, int]]:
    """Every pair of learners, the smaller first."""
    return list(combinations(sorted(range(len(sizes)), key=lambda place: sizes[place]), 2))


def _regressors(
    hidden: Tensor, output: Tensor, sizes: list[int]
) -> list[tuple[tuple[int, int], Tensor, Tensor]]:
    """Every pair, and the layers of its regressor."""
    pairs = _pairs(sizes)
    firsts = hidden.split([sizes[larger] + 1 for _, larger in pairs])
    seconds = output.split([sizes[smaller] for smaller, _ in pairs], 1)
    return list(zip(pairs, firsts, seconds, strict=True))


def _shapes(sizes: list[int], width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    pairs = _pairs(sizes)
    rows, columns = sum(sizes[j] + 1 for _, j in pairs), sum(sizes[i] for i, _ in pairs)
    return (rows, width), (width + 1, columns)


def _layers(
    hidden: Tensor, output: Tensor, sizes: list[int], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The layers, checked, in the dtype of the embeddings."""
    width = hidden.shape[1] if isinstance(hidden, Tensor) and hidden.ndim == 2 else 0
    named = {"hidden": hidden, "output": output}
    for (name, value), shape in zip(named.items(), _shapes(sizes, width), strict=True):
        fits = isinstance(value, Tensor) and value.shape == shape and value.is_floating_point()
        if not (fits and width):
            came = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else value
            raise ValueError(
                f"{name}: expected floating point numbers of shape {shape} for {width} units and "
                f"learners of sizes {sizes}, got {came}"
            )
    return hidden.to(dtype), output.to(dtype)


class Adversarial(nn.Module):
    """`adversarial_penalty` with its regressors; give them to the optimizer too.

    width: the hidden units of each regressor. Labels are taken and not used.

    >>> penalty = Adversarial(dim=7, groups=(2, 5), width=4)
    >>> penalty.hidden.shape, penalty.output.shape
    (torch.Size([6, 4]), torch.Size([5, 2]))
    """

    def __init__(
        self,
        dim: int,
        *,
        groups: int | tuple[int, ...] = 3,
        width: int = 512,
        weight_penalty: float = 100.0,
    ) -> None:
        super().__init__()
        checks.whole("dim", dim, at_least=1)
        checks.whole("width", width, at_least=1)
        self.groups = checked_groups(groups)
        self.weight_penalty = checks.finite("weight_penalty", weight_penalty, at_least=0)
        sizes = group_sizes(groups, dim)
        hidden, output = (torch.randn(shape) for shape in _shapes(sizes, width))
        for _, *layers in _regressors(hidden, output, sizes):
            for layer in layers:
                layer.copy_(unit(layer))
                layer[-1] = 0
        self.hidden, self.output = nn.Parameter(hidden), nn.Parameter(output)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        return adversarial_penalty(
            embeddings,
            self.hidden,
            self.output,
            groups=self.groups,
            weight_penalty=self.weight_penalty,
        )

    def extra_repr(self) -> str:
        width = self.hidden.shape[1]
        return f"groups={self.groups}, width={width}, weight_penalty={self.weight_penalty}"
