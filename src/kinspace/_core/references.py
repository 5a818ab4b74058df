"""What the samples of a batch are compared to: each other, or a reference; and chosen pairs.

A reference is a memory of earlier batches, a gallery, the vectors of a teacher, a second view.
Every row of the batch is then an anchor, and all positives and negatives are rows of the reference.
Nothing is left out as "itself", unless the reference begins with the batch (`includes_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.tensor_ops import is_traced

__all__ = [
    "Miner",
    "PairIndex",
    "checked_miner",
    "checked_tuples",
    "chosen",
    "chosen_pairs",
    "compared",
    "given_pairs",
    "given_triplets",
    "mined_triplets",
    "triplets_of_pairs",
]


@runtime_checkable
class Miner(Protocol):
    """A function of embeddings and labels, and of a reference where there is one.

    It returns indices: triplets (T, 3) of anchors, positives and negatives, or pairs (P, 2).
    """

    def __call__(self, *args: Any, **options: Any) -> Tensor: ...


def compared(
    embeddings: Tensor,
    labels: Tensor,
    reference: Tensor | None,
    reference_labels: Tensor | None,
    includes_batch: bool = False,
) -> tuple[Tensor | None, ClassIndex]:
    """The reference in the embeddings' dtype, None where it is the batch, and the classes of both.

    >>> x, y = torch.zeros(2, 3), torch.tensor([4, 7])
    >>> compared(x, y, torch.zeros(3, 3), torch.tensor([7, 4, 7]))[1].sizes
    tensor([1, 2])
    """
    labels = checks.labels(embeddings, labels)
    if reference is None:
        if reference_labels is not None or includes_batch:
            wrong = "reference_labels" if reference_labels is not None else "includes_batch"
            raise ValueError(f"{wrong}: expected a reference with it, got none")
        return None, ClassIndex(labels)
    reference = checks.matching_rows("reference", reference, embeddings)
    if reference_labels is None:
        raise ValueError("reference_labels: expected the labels of the reference, got none")
    other = checks.labels(reference, reference_labels, name="reference_labels", rows="reference")
    if includes_batch:
        _check_that_the_batch_comes_first(labels, other)
    return reference, ClassIndex(labels, other, includes_batch=includes_batch)


def _check_that_the_batch_comes_first(labels: Tensor, reference_labels: Tensor) -> None:
    size = len(labels)
    if len(reference_labels) < size or (
        labels.is_cpu and not is_traced(labels) and not labels.equal(reference_labels[:size])
    ):
        raise ValueError(
            f"includes_batch: expected a reference that begins with the {size} rows of the batch, "
            "got one with other labels; put the batch first, or leave includes_batch out"
        )


def chosen_pairs(pairs: Tensor, index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    """The first and the second samples of given pairs (P, 2), checked; which are of one class.

    >>> chosen_pairs(torch.tensor([[0, 1], [0, 2]]), ClassIndex(torch.tensor([5, 5, 1])))
    (tensor([0, 0]), tensor([1, 2]), tensor([ True, False]))
    """
    sizes = len(index.labels), len(index.others)
    first, second = checked_tuples("pairs", pairs, 2, sizes).unbind(1)
    return first, second, index.labels[first] == index.others[second]


def given_pairs(pairs: Tensor | None, triplets: Tensor | None, index: ClassIndex) -> Tensor | None:
    """The pairs (P, 2) that were given, or those of given triplets (T, 3); None of neither.

    >>> given_pairs(None, torch.tensor([[0, 1, 2]]), ClassIndex(torch.tensor([5, 5, 1])))
    tensor([[0, 1],
            [0, 2]])
    """
    if triplets is None:
        return pairs
    if pairs is not None:
        raise ValueError("pairs: expected pairs or triplets, got both")
    triplets = checked_tuples("triplets", triplets, 3, (len(index.labels), len(index.others)))
    return torch.cat([triplets[:, :2], triplets[:, ::2]])


class PairIndex:
    """The chosen pairs of a batch where a `ClassIndex` has all of them.

    >>> whole = ClassIndex(torch.tensor([5, 5, 1]))
    >>> index = PairIndex(torch.tensor([[0, 1], [0, 2]]), whole)
    >>> index.positives[1][0], index.different[0]
    (tensor([False,  True, False]), tensor([False, False,  True]))
    """

    def __init__(self, pairs: Tensor, index: ClassIndex) -> None:
        first, second, same = chosen_pairs(pairs, index)
        self._columns = torch.arange(len(index.others), device=index.others.device)
        none = torch.zeros_like(index.same)
        self._positive = none.index_put((first[same], second[same]), same.new_ones(()))
        self.different = none.index_put((first[~same], second[~same]), same.new_ones(()))

    @property
    def positives(self) -> tuple[Tensor, Tensor]:
        """For each sample all others, and which of them are chosen and of its class."""
        return self._columns.expand_as(self._positive), self._positive

    @property
    def same(self) -> Tensor:
        """Mask of what is no negative."""
        return ~self.different


def chosen(pairs: Tensor | None, triplets: Tensor | None, index: ClassIndex) -> Any:
    """The index of given pairs, or of those of given triplets; of neither the index itself."""
    given = given_pairs(pairs, triplets, index)
    return index if given is None else PairIndex(given, index)


def given_triplets(
    pairs: Tensor | None, triplets: Tensor | None, index: ClassIndex
) -> Tensor | None:
    """The triplets (T, 3) that were given, or all of given pairs (P, 2); None of neither."""
    if triplets is not None and pairs is not None:
        raise ValueError("triplets: expected pairs or triplets, got both")
    if pairs is not None:
        return triplets_of_pairs(pairs, index)
    if triplets is None:
        return None
    return checked_tuples("triplets", triplets, 3, (len(index.labels), len(index.others)))


def triplets_of_pairs(pairs: Tensor, index: ClassIndex) -> Tensor:
    """All triplets (T, 3) of a same pair and a different pair with one first sample.

    >>> index = ClassIndex(torch.tensor([5, 5, 1, 1]))
    >>> triplets_of_pairs(torch.tensor([[0, 1], [0, 2], [1, 0], [0, 3]]), index)
    tensor([[0, 1, 2],
            [0, 1, 3]])
    """
    first, second, same = chosen_pairs(pairs, index)
    anchor, positive = first[same], second[same]
    other, negative = first[~same], second[~same]
    row, column = (anchor[:, None] == other).nonzero().unbind(1)
    return torch.stack([anchor[row], positive[row], negative[column]], 1)


def checked_tuples(name: str, tuples: Tensor, width: int, sizes: tuple[int, int]) -> Tensor:
    """A table of indices (P, 2) or (T, 3), checked.

    sizes: how many samples the first column is of, and how many the others.

    >>> checked_tuples("pairs", torch.tensor([[0, 3]]), 2, (3, 3))
    Traceback (most recent call last):
    ValueError: pairs: expected indices in 0..2, got 3..3
    """
    if not isinstance(tuples, Tensor) or tuples.ndim != 2 or tuples.shape[1] != width:
        came = tuple(tuples.shape) if isinstance(tuples, Tensor) else type(tuples).__name__
        letter = "P" if width == 2 else "T"
        raise ValueError(f"{name}: expected a tensor of shape ({letter}, {width}), got {came}")
    if tuples.is_floating_point() or tuples.dtype == torch.bool:
        raise ValueError(f"{name}: expected integers, got {tuples.dtype}")
    if len(tuples) and tuples.is_cpu and not is_traced(tuples):
        for columns, size in zip((tuples[:, :1], tuples[:, 1:]), sizes, strict=True):
            low, high = (int(end) for end in columns.aminmax())
            if low < 0 or high >= size:
                raise ValueError(f"{name}: expected indices in 0..{size - 1}, got {low}..{high}")
    return tuples.long()


def checked_miner(name: str, value: str | Miner, names: Iterable[str]) -> str | Miner:
    """A miner, or the name of one.

    >>> checked_miner("mining", "all", ["all", "semi_hard"])
    'all'
    """
    if isinstance(value, str) or not callable(value):
        return checks.choice(name, value, names)
    return value


def mined_triplets(
    miner: Miner, embeddings: Tensor, reference: Tensor | None, index: ClassIndex
) -> Tensor:
    """The triplets (T, 3) of a miner, which may return pairs; a constant of the gradient."""
    others: dict[str, Any] = {}
    if reference is not None:
        others = {"reference": reference.detach(), "reference_labels": index.others}
        if index.excludes_itself:
            others["includes_batch"] = True
    with torch.no_grad():
        found = miner(embeddings.detach(), index.labels, **others)
    if isinstance(found, Tensor) and found.ndim == 2 and found.shape[1] == 2:
        return triplets_of_pairs(found, index)
    return checked_tuples("triplets", found, 3, (len(index.labels), len(index.others)))
