"""What the samples of a batch are compared to: each other, or a reference; and chosen pairs.

A reference is a memory of earlier batches, a gallery, the vectors of a teacher, a second view.
Every row of the batch is then an anchor, and all positives and negatives are rows of the reference.
Nothing is left out as "itself", unless the reference begins with the batch (`includes_batch`).

What is of one kind is said by one label a sample; by several, a matrix of 0 and 1 (batch, classes),
where samples that share a label are positives; or by how similar the labels are, floating point
numbers from 0 to 1 (batch, rows compared to), where all above 0 are positives.
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
    "Index",
    "Miner",
    "PairIndex",
    "RelevanceIndex",
    "checked_miner",
    "checked_tuples",
    "chosen",
    "chosen_pairs",
    "compared",
    "given_pairs",
    "given_triplets",
    "mined_triplets",
    "own_classes",
    "related",
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
    labels: Any,
    reference: Tensor | None,
    reference_labels: Any,
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


def related(
    embeddings: Tensor,
    labels: Any,
    reference: Tensor | None,
    reference_labels: Any,
    includes_batch: bool = False,
) -> tuple[Tensor | None, Index]:
    """`compared`, for formulas that take a matrix of labels as well (module docstring).

    >>> several = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    >>> related(torch.zeros(3, 2), several, None, None)[1].sizes
    tensor([2, 2, 1])
    """
    if not isinstance(labels, Tensor) or labels.ndim != 2:
        return compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.vectors("embeddings", embeddings)
    if reference is not None:
        reference = checks.matching_rows("reference", reference, embeddings)
    rows = embeddings if reference is None else reference
    if labels.is_floating_point():
        if reference_labels is not None:
            raise ValueError("reference_labels: expected none beside similarities of labels")
        relevance = _checked_similarities(labels, len(embeddings), len(rows), reference is None)
    else:
        labels = _checked_label_matrix("labels", labels, embeddings, "embeddings")
        others = labels
        if reference is not None:
            if not isinstance(reference_labels, Tensor) or reference_labels.ndim != 2:
                raise ValueError("reference_labels: expected a matrix like the labels")
            others = _checked_label_matrix("reference_labels", reference_labels, rows, "reference")
            if others.shape[1] != labels.shape[1]:
                raise ValueError(
                    f"reference_labels: expected {labels.shape[1]} columns like the labels, "
                    f"got shape {tuple(others.shape)}"
                )
        # as numbers, of which integers have no product on a GPU
        relevance = (labels.float() @ others.float().T) > 0
    if includes_batch and (reference is None or len(rows) < len(embeddings)):
        raise ValueError("includes_batch: expected a reference that begins with the batch")
    return reference, RelevanceIndex(relevance, includes_batch or reference is None)


def _checked_label_matrix(name: str, labels: Tensor, rows: Tensor, what: str) -> Tensor:
    if len(labels) != len(rows) or not labels.shape[1]:
        raise ValueError(
            f"{name}: expected ({len(rows)}, classes), one row for each of the {what}, "
            f"got {tuple(labels.shape)}"
        )
    if labels.is_cpu and not is_traced(labels):
        low, high = (int(end) for end in labels.long().aminmax())
        if low < 0 or high > 1:
            raise ValueError(
                f"{name}: expected 0 and 1 in a matrix (batch, classes), got {low}..{high} in "
                f"shape {tuple(labels.shape)}"
            )
    return labels


def _checked_similarities(labels: Tensor, batch: int, rows: int, own: bool) -> Tensor:
    if labels.shape != (batch, rows):
        raise ValueError(
            f"labels: expected similarities of shape ({batch}, {rows}), each sample to what it is "
            f"compared to, got {tuple(labels.shape)}; a matrix of labels has .bool()"
        )
    if labels.is_cpu and not is_traced(labels):
        if not bool(((labels >= 0) & (labels <= 1)).all()):
            raise ValueError("labels: expected similarities from 0 to 1, got others")
        if own and not bool((labels.diagonal() == 1).all() and torch.equal(labels, labels.T)):
            raise ValueError(
                "labels: expected similarities that are symmetric, and 1 of a sample to itself, "
                "got others; a matrix of labels has .bool()"
            )
    return labels


def own_classes(embeddings: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mask (batch, classes) of the classes of each sample: of its label, or a matrix of 0 and 1.

    >>> own_classes(torch.zeros(2, 3), torch.tensor([1, 0]), 2)
    tensor([[False,  True],
            [ True, False]])
    """
    if not isinstance(labels, Tensor) or labels.ndim != 2 or labels.is_floating_point():
        labels = checks.labels(embeddings, labels, num_classes)
        return labels[:, None] == torch.arange(num_classes, device=labels.device)
    checks.vectors("embeddings", embeddings)
    labels = _checked_label_matrix("labels", labels, embeddings, "embeddings")
    if labels.shape[1] != num_classes:
        raise ValueError(
            f"labels: expected {num_classes} columns, one a class, got {tuple(labels.shape)}"
        )
    return labels.bool()


class RelevanceIndex:
    """What a `ClassIndex` has, from the relevance (batch, rows) of each row for each sample.

    relevance: bool, or how relevant from 0 to 1.

    >>> index = RelevanceIndex(torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> index.positives[1], index.grades[0]
    (tensor([[False,  True, False],
            [ True, False, False],
            [False, False, False]]), tensor([0.0000, 0.5000, 0.0000]))
    """

    def __init__(self, relevance: Tensor, excludes_itself: bool = True) -> None:
        self.excludes_itself = excludes_itself
        device = relevance.device
        self.labels, self.others = (torch.arange(size, device=device) for size in relevance.shape)
        itself = self.labels[:, None] == self.others
        related = relevance if relevance.dtype == torch.bool else ~(relevance <= 0)
        self.same = related | itself if excludes_itself else related
        self._positive = related & ~itself if excludes_itself else related
        self._relevance = relevance

    @property
    def different(self) -> Tensor:
        """Mask (batch, rows) of the negatives."""
        return ~self.same

    @property
    def positives(self) -> tuple[Tensor, Tensor]:
        """For each sample all rows, and which of them are positives."""
        return self.others.expand_as(self.same), self._positive

    @property
    def grades(self) -> Tensor | None:
        """How relevant the positives are, 0 for other rows; None where all count alike."""
        return self._relevance * self._positive if self._relevance.is_floating_point() else None

    @property
    def opposites(self) -> Tensor:
        """How irrelevant the rows are, 1 less the grade; 0 of a sample to itself."""
        return (1 - self._relevance) * (self._positive | self.different)

    @property
    def sizes(self) -> Tensor:
        """How many rows are relevant for each sample, itself included, (batch,)."""
        return self.same.sum(1)

    @property
    def comparisons(self) -> int:
        """How many ordered pairs there are of a sample and another one."""
        return len(self.labels) * (len(self.others) - int(self.excludes_itself))

    def joins(self, first: Tensor, second: Tensor) -> Tensor:
        """Whether rows are positives of samples."""
        return self.same[first, second]


Index = ClassIndex | RelevanceIndex


def _check_that_the_batch_comes_first(labels: Tensor, reference_labels: Tensor) -> None:
    size = len(labels)
    if len(reference_labels) < size or (
        labels.is_cpu and not is_traced(labels) and not labels.equal(reference_labels[:size])
    ):
        raise ValueError(
            f"includes_batch: expected a reference that begins with the {size} rows of the batch, "
            "got one with other labels; put the batch first, or leave includes_batch out"
        )


def chosen_pairs(pairs: Tensor, index: Index) -> tuple[Tensor, Tensor, Tensor]:
    """The first and the second samples of given pairs (P, 2), checked; which are of one class.

    >>> chosen_pairs(torch.tensor([[0, 1], [0, 2]]), ClassIndex(torch.tensor([5, 5, 1])))
    (tensor([0, 0]), tensor([1, 2]), tensor([ True, False]))
    """
    sizes = len(index.labels), len(index.others)
    first, second = checked_tuples("pairs", pairs, 2, sizes).unbind(1)
    return first, second, index.joins(first, second)


def given_pairs(pairs: Tensor | None, triplets: Tensor | None, index: Index) -> Tensor | None:
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

    def __init__(self, pairs: Tensor, index: Index) -> None:
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


def chosen(pairs: Tensor | None, triplets: Tensor | None, index: Index) -> Any:
    """The index of given pairs, or of those of given triplets; of neither the index itself."""
    given = given_pairs(pairs, triplets, index)
    return index if given is None else PairIndex(given, index)


def given_triplets(pairs: Tensor | None, triplets: Tensor | None, index: Index) -> Tensor | None:
    """The triplets (T, 3) that were given, or all of given pairs (P, 2); None of neither."""
    if triplets is not None and pairs is not None:
        raise ValueError("triplets: expected pairs or triplets, got both")
    if pairs is not None:
        return triplets_of_pairs(pairs, index)
    if triplets is None:
        return None
    return checked_tuples("triplets", triplets, 3, (len(index.labels), len(index.others)))


def triplets_of_pairs(pairs: Tensor, index: Index) -> Tensor:
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
