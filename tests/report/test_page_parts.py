"""Retrieval examples, the map, thumbnails, figures and the verdict of a report."""

import base64
import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kinspace.data import digits_dataset
from kinspace.data.pictures import ArrayPictures
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.class_evidence import leave_out
from kinspace.evaluation.summary import summarize
from kinspace.evaluation.thresholds import DEFAULT_STRANGERS, calibrate
from kinspace.report.advice import advise, tiles
from kinspace.report.boundary import boundary
from kinspace.report.map import layout, map_data
from kinspace.report.plots import curves, evaluation_plots, map_plot
from kinspace.report.retrieval_examples import retrieval_examples
from kinspace.report.verdict import verdict
from kinspace.web import Thumbnails, data_uri, sheet_jpeg, thumbnail_jpeg


def blobs(noise: float = 1.5) -> EmbeddingTable:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 6
    centers = 2 * rng.standard_normal((6, 5))
    return EmbeddingTable(centers[labels] + noise * rng.standard_normal((60, 5)), labels)


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_examples_have_the_extreme_and_the_median_margins() -> None:
    table, before = blobs(), EmbeddingTable(np.random.default_rng(1).standard_normal((60, 4)))
    examples = retrieval_examples(table, before, each=2)
    points = table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)
    plain = before.vectors / np.linalg.norm(before.vectors, axis=1, keepdims=True)
    margins, pairs = [], []
    assert table.labels is not None
    for i in range(60):
        best = {True: (-2.0, -1), False: (-2.0, -1)}
        for j in range(60):
            same = bool(table.labels[i] == table.labels[j])
            if i != j:
                best[same] = max(best[same], (float(points[i] @ points[j]), j))
        margins.append(best[True][0] - best[False][0])
        pairs.append((best[True][1], best[False][1]))
    by_kind = {
        kind: [c for c in examples if c.kind == kind] for kind in ("best", "typical", "worst")
    }
    assert by_kind["best"][0].query == int(np.argmax(margins))
    assert by_kind["worst"][0].query == int(np.argmin(margins))
    middle = margins[by_kind["typical"][0].query]
    assert abs(middle - np.median(margins)) == min(abs(np.array(margins) - np.median(margins)))
    for case in examples:
        assert (case.positive, case.negative) == pairs[case.query]
        assert case.after[0] - case.after[1] == pytest.approx(margins[case.query])
        assert case.before is not None
        assert case.before[0] == pytest.approx(float(plain[case.query] @ plain[case.positive]))
    for some in by_kind.values():
        assert len({int(table.labels[case.query]) for case in some}) == 2


def test_there_are_no_examples_without_pairs_of_both_kinds() -> None:
    assert retrieval_examples(EmbeddingTable(np.eye(3), [0, 0, 0])) == []
    assert retrieval_examples(EmbeddingTable(np.eye(3), [0, 1, 2])) == []


def test_the_map_keeps_groups_together_and_is_the_same_for_the_same_seed() -> None:
    table = blobs(noise=0.05)
    one, same = layout(table.vectors, seed=3), layout(table.vectors, seed=3)
    np.testing.assert_array_equal(one, same)
    assert one.min() >= 0
    assert one.max() <= 1
    distances = np.linalg.norm(one[:, None] - one, axis=2) + 9 * np.eye(60)
    assert table.labels is not None
    assert (table.labels[distances.argmin(1)] == table.labels).mean() > 0.95


@pytest.mark.parametrize(
    "vectors",
    [np.ones((6, 3)), np.zeros((5, 2)), np.eye(3), np.array([[1.0], [2.0], [-1.0], [3.0]])],
    ids=["all the same", "all zero", "three", "one dimension"],
)
def test_odd_vectors_have_a_place_on_the_map(vectors: np.ndarray) -> None:
    assert np.isfinite(layout(vectors)).all()


def test_of_a_large_table_some_points_are_drawn_with_their_own_pictures() -> None:
    digits = digits_dataset()
    table = EmbeddingTable(digits.pictures.array.reshape(1797, -1)[:90] + 1.0, digits.labels[:90])
    data = map_data(table, digits.pictures, points=40)
    assert len(data["ids"]) == len(data["x"]) == 40
    assert data["of"] == 90
    whole = opened(data["sheet"])
    assert whole.width == data["columns"] * data["side"]
    for number in (0, 39):
        left = number % data["columns"] * data["side"]
        top = number // data["columns"] * data["side"]
        tile = whole.crop((left, top, left + data["side"], top + data["side"])).resize((8, 8))
        there = digits.pictures.read(int(data["ids"][number]))
        far = np.abs(np.asarray(tile, float) - np.asarray(there, float)).mean()
        assert far < 25, far  # JPEG and two changes of size
        assert data["names"][data["classes"][number]] == str(
            int(digits.labels[int(data["ids"][number])])
        )


def test_tiny_pictures_are_shown_larger_and_large_ones_smaller() -> None:
    assert opened(data_uri(thumbnail_jpeg(digits_dataset().pictures, 0, side=144))).size == (
        144,
        144,
    )
    assert opened(
        data_uri(sheet_jpeg(digits_dataset().pictures, [0, 1, 2], columns=2, side=20)[0])
    ).size == (40, 40)


def test_a_page_of_many_pictures_stays_within_its_bytes() -> None:
    rng = np.random.default_rng(0)
    noise = ArrayPictures(rng.integers(0, 256, (40, 160, 160, 3), np.uint8))
    page, tight = Thumbnails(), Thumbnails(budget=100_000)
    for each in (page, tight):
        shown = [each.add(noise, i % 40, side=96) for i in range(60)]
        assert str(shown[3]) == str(shown[43])  # the same picture, once
        assert len({str(one) for one in shown}) == 40
    whole, small = ([page.add(noise, i, side=96) for i in range(40)] for page in (page, tight))
    assert opened(str(whole[0])).size == (96, 96)
    assert sum(len(str(one)) for one in whole) > 200_000
    assert sum(len(str(one)) for one in small) < 4 / 3 * 100_000 + 40 * 30
    for budget, fits in ((10**9, True), (6_000, False)):
        jpeg, side = sheet_jpeg(noise, range(40), columns=8, side=64, budget=budget)
        assert (side == 64) == fits
        assert opened(data_uri(jpeg)).size == (8 * side, 5 * side)


def test_every_figure_is_written_three_times_and_its_numbers_can_be_read(tmp_path: Path) -> None:
    found = summarize(blobs(), baselines={"pixels": blobs(noise=4)})
    rows = [{"step": s, "loss": 1.0 / (s + 1), "recall@1": 0.5, "phase": 1} for s in range(4)]
    plots = evaluation_plots(found) | curves({"one": rows, "two": rows})
    plots["map"] = map_plot(map_data(blobs(), None))
    assert set(plots) == {
        "recall", "densities", "spectrum", "roc", "reliability", "loss", "validation", "map"
    }  # fmt: skip
    for name, plot in plots.items():
        plot.save(tmp_path)
        with (tmp_path / f"{name}.csv").open(newline="") as lines:
            table = list(csv.reader(lines))
        assert tuple(table[0]) == plot.columns
        assert len(table) == len(plot.rows) + 1 > 1
        with Image.open(tmp_path / f"{name}.png") as png:
            assert png.format == "PNG"
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")
        assert plot.alt.endswith(".")
    recalls = [row[1] for row in plots["recall"].rows]
    assert recalls[0] == found.retrieval["model"]["recall@1"]
    named = [name for plot in plots.values() for name in re.findall(r'\bid="(.+?)"', plot.inline)]
    assert len(named) == len(set(named))  # in one page no two things have one name


def test_the_same_numbers_make_the_same_figure() -> None:
    one, same = (evaluation_plots(summarize(blobs()))["recall"] for _ in range(2))
    assert one == same


def test_the_verdict_says_when_training_has_made_it_worse_and_when_it_has_helped() -> None:
    good, bad = blobs(noise=0.1), blobs(noise=9.0)
    worse = verdict(summarize(bad, baselines={"untrained": good}), unseen=True)
    assert "never seen in training" in worse[0]
    assert worse[1].startswith("Training has made it worse: the backbone before training is")
    better = verdict(summarize(good, baselines={"untrained": bad}), unseen=False)
    assert "above the backbone before training" in better[1]
    same = verdict(summarize(good, baselines={"untrained": good}), unseen=False)
    assert same[1].startswith("It is not clear that training has helped")
    gap = verdict(summarize(blobs(2.5), train=good, baselines={"pixels": bad}), unseen=True)
    assert "does not generalize to new classes" in gap[1]
    kept = verdict(summarize(good, baselines={"untrained": good, "pixels": bad}), unseen=False)
    assert "not clear that training has helped" in kept[1]
    kept = verdict(
        summarize(good, baselines={"untrained": good, "pixels": bad}), unseen=False, kept=True
    )
    assert "so the model is that" in kept[1]
    assert "before training" not in kept[0]


def test_the_verdict_is_true_in_odd_cases() -> None:
    good, bad = blobs(noise=0.1), blobs(noise=9.0)

    def said(model: EmbeddingTable, name: str, other: EmbeddingTable, **facts: bool) -> str:
        return verdict(summarize(model, baselines={name: other}), unseen=True, **facts)[1]

    # raw pixels are better: that is not what training has done
    pixels = said(bad, "pixels", good)
    assert pixels.startswith("Raw pixels are")
    assert "has not learned" in pixels
    assert "Training" not in pixels
    # the start was chosen, or there was no training, and raw pixels are better or as good
    for facts in ({"kept": True}, {"trained": False}):
        worse, equal = (said(bad, "pixels", other, **facts) for other in (good, bad))
        assert worse.startswith("Raw pixels are")
        assert "better" in worse
        assert "not clearly better: the difference from raw pixels is +0.0 points" in equal
        assert "raining has" not in worse + equal
        assert ("pretrained" in equal) == (facts == {"trained": False})
    # of three classes something can be said too, of these
    few = [table.select(np.isin(table.labels, [0, 1, 2])) for table in (good, bad)]
    found = summarize(few[0], baselines={"pixels": few[1]})
    assert found.gain["pixels"]["p_value"] < 0.05
    assert found.gain["pixels"]["groups"] == found.gain["pixels"]["count"]
    assert "above raw pixels" in verdict(found, unseen=True)[1]


@pytest.mark.parametrize(
    ("noise", "baseline", "level"),
    [(0.1, 9.0, "usable"), (1.5, 9.0, "weak"), (9.0, 0.1, "do not use"), (9.0, 9.0, "do not use")],
)
def test_the_advice_is_what_the_measures_say(noise: float, baseline: float, level: str) -> None:
    found = summarize(blobs(noise), baselines={"pixels": blobs(baseline)})
    advice = advise(found, {"trained": True})
    assert advice.level == level
    assert advice.why.endswith(".")
    assert 1 <= len(advice.helps) <= 3
    hits = f"{100 * found.retrieval['model']['recall@1']:.0f}"
    first = next(tiles(found))
    assert first[0] == f"{hits} of 100"
    pixels = 100 * found.retrieval["pixels"]["recall@1"]
    assert f"({pixels:.0f} by raw pixels)" in first[1]


def test_the_advice_names_what_would_help() -> None:
    table = blobs(0.1)
    assert table.labels is not None
    labels = table.labels.copy()
    labels[0] = 3  # a wrong label
    wrong = advise(summarize(EmbeddingTable(table.vectors, labels)))
    assert "1 label that seems wrong" in wrong.helps[0]
    mixed = table.vectors.copy()
    some = labels == 5  # a class without a place of its own
    mixed[some] = np.random.default_rng(0).standard_normal((some.sum(), 5))
    helps = advise(summarize(EmbeddingTable(mixed, table.labels))).helps
    assert any("found worst: 5 (" in each for each in helps)
    weak = summarize(blobs(1.5))
    assert any("stronger backbone" in each for each in advise(weak, {"trained": True}).helps)
    late = advise(weak, {"trained": True, "unfinished": True})
    assert any("Train longer" in each for each in late.helps)
    kept = summarize(table, baselines={"untrained": table})
    assert advise(kept, {"trained": True, "kept": True}).level == "usable"
    assert "one class" in advise(summarize(table.select(table.labels == 0))).why


def test_the_pictures_at_the_boundary_are_the_nearest_to_it() -> None:
    digits = digits_dataset().subset(range(200))
    rows = [np.asarray(digits.pictures.read(i).convert("L"), float).ravel() for i in range(200)]
    table = EmbeddingTable(np.stack(rows), digits.labels.numpy())
    thresholds = calibrate(table)
    assert thresholds is not None
    found = boundary(thresholds, table, digits.pictures, Thumbnails())
    assert found is not None
    left = leave_out(table, np.ones(200, bool))
    known, strange = (thresholds.confidence(each) for each in (left.known, left.stranger))
    for setting in found["settings"]:
        limit = setting["confidence"]
        below = sorted(known[left.right & (known < limit)])[::-1][:6]
        above = sorted(strange[strange >= limit])[:6]
        assert (len(setting["refused"]), len(setting["accepted"])) == (len(below), len(above))
        names = [found["pictures"][place]["text"] for place in setting["accepted"]]
        assert all(", as " in name for name in names)
    assert found["settings"][found["start"]]["strangers"] == DEFAULT_STRANGERS
    assert opened(str(found["images"][found["pictures"][0]["image"]])).size[0] > 0
    assert boundary(None, table, digits.pictures, Thumbnails()) is None
    without = boundary(thresholds, table, None, Thumbnails())
    assert without is not None
    assert without["pictures"] == []
