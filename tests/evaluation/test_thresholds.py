"""The decision of a gallery: evidence of the classes, confidence, and the dial."""

import json
from pathlib import Path

import numpy as np
import pytest

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.class_evidence import CANDIDATES, class_evidence, leave_out, search_classes
from kinspace.evaluation.thresholds import (
    RATES,
    Thresholds,
    calibrate,
    held_out_rows,
    no_thresholds,
)


def table(
    classes: int = 12, each: int = 20, spread: float = 1.2, seed: int = 0, sizes: str = "equal"
) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    counts = [each] * classes if sizes == "equal" else [1 + i * 5 for i in range(classes)]
    y = np.repeat(np.arange(classes), counts)
    x = 2 * rng.standard_normal((classes, 12))[y] + spread * rng.standard_normal((len(y), 12))
    return EmbeddingTable(x / np.linalg.norm(x, axis=1, keepdims=True), y)


def test_evidence_is_the_mean_of_the_five_nearest_of_a_class() -> None:
    """A loop over the whole gallery, in float64."""
    gallery, queries = table(6, sizes="growing"), table(6, 5, seed=1).vectors
    assert gallery.labels is not None
    cosines = queries @ gallery.vectors.T
    order = np.argsort(-cosines, axis=1, kind="stable")
    found = class_evidence(
        np.take_along_axis(cosines, order, 1), gallery.labels[order], np.bincount(gallery.labels)
    )
    for query, row in enumerate(cosines):
        by_class = [np.sort(row[gallery.labels == c])[::-1][:5].mean() for c in range(6)]
        assert found.labels[query] == np.argmax(by_class)
        first, second = np.sort(by_class)[::-1][:2]
        assert [found.first[query], found.second[query]] == pytest.approx([first, second])
    assert not found.exact.any()


def test_of_few_candidates_the_evidence_is_at_most_too_high() -> None:
    gallery, queries = table(8, 30), table(8, 5, seed=1).vectors
    assert gallery.labels is not None
    cosines = queries @ gallery.vectors.T
    order = np.argsort(-cosines, axis=1, kind="stable")
    sizes = np.bincount(gallery.labels)
    whole, some = (
        class_evidence(
            np.take_along_axis(cosines, order[:, :n], 1), gallery.labels[order[:, :n]], sizes
        )
        for n in (240, CANDIDATES)
    )
    assert (some.labels == whole.labels).mean() > 0.95
    same = some.labels == whole.labels
    assert (some.first[same] >= whole.first[same] - 1e-12).all()
    assert (some.second <= some.first).all()


def test_the_same_picture_decides_against_all_votes() -> None:
    cosines = np.array([[1.0, 0.99, 0.99, 0.98, 0.98, 0.98]])
    found = class_evidence(cosines, np.array([[1, 0, 0, 0, 0, 0]]), np.array([5, 40]))
    assert found.labels.tolist() == [1]
    assert found.exact.all()
    assert found.first[0] == 1.0
    twice = class_evidence(
        np.array([[1.0, 1.0, 0.99, 0.5]]), np.array([[0, 1, 1, 0]]), np.array([2, 2])
    )
    assert twice.labels.tolist() == [1]  # with two labels: that of the more similar class


def test_a_class_with_few_pictures_is_not_outvoted() -> None:
    """One picture of a class, more similar than the forty of another."""
    cosines = np.array([[0.9, *[0.8] * 40]])
    labels = np.array([[1, *[0] * 40]])
    assert class_evidence(cosines, labels, np.array([40, 1])).labels.tolist() == [1]
    chosen = class_evidence(cosines, labels, np.array([40, 1]), chosen=0)
    assert chosen.labels.tolist() == [0]
    assert class_evidence(cosines, labels, np.array([40, 1]), chosen=7).labels.tolist() == [1]


def test_left_out_pictures_are_searched_without_themselves_and_their_class() -> None:
    whole = table(5, sizes="growing")
    assert whole.labels is not None
    found = leave_out(whole, np.arange(len(whole)) % 2 == 0)
    assert found.rows.tolist() == list(range(0, len(whole), 2))
    assert found.alone.tolist() == [row == 0 for row in found.rows]  # class 0 has one picture
    for place, row in enumerate(found.rows.tolist()):
        label = whole.labels[row]
        for evidence, kept in (
            (found.known, np.arange(len(whole)) != row),
            (found.stranger, whole.labels != label),
        ):
            cosines = whole.vectors[kept] @ whole.vectors[row]
            left = whole.labels[kept]
            means = {c: np.sort(cosines[left == c])[::-1][:5].mean() for c in set(left.tolist())}
            best = max(means, key=lambda c: means[c])
            assert evidence.labels[place] == best
            assert evidence.first[place] == pytest.approx(means[best], abs=1e-5)
    assert not (found.stranger.labels == found.labels).any()


def test_the_dial_keeps_what_it_promises_on_new_classes() -> None:
    """Known pictures and strangers that the calibration has not seen."""
    whole = table(240, 16, seed=3)
    assert whole.labels is not None
    gallery = whole.select((whole.labels < 80) & (np.arange(len(whole)) % 2 == 0))
    known = whole.select((whole.labels < 80) & (np.arange(len(whole)) % 2 == 1))
    strange = whole.select(whole.labels >= 80)
    found = calibrate(gallery)
    assert found is not None
    assert (found.classes, found.pictures, found.held_out) == (80, 640, True)

    def ask(queries: EmbeddingTable) -> tuple[np.ndarray, np.ndarray]:
        evidence = search_classes(gallery, queries.vectors)
        return evidence.labels, found.confidence(evidence)

    labels, sure = ask(known)
    right = labels == known.labels
    _, strange_sure = ask(strange)
    for rate in (0.02, 0.1, 0.3):
        limit = found.at(rate)
        assert (strange_sure >= limit.confidence).mean() == pytest.approx(rate, abs=0.08)
        assert limit.let_through == pytest.approx(rate, abs=0.03)
        assert (right & (sure >= limit.confidence)).mean() == pytest.approx(limit.right, abs=0.06)
    assert sum((limit.right, limit.wrong, limit.unknown)) == pytest.approx(1)
    # and a confidence is the share that is right, with as many strangers as known pictures
    both = np.concatenate([sure, strange_sure])
    weights = np.repeat([1 / len(sure), 1 / len(strange_sure)], [len(sure), len(strange_sure)])
    truth = np.concatenate([right, np.zeros(len(strange_sure), bool)])
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        inside = (both >= low) & (both < high)
        share = (weights * truth)[inside].sum() / weights[inside].sum()
        assert share == pytest.approx(np.average(both[inside], weights=weights[inside]), abs=0.1)
    assert both.max() < 1


def test_with_few_classes_no_more_strangers_get_through_than_the_dial_says() -> None:
    """On average over galleries; limits set on a few classes alone let through a third more."""
    through = []
    for seed in range(8):
        whole = table(128, 12, seed=seed)
        assert whole.labels is not None
        gallery, strange = whole.select(whole.labels < 8), whole.select(whole.labels >= 8)
        found = calibrate(gallery)
        assert found is not None
        sure = found.confidence(search_classes(gallery, strange.vectors))
        through.append((sure >= found.at(0.1).confidence).mean())
    assert np.mean(through) == pytest.approx(0.1, abs=0.02)


def test_a_stricter_dial_lets_no_more_through() -> None:
    found = calibrate(table())
    assert found is not None
    for name in ("confidence", "cosine"):
        values = [getattr(each, name) for each in found.settings]
        assert values == sorted(values, reverse=True)
    for name in ("let_through", "matched"):
        values = [getattr(each, name) for each in found.settings]
        assert values == sorted(values)
    rates = [0.001, 0.004, 0.05, 0.12, 0.5]
    limits = [found.at(rate).confidence for rate in rates]
    shares = [found.strangers_at(limit) for limit in limits]
    assert shares[2:] == pytest.approx(rates[2:], rel=1e-6)
    assert shares[1] <= rates[1]  # there are too few strangers to tell 0.4 % from less
    assert found.strangers_at(1.0) == 0
    assert found.strangers_at(0.0) == 1
    for rate in (0.0, 0.6, -1):
        with pytest.raises(ValueError, match="strangers: expected a rate from"):
            found.at(rate)


def test_few_held_out_classes_give_way_to_those_of_the_training() -> None:
    whole = table(10)
    assert whole.labels is not None
    found = calibrate(whole, whole.labels < 2)
    assert found is not None
    assert (found.classes, found.held_out) == (10, False)
    assert "too few were held out: more strangers" in found.basis
    other = calibrate(whole, whole.labels < 4)
    assert other is not None
    assert (other.classes, other.held_out) == (4, True)
    names = EmbeddingTable(np.eye(3), [0, 1, 2], class_names=("a", "b", "c"))
    assert held_out_rows(names, {"b"}).tolist() == [True, False, True]


def test_of_many_pictures_whole_classes_are_used() -> None:
    """Evenly spaced rows of classes of three would leave no pair of one class."""
    many = table(1500, 3)
    found = calibrate(many)
    assert found is not None
    assert found.pictures <= 2000
    assert found.classes >= 600
    assert found.pictures == 3 * found.classes
    large = calibrate(table(5, 900))
    assert large is not None
    assert (large.classes, large.pictures) == (5, 2000)


def test_two_classes_are_refused_and_what_is_done_instead_is_said() -> None:
    for few in (table(2), table(3), table(6, 1), EmbeddingTable(np.eye(3))):
        assert calibrate(few) is None
    assert "none is unknown" in no_thresholds(table(2))
    assert "no classes" in no_thresholds(EmbeddingTable(np.eye(3)))


@pytest.mark.parametrize("case", ["collapsed", "apart", "mixed"])
def test_odd_embeddings_calibrate_to_something_sane(case: str) -> None:
    y = np.arange(60) % 6
    x = {
        "collapsed": np.ones((60, 4)),
        "apart": np.eye(6)[y],
        "mixed": np.random.default_rng(0).standard_normal((60, 4)),
    }[case]
    found = calibrate(EmbeddingTable(x, y))
    assert found is not None
    for each in found.settings:
        assert 0 <= each.confidence <= 1.0000001
        assert 0 <= each.let_through <= 1
    assert found.weights[1] >= 0
    assert found.weights[2] >= 0
    at = found.at()
    if case == "apart":
        assert (at.right, at.unknown, at.let_through) == (1, 0, 0)
    if case == "mixed":
        assert at.let_through < 0.3
        assert at.right < 0.3


def test_thresholds_are_kept_in_a_file(tmp_path: Path) -> None:
    found = calibrate(table(), strangers=0.05)
    assert found is not None
    found.save(tmp_path / "thresholds.json")
    again = Thresholds.load(tmp_path / "thresholds.json")
    assert again == found
    assert again.at().strangers == 0.05
    assert tuple(each.strangers for each in again.settings) == RATES
    text = json.loads((tmp_path / "thresholds.json").read_text())
    for broken in ({}, text | {"weights": [1]}, text | {"settings": []}, text | {"strangers": 7}):
        (tmp_path / "broken.json").write_text(json.dumps(broken))
        with pytest.raises(ValueError, match=r"broken\.json: expected thresholds"):
            Thresholds.load(tmp_path / "broken.json")
