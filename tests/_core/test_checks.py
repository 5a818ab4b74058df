"""What may be given, and the errors that say what came and what was expected."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kinspace._core import checks

X = torch.zeros(4, 3)
Y = torch.tensor([0, 1, 2, 1])

# A call that fails, and the whole error text.
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: checks.vectors("rows", [1.0]), "rows: expected a torch.Tensor, got list"),
    (lambda: checks.vectors("rows", X[0]), "rows: expected a matrix (rows, dim), got shape (3,)"),
    (
        lambda: checks.vectors("rows", X.long()),
        "rows: expected floating point numbers, got torch.int64",
    ),
    (
        lambda: checks.vectors("rows", X[:0]),
        "rows: expected at least one row and one column, got shape (0, 3)",
    ),
    (
        lambda: checks.labels(X, Y[:3]),
        "labels: expected shape (4,), one for each row of embeddings, got (3,)",
    ),
    (lambda: checks.labels(X, 1), "labels: expected a torch.Tensor, got int"),
    (lambda: checks.labels(X, Y.half()), "labels: expected integers, got torch.float16"),
    (lambda: checks.labels(X, Y > 1), "labels: expected integers, got torch.bool"),
    (lambda: checks.labels(X, Y - 1), "labels: expected 0 or more, got -1"),
    (
        lambda: checks.labels(X, Y, 2),
        "labels: expected less than 2 (one row each), got 2",
    ),
    (
        lambda: checks.labels(X, Y, 2, name="clusters"),
        "clusters: expected less than 2 (one row each), got 2",
    ),
    (
        lambda: checks.labels(X, Y.to("meta")),
        "labels: expected them on cpu like the embeddings, got meta",
    ),
    (
        lambda: checks.matching_rows("proxies", X, X[:, :2]),
        "proxies: expected 2 columns like the embeddings, got shape (4, 3)",
    ),
    (
        lambda: checks.class_vector("targets", X),
        "targets: expected a floating point vector, one entry a class, got torch.float32 (4, 3)",
    ),
    (
        lambda: checks.class_vector("targets", 0.5),
        "targets: expected a floating point vector, one entry a class, got 0.5",
    ),
    (
        lambda: checks.class_vector("targets", X[0], 4),
        "targets: expected 4 entries, one a class, got 3",
    ),
    (lambda: checks.number("margin", "1"), "margin: expected a number, got '1'"),
    (lambda: checks.number("margin", True), "margin: expected a number, got True"),
    (lambda: checks.number("margin", math.inf), "margin: expected a finite number, got inf"),
    (lambda: checks.number("rate", -1, at_least=0), "rate: expected at least 0, got -1"),
    (lambda: checks.positive("scale", 0.0), "scale: expected a number above 0, got 0.0"),
    (lambda: checks.positive("scale", math.nan), "scale: expected a finite number, got nan"),
    (lambda: checks.integer("bins", 2.0, at_least=2), "bins: expected a whole number, got 2.0"),
    (lambda: checks.integer("bins", True, at_least=0), "bins: expected a whole number, got True"),
    (lambda: checks.integer("bins", 1, at_least=2), "bins: expected at least 2, got 1"),
    (
        lambda: checks.number("margin", torch.ones(2)),
        "margin: expected a number, got a tensor torch.float32 (2,)",
    ),
    (
        lambda: checks.number("margin", torch.tensor(1)),
        "margin: expected a number, got a tensor torch.int64 ()",
    ),
    (
        lambda: checks.number("margin", torch.tensor(math.nan)),
        "margin: expected a finite number, got nan",
    ),
    (lambda: checks.number("margin", 1j), "margin: expected a number, got 1j"),
    (lambda: checks.number("margin", None), "margin: expected a number, got None"),
    (
        lambda: checks.positive("scale", torch.tensor(0.0)),
        "scale: expected a number above 0, got 0.0",
    ),
    (
        lambda: checks.positive("scale", np.float32(-2)),
        "scale: expected a number above 0, got -2.0",
    ),
    (
        lambda: checks.integer("bins", np.float64(2), at_least=2),
        "bins: expected a whole number, got np.float64(2.0)",
    ),
    (
        lambda: checks.choice("mining", "hard", ("all", "semi_hard")),
        "mining: expected one of 'all', 'semi_hard', got 'hard'",
    ),
]


@pytest.mark.parametrize(("call", "text"), WRONG, ids=[text for _, text in WRONG])
def test_an_error_says_what_came_and_what_was_expected(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        call()
    assert str(caught.value) == text


def test_labels_come_back_as_int64() -> None:
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        found = checks.labels(X, Y.to(dtype), 3)
        assert found.dtype == torch.int64
        assert torch.equal(found, Y)


def test_what_is_right_comes_back_as_it_is() -> None:
    assert checks.vectors("rows", X) is X
    assert checks.matching_rows("proxies", X, X) is X
    assert checks.matching_rows("proxies", X, X.double()).dtype == torch.float64
    assert checks.class_vector("targets", X[0], 3).shape == (3,)
    assert checks.number("margin", -2) == -2
    assert checks.number("margin", 0, at_least=0) == 0
    assert checks.positive("scale", 1e-300) == 1e-300
    assert checks.integer("bins", 2, at_least=2) == 2
    assert checks.choice("mining", "all", ("all", "semi_hard")) == "all"


def test_numbers_of_numpy_come_back_as_those_of_python() -> None:
    for value in (np.float16(0.5), np.float32(0.5), np.float64(0.5)):
        found = checks.number("margin", value)
        assert (type(found), found) == (float, 0.5)
        assert type(checks.positive("scale", value)) is float
    for value in (np.int8(3), np.uint16(3), np.int64(3)):
        found = checks.number("margin", value)
        assert (type(found), found) == (int, 3)
        assert type(checks.integer("bins", value, at_least=1)) is int


def test_a_tensor_of_no_dimensions_is_a_number_that_can_be_learnt() -> None:
    value = torch.tensor(0.5, requires_grad=True)
    assert checks.number("margin", value) is value
    assert checks.positive("scale", value) is value


def test_a_number_that_cannot_be_read_is_taken_as_it_is() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: checks.positive("scale", x) * 2, fullgraph=True, backend="eager"
    )
    assert compiled(torch.tensor(0.5)) == 1
    meta = torch.tensor(0.5, device="meta")
    assert checks.number("margin", meta) is meta


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones() -> None:
    registry = {"triplet": 1, "nra": 2}
    assert checks.lookup("loss", "nra", registry) == 2
    with pytest.raises(ValueError, match="unknown loss") as caught:
        checks.lookup("loss", "triplets", registry)
    assert str(caught.value) == (
        "unknown loss 'triplets'; did you mean 'triplet'? choose from: nra, triplet"
    )
    with pytest.raises(ValueError, match="unknown loss") as caught:
        checks.lookup("loss", "zzz", registry)
    assert str(caught.value) == "unknown loss 'zzz'; choose from: nra, triplet"
