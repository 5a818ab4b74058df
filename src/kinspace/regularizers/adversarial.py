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

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.learners import checked_groups, group_sizes
from kinspace.numerics import full_precision, unit
from kinspace.slopes import across_, with_slopes, without_zero

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
    value, by_hidden, by_output = found = _growth(hidden, output, sizes, weight_penalty)
    by_embeddings = _take_similarity(found, embeddings, (hidden, output), sizes)
    return with_slopes(
        value,
        (embeddings, lambda: by_embeddings),  # reversed
        (hidden, lambda: by_hidden),
        (output, lambda: by_output),
    )


@torch.no_grad()
def _growth(
    hidden: Tensor, output: Tensor, sizes: list[int], weight_penalty: float
) -> tuple[Tensor, Tensor, Tensor]:
    """c P summed over all layers, and its slopes by both."""
    outputs = (second for *_, second in _regressors(hidden, output, sizes))
    lengths = [torch.linalg.vector_norm(rows, dim=-1).flatten() for rows in (hidden, *outputs)]
    excess = torch.cat(lengths).square_().sub_(1)
    steepness, steps, shares = _row_weights(hidden, sizes, weight_penalty)
    pulls = torch.addcmul(steepness * excess, steps, excess > 0)
    value = torch.dot(pulls * excess, shares)
    of_hidden, *of_outputs = pulls.split([len(part) for part in lengths])
    by_hidden, by_output = hidden * of_hidden[:, None], output.clone()
    regressors = _regressors(by_hidden, by_output, sizes)
    for (*_, second), pull in zip(regressors, of_outputs, strict=True):
        second.mul_(pull.view(*second.shape[:2], 1))
    return value, by_hidden, by_output


def _row_weights(hidden: Tensor, sizes: list[int], weight_penalty: float) -> Tensor:
    """Three numbers for each row of each layer, (3, rows), the hidden layers first.

    With x = ||row||^2 - 1, the part of c P that is the row's is third x (first x + second [x > 0]),
    and its slope by the row is (first x + second [x > 0]) row. The first is 0 for a bias, the
    second for all others.
    """
    sources = [larger for _, larger in combinations(sorted(sizes), 2)]
    rows = sources + [hidden.shape[1]] * len(sources)
    steepness = [part for count in rows for part in (4 * weight_penalty / count, 0.0)]
    weights = [steepness, [0.0, 2 * weight_penalty] * len(rows), [0.25, 0.5] * len(rows)]
    counts = torch.tensor([part for count in rows for part in (count, 1)], dtype=torch.long)
    # made on the host, so that one copy is all that the device does
    table = torch.tensor(weights, dtype=hidden.dtype).repeat_interleave(
        counts, 1, output_size=sum(rows) + len(rows)
    )
    return table.to(hidden.device, non_blocking=True)


@torch.no_grad()
def _take_similarity(
    found: tuple[Tensor, Tensor, Tensor],
    embeddings: Tensor,
    layers: tuple[Tensor, Tensor],
    sizes: list[int],
) -> Tensor:
    """Take sum mean (f_i * g_ij(f_j))^2 from a value and its slopes by both layers, in place.

    Returns the slope of that sum by the embeddings.
    """
    value, by_hidden, by_output = found
    units, pull = _units_with_pull(embeddings, sizes)
    by_units, (batch, width) = torch.zeros_like(units), (len(units), layers[0].shape[1])
    regressors = _regressors(*layers, sizes)
    pairs = zip(regressors, _regressors(by_hidden, by_output, sizes), strict=True)
    most = max((len(first) for *_, first, _ in regressors), default=0)
    actives, backs = units.new_empty(most, batch, width + 1), units.new_empty(most, batch, width)
    actives[..., -1] = 1  # what a bias is multiplied by: its slope is then made with the others
    for (smaller, larger, first, second), (*_, by_first, by_second) in pairs:
        size, source = second.shape[2], first.shape[1]
        (target, inputs), (by_target, by_inputs) = (  # (batch, size), (pairs, batch, source)
            (table[:, smaller, :size], table[:, larger, :source].transpose(0, 1))
            for table in (units, by_units)
        )
        inputs[..., -1] = 1
        active, back = actives[: len(first)], backs[: len(first)]
        active[..., :-1].baddbmm_(inputs, first, beta=0)
        foretold = torch.bmm(active.relu_(), second)  # (pairs, batch, size)
        product, scale = foretold * target, 2 / (batch * size)
        value.sub_(torch.dot(product.flatten(), product.flatten()), alpha=scale / 2)
        for one, other in zip(product.unbind(), foretold.unbind(), strict=True):
            by_target.addcmul_(one, other, value=scale)
        flow = product.mul_(target)
        by_second.baddbmm_(active.mT, flow, alpha=-scale)
        back.baddbmm_(flow, second[:, :-1].mT, beta=0, alpha=scale)
        torch.ops.aten.threshold_backward.grad_input(back, active[..., :-1], 0, grad_input=back)
        by_first.baddbmm_(inputs.mT, back, alpha=-1)
        by_inputs[..., :-1].baddbmm_(back, first[:, :-1].mT)
    return pull(by_units)


def _units_with_pull(
    embeddings: Tensor, sizes: list[int]
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The learners in the order of their sizes at length 1, and what takes a gradient back.

    They are a table (batch, learners, largest size + 1), where all but the learners is zeros.
    """
    order = sorted(range(len(sizes)), key=lambda place: sizes[place])
    parts, largest = embeddings.split(sizes, 1), max(sizes) + 1
    zeros = embeddings.new_zeros(len(embeddings), largest - min(sizes))
    padded = [part for at in order for part in (parts[at], zeros[:, : largest - sizes[at]])]
    units = torch.cat(padded, 1).view(-1, len(sizes), largest)
    divisors = without_zero(torch.linalg.vector_norm(units, dim=-1, keepdim=True))
    units.div_(divisors)

    def pull(grad: Tensor) -> Tensor:
        across_(grad, units).div_(divisors)
        learners = (grad[:, order.index(place), :size] for place, size in enumerate(sizes))
        return torch.cat(list(learners), 1)

    return units, pull


def _regressors(
    hidden: Tensor, output: Tensor, sizes: list[int]
) -> list[tuple[int, slice, Tensor, Tensor]]:
    """The layers of all pairs, in stacks: of one smaller learner, and of larger ones of one size.

    Returns the places of these in the order of sizes, and views (pairs, rows, columns) of layers.
    """
    ordered, found = sorted(sizes), []
    row = column = 0
    for smaller, size in enumerate(ordered):
        start = smaller + 1
        while start < len(ordered):
            alike = ordered[start:].count(ordered[start]) if _stacks(hidden) else 1
            rows, columns = alike * (ordered[start] + 1), alike * size
            first = hidden[row : row + rows].unflatten(0, (alike, -1))
            second = output[:, column : column + columns].unflatten(1, (alike, -1))
            found.append((smaller, slice(start, start + alike), first, second.transpose(0, 1)))
            start, row, column = start + alike, row + rows, column + columns
    return found


def _stacks(hidden: Tensor) -> bool:
    """Whether to take pairs together: fewer launches on a GPU, on a CPU only more memory.

    torch.compile cannot write into such stacks of an output layer.
    """
    return hidden.is_cuda and not torch.compiler.is_compiling()


def _shapes(sizes: list[int], width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    pairs = list(combinations(sorted(sizes), 2))
    rows, columns = sum(larger + 1 for _, larger in pairs), sum(smaller for smaller, _ in pairs)
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
        for *_, first, second in _regressors(hidden, output, sizes):
            for layer in (first, second):
                layer.copy_(unit(layer))
                layer[:, -1] = 0
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
