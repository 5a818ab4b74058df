"""What every loss takes of its samples: words, a label to ignore, weights, singletons, matrices."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kinspace.losses
import reference_loops
from batches import NUM_CLASSES, Batch, random_batch
from gradients import disagreement, evaluate
from kinspace import miners
from kinspace._core.samples import inputs_of
from kinspace.losses import LOSSES, CrossBatchMemory, Matryoshka, SupCon, VirtualPoints
from methods import METHODS, Method, every, reduces_samples
from modules import MODULES
from reference_loops import Comparisons
from references import arguments, function_of

TAKING = [m for m in METHODS if m.package == "losses" and "ignore_label" in inputs_of(m.function)]
OF_SAMPLES = [m for m in TAKING if reduces_samples(m.function)]
WITHOUT_TERMS = [  # values of a whole batch: weights would be another method
    m
    for m in TAKING
    if not reduces_samples(m.function)
    and m.name not in ("contrastive_loss", "triplet_loss", "hierarchical_triplet_loss")
]
COMPARING = [m for m in OF_SAMPLES if "singletons" in inputs_of(m.function)]
# Their mean is over the anchors that have a positive and a negative, whatever is asked for.
OF_ANCHORS = {"circle_loss"}
# Their positive is the next sample of the class, or their terms are of pairs of classes.
NO_TERMS: dict[str, dict[str, Any]] = {"n_pair_loss": {"anchors": "first"}}
WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25, 1.5, 1.0, 0.0, 2.0, 1.0, 0.75]).double()


def batch_with_singletons() -> Batch:
    """Twelve samples of four classes of 5, 5, 1 and 1."""
    embeddings, _ = random_batch(3, classes=4, per_class=3)
    return Batch(embeddings, torch.tensor([0, 1, 0, 1, 2, 0, 1, 0, 3, 1, 0, 1]))


def with_ignored(batch: Batch, label: int = -1) -> tuple[Batch, Tensor]:
    """The batch among five ignored samples, and its places."""
    size = len(batch.labels) + 5
    places = torch.tensor([i for i in range(size) if i not in (0, 3, 4, 9, size - 1)])
    embeddings = 3 * torch.ones(size, batch.embeddings.shape[1]).double()
    labels = torch.full((size,), label)
    return (
        Batch(
            embeddings.index_copy(0, places, batch.embeddings),
            labels.index_copy(0, places, batch.labels),
        ),
        places,
    )


def tables(method: Method, batch: Batch) -> list[Tensor]:
    """What a method is given after embeddings and labels."""
    return list(method.arguments(batch, 0).values())[2:]


def test_the_losses_that_take_no_options_of_samples_are_those_of_clusters_and_triplets() -> None:
    taking = {method.name for method in TAKING}
    without = {m.name for m in METHODS if m.package == "losses"} - taking
    missing = without - {"cluster_nca_loss", "magnet_loss", "margin_loss"}
    assert not missing, (
        f"src/kinspace/losses: expected @takes_samples (_core/samples.py): {missing}"
    )


# --- a label to ignore ---------------------------------------------------------------------------


@every(TAKING)
def test_ignored_samples_take_no_part(method: Method) -> None:
    batch = random_batch(2)
    whole, places = with_ignored(batch)
    others = tables(method, batch)
    for options in method.options:

        def call(x: Tensor, options: dict[str, Any] = options) -> Tensor:
            return method.function(x, whole.labels, *others, ignore_label=-1, **options)

        def alone(x: Tensor, options: dict[str, Any] = options) -> Tensor:
            return method.function(x[places], batch.labels, *others, **options)

        found = evaluate(call, {"x": whole.embeddings})
        assert disagreement(found, evaluate(alone, {"x": whole.embeddings})) is None


@every(OF_SAMPLES)
def test_ignored_samples_have_the_term_0(method: Method) -> None:
    batch = random_batch(2)
    whole, places = with_ignored(batch)
    others = tables(method, batch)
    terms = method.function(*whole, *others, ignore_label=-1, reduction="none")
    assert torch.equal(terms[places], method.function(*batch, *others, reduction="none"))
    assert not terms.index_fill(0, places, 0.0).any()


@every(TAKING)
def test_a_batch_of_ignored_samples_gives_a_zero_connected_to_the_graph(method: Method) -> None:
    batch = random_batch(2)
    leaf = batch.embeddings.clone().requires_grad_()
    value = method.function(leaf, batch.labels * 0 - 1, *tables(method, batch), ignore_label=-1)
    value.backward()  # type: ignore[no-untyped-call]
    assert value == 0
    assert leaf.grad is not None
    assert not leaf.grad.any()


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in ("magnet", "cluster_nca")])
def test_a_module_keeps_the_state_of_the_samples_that_take_part(name: str) -> None:
    batch = random_batch(2)
    whole, _ = with_ignored(batch)
    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        modules.append(MODULES[name].build(NUM_CLASSES, 4).double())
    first, second = modules
    for _ in range(2):
        found = first(*whole, ignore_label=-1)
        torch.testing.assert_close(found, second(*batch), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(first.state_dict(), second.state_dict())


@pytest.mark.parametrize("includes_batch", [False, True])
def test_ignored_rows_of_a_reference_and_their_pairs_take_no_part(includes_batch: bool) -> None:
    x, labels, reference, others = arguments(
        random_batch(2), 1, includes_batch=includes_batch
    ).values()
    whole, places = with_ignored(Batch(reference, others))
    rows = Batch(x, labels)
    if includes_batch:  # then the batch begins with an ignored one too
        rows, _ = with_ignored(rows)
        whole = Batch(
            torch.cat([rows.embeddings, reference[len(x) :]]),
            torch.cat([rows.labels, others[len(x) :]]),
        )
    for name in ("supcon_loss", "triplet_loss", "contrastive_loss", "circle_loss"):
        found = getattr(kinspace.losses, name)(
            *rows,
            reference=whole.embeddings,
            reference_labels=whole.labels,
            includes_batch=includes_batch,
            ignore_label=-1,
        )
        expected = function_of(name, includes_batch, {})(x, labels, reference, others)
        torch.testing.assert_close(found, expected)
    del places


def test_pairs_and_triplets_of_ignored_samples_are_left_out() -> None:
    batch = random_batch(2)
    whole, places = with_ignored(batch)
    triplets = miners.batch_hard(*batch)
    given = torch.cat([places[triplets], torch.tensor([[0, 1, 2], [1, 3, 2]])])
    for criterion in (LOSSES["triplet"](), LOSSES["contrastive"](), LOSSES["margin"](NUM_CLASSES)):
        criterion = criterion.double()
        found = criterion(*whole, triplets=given, ignore_label=-1)
        torch.testing.assert_close(found, criterion(*batch, triplets=triplets))


@pytest.mark.parametrize("name", sorted(miners.MINERS))
def test_a_miner_ignores_a_label_and_returns_places_in_the_whole_batch(name: str) -> None:
    batch = random_batch(2)
    whole, places = with_ignored(batch)
    miner = miners.MINERS[name]
    torch.manual_seed(0)
    found = miner(*whole, ignore_label=-1)
    torch.manual_seed(0)
    assert torch.equal(found, places[miner(*batch)])
    none = miner(batch.embeddings, batch.labels * 0 - 1, ignore_label=-1)
    assert none.shape == (0, found.shape[1])


# --- weights -------------------------------------------------------------------------------------


@every(OF_SAMPLES)
def test_weights_multiply_the_terms_and_their_sum_divides(method: Method) -> None:
    batch = random_batch(2)
    others = tables(method, batch)
    terms = method.function(*batch, *others, reduction="none")
    weighted = method.function(*batch, *others, reduction="none", weights=WEIGHTS)
    torch.testing.assert_close(weighted, WEIGHTS * terms)
    total = method.function(*batch, *others, reduction="sum", weights=WEIGHTS)
    torch.testing.assert_close(total, (WEIGHTS * terms).sum())
    mean = method.function(*batch, *others, weights=WEIGHTS)
    torch.testing.assert_close(mean, (WEIGHTS * terms).sum() / WEIGHTS.sum())


@every([m for m in TAKING if m not in WITHOUT_TERMS])
def test_equal_weights_change_nothing(method: Method) -> None:
    batch = batch_with_singletons()
    others = tables(method, batch)
    for options in method.options:
        if options.items() >= NO_TERMS.get(method.name, {"": 0}).items():
            continue
        value = method.function(*batch, *others, **options)
        equal = torch.full((12,), 0.3)
        if options.get("reduction") != "sum":
            found = method.function(*batch, *others, weights=equal, **options)
            torch.testing.assert_close(found, value)
        found = method.function(*batch, *others, weights={0: 1.0, 7: 9.0}, **options)
        torch.testing.assert_close(found, value)
        # and no weight at all is a zero
        assert method.function(*batch, *others, weights=0 * equal, **options) == 0


@pytest.mark.parametrize("reduction", ["mean_each", "mean_active", "mean", "sum"])
def test_contrastive_weighs_each_pair_by_its_anchor(reduction: str) -> None:
    x, labels = random_batch(2)
    weights = WEIGHTS.tolist()
    same, different = [], []
    for i, j in [(i, j) for i in range(12) for j in range(12) if i != j]:
        d = float((x[i] - x[j]).square().sum())
        term = d if labels[i] == labels[j] else max(0.0, 9.0 - d)
        (same if labels[i] == labels[j] else different).append((weights[i], term))
    if reduction == "mean_active":
        same, different = ([(w, t) for w, t in terms if t > 0] for terms in (same, different))
    sums = [sum(w * t for w, t in terms) for terms in (same, different)]
    counts = [sum(w for w, _ in terms) for terms in (same, different)]
    expected = {
        "sum": sum(sums) / 2,
        "mean": sum(sums) / sum(counts),
        "mean_each": sums[0] / counts[0] + sums[1] / counts[1],
        "mean_active": sums[0] / counts[0] + sums[1] / counts[1],
    }[reduction]
    options: dict[str, Any] = {"margin": 9.0, "reduction": reduction}
    found = kinspace.losses.contrastive_loss(x, labels, weights=WEIGHTS, **options)
    assert float(found) == pytest.approx(expected)
    pairs = torch.tensor([(i, j) for i in range(12) for j in range(12) if i != j])
    listed = kinspace.losses.contrastive_loss(x, labels, weights=WEIGHTS, pairs=pairs, **options)
    assert float(listed) == pytest.approx(expected * (2 if reduction == "sum" else 1))


@pytest.mark.parametrize("reduction", ["mean_active", "mean", "sum"])
def test_triplet_weighs_each_triplet_by_its_anchor(reduction: str) -> None:
    x, labels = random_batch(2)
    triplets = miners.triplet_margin(x, labels, margin=1e6, kind="all")
    terms = [
        float(((x[a] - x[p]).square().sum() - (x[a] - x[n]).square().sum() + 1).relu())
        for a, p, n in triplets
    ]
    own = WEIGHTS[triplets[:, 0]].tolist()
    counts = {
        "sum": 1.0,
        "mean": sum(own),
        "mean_active": sum(w for w, term in zip(own, terms, strict=True) if term > 0),
    }
    expected = sum(w * t for w, t in zip(own, terms, strict=True)) / counts[reduction]
    for chosen in ({}, {"triplets": triplets}):
        found = kinspace.losses.triplet_loss(
            x, labels, weights=WEIGHTS, reduction=reduction, **chosen
        )
        assert float(found) == pytest.approx(expected)


@pytest.mark.parametrize("mining", ["semi_hard", "batch_hard", "disjoint"])
def test_a_mined_triplet_weighs_as_its_anchor(mining: str) -> None:
    batch = random_batch(2)
    triplets = miners.MINERS[mining](*batch)
    found = kinspace.losses.triplet_loss(*batch, mining=mining, weights=WEIGHTS)
    expected = kinspace.losses.triplet_loss(*batch, triplets=triplets, weights=WEIGHTS)
    torch.testing.assert_close(found, expected)


def test_a_weight_may_be_learned_and_is_one_graph_for_torch_compile() -> None:
    batch = random_batch(2)
    torch._dynamo.reset()

    def call(x: Tensor, weights: Tensor) -> Tensor:
        return kinspace.losses.supcon_loss(x, batch.labels, weights=weights, singletons="skip")

    given = {"x": batch.embeddings, "weights": WEIGHTS}
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=False)
    assert disagreement(evaluate(compiled, given), evaluate(call, given), gradient=1e-9) is None


@every(WITHOUT_TERMS)
def test_a_loss_without_terms_of_samples_refuses_weights(method: Method) -> None:
    batch = random_batch(2)
    with pytest.raises(ValueError, match=r"^weights: expected none, .* no mean of terms"):
        method.function(*batch, *tables(method, batch), weights=WEIGHTS)


# --- singletons ----------------------------------------------------------------------------------


@every(COMPARING)
def test_singletons_are_counted_or_skipped(method: Method) -> None:
    batch = batch_with_singletons()
    paired = torch.isin(batch.labels, torch.tensor([0, 1]))
    terms = method.function(*batch, reduction="none")
    skipped = method.function(*batch, singletons="skip")
    torch.testing.assert_close(skipped, terms[paired].sum() / 10)
    counted = method.function(*batch, singletons="count")
    torch.testing.assert_close(counted, method.function(*batch))
    if method.name not in OF_ANCHORS:
        torch.testing.assert_close(counted, terms.sum() / 12)
    weighted = method.function(*batch, singletons="skip", weights=WEIGHTS)
    expected = (WEIGHTS * terms)[paired].sum() / WEIGHTS[paired].sum()
    torch.testing.assert_close(weighted, expected)


def test_contrastive_skips_the_pairs_whose_anchor_is_a_singleton() -> None:
    batch = batch_with_singletons()
    anchors = torch.isin(batch.labels, torch.tensor([0, 1])).double()
    criterion = LOSSES["contrastive"](margin=50.0)
    found = criterion(*batch, singletons="skip")
    torch.testing.assert_close(found, criterion(*batch, weights=anchors))
    assert found < criterion(*batch) - 0.1 or found > criterion(*batch) + 0.1


# --- words ---------------------------------------------------------------------------------------

WORDS = ["wren", "auk", "teal", "gull", "coot"]
FREE = [m for m in TAKING if not tables(m, random_batch(2))]


@every(FREE)
def test_words_are_labels(method: Method) -> None:
    batch = random_batch(2)
    words = [WORDS[label] for label in batch.labels]
    found = method.function(batch.embeddings, words)
    torch.testing.assert_close(found, method.function(*batch))
    module = LOSSES[method.name.removesuffix("_loss")]()
    torch.testing.assert_close(module(batch.embeddings, words), module(*batch))


def test_words_of_a_batch_and_of_a_reference_are_numbered_together() -> None:
    x, labels, reference, others = arguments(random_batch(2), 1, includes_batch=False).values()
    names = [f"class {label}" for label in range(NUM_CLASSES)]
    words, other_words = ([names[label] for label in y] for y in (labels, others))
    given = {"reference": reference, "reference_labels": other_words}
    found = SupCon()(x, words, **given, ignore_label="class 1", weights={"class 0": 2.0})
    numbers = {"reference": reference, "reference_labels": others}
    expected = SupCon()(x, labels, **numbers, ignore_label=1, weights={0: 2.0})
    assert torch.equal(found, expected)
    triplets = miners.semi_hard(x, words, **given)
    assert torch.equal(triplets, miners.semi_hard(x, labels, **numbers))


# --- several labels a sample ---------------------------------------------------------------------

SEVERAL = [
    "circle_loss",
    "contrastive_loss",
    "fast_ap_loss",
    "histogram_loss",
    "multi_similarity_loss",
    "nca_loss",
    "nt_xent_loss",
    "ranked_list_loss",
    "recall_surrogate_loss",
    "roadmap_loss",
    "smooth_ap_loss",
    "supcon_loss",
    "tuplet_margin_loss",
]
EVERY_SEVERAL = pytest.mark.parametrize("name", SEVERAL)


def label_matrix(rows: int, seed: int) -> Tensor:
    """Up to three of five labels a sample; the first has none."""
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.rand(rows, 5, generator=generator) < 0.3).long()
    matrix[0] = 0
    return matrix


def loop_on(
    name: str, x: Tensor, matrix: Tensor, other: Tensor, others: Tensor, own: bool
) -> Tensor:
    """The loop of a loss, with the samples that share a label as positives."""
    numbers = torch.arange(len(x)), torch.arange(len(other))
    c = Comparisons(x, numbers[0], other, numbers[1], own)
    for i in c.anchors:
        shared = {j for j in c.compared[i] if bool((matrix[i] & others[j]).any())}
        c.positives[i] = [j for j in c.compared[i] if j in shared]
        c.negatives[i] = [j for j in c.compared[i] if j not in shared]
    return getattr(reference_loops, name)(c)  # type: ignore[no-any-return]


@EVERY_SEVERAL
def test_samples_that_share_a_label_are_positives(name: str) -> None:
    for seed in range(3):
        x, _ = random_batch(seed)
        matrix = label_matrix(12, seed)
        function = getattr(kinspace.losses, name)
        expected = loop_on(name, x, matrix, x, matrix, True)
        torch.testing.assert_close(function(x, matrix), expected)
        torch.testing.assert_close(function(x, matrix.bool()), expected)
        other, others = random_batch(seed + 9)[0], label_matrix(12, seed + 9)
        found = function(x, matrix, reference=other, reference_labels=others)
        torch.testing.assert_close(found, loop_on(name, x, matrix, other, others, False))


@EVERY_SEVERAL
def test_one_label_a_sample_may_be_a_matrix_or_similarities(name: str) -> None:
    x, labels = batch_with_singletons()
    function = getattr(kinspace.losses, name)
    given = {"x": x}
    options: dict[str, Any] = {"weights": WEIGHTS} if name != "histogram_loss" else {}
    expected = evaluate(lambda x: function(x, labels, **options), given)
    matrix = torch.nn.functional.one_hot(labels)
    for form in (matrix, (matrix @ matrix.T).double()):
        found = evaluate(lambda x, form=form: function(x, form, **options), given)
        assert disagreement(found, expected) is None
    if "singletons" in inputs_of(function) and name != "histogram_loss":
        found = evaluate(lambda x: function(x, matrix, singletons="skip"), given)
        expected = evaluate(lambda x: function(x, labels, singletons="skip"), given)
        assert disagreement(found, expected) is None


def similarities(matrix: Tensor) -> Tensor:
    """Shared labels among all that either has."""
    shared = (matrix[:, None] & matrix).sum(2).double()
    either = (matrix[:, None] | matrix).sum(2).clamp(min=1)
    return (shared / either).fill_diagonal_(1.0)


def test_similar_labels_count_by_their_similarity() -> None:
    x, _ = random_batch(1)
    r = similarities(label_matrix(12, 1))
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    d = {(i, j): (x[i] - x[j]).square().sum() for i, j in pairs}
    pull = sum(r[p] * d[p] for p in pairs) / sum(r[p] for p in pairs)
    push = sum((1 - r[p]) * (1 - d[p]).relu() for p in pairs) / sum(1 - r[p] for p in pairs)
    torch.testing.assert_close(kinspace.losses.contrastive_loss(x, r), pull + push)
    unit = torch.nn.functional.normalize(x)
    terms = []
    for i in range(12):
        logits = {j: unit[i] @ unit[j] / 0.1 for j in range(12) if j != i}
        rest = torch.stack(list(logits.values())).logsumexp(0)
        total = sum(r[i, j] for j in logits)
        sums = [r[i, j] * (rest - logits[j]) for j in logits]
        terms.append(torch.stack(sums).sum() / total if total else x.new_zeros(()))
    found = kinspace.losses.supcon_loss(x, r, reduction="none")
    torch.testing.assert_close(found, torch.stack(terms))


def test_proxy_anchor_takes_several_labels() -> None:
    batch = random_batch(2)
    proxies = random_batch(7, classes=NUM_CLASSES, per_class=1).embeddings
    matrix = torch.nn.functional.one_hot(batch.labels, NUM_CLASSES)
    function = kinspace.losses.proxy_anchor_loss
    torch.testing.assert_close(
        function(batch.embeddings, matrix, proxies), function(*batch, proxies)
    )
    matrix[0, 3] = 1  # now among the samples of proxy 3 too
    s = torch.nn.functional.normalize(proxies) @ torch.nn.functional.normalize(batch.embeddings).T
    own = matrix.T.bool()
    pull = torch.stack([(1 + (-32 * (s[c][own[c]] - 0.1)).exp().sum()).log() for c in range(8)])
    push = torch.stack([(1 + (32 * (s[c][~own[c]] + 0.1)).exp().sum()).log() for c in range(8)])
    expected = pull.sum() / own.any(1).sum() + push.mean()
    torch.testing.assert_close(function(batch.embeddings, matrix, proxies), expected)


# --- around a loss -------------------------------------------------------------------------------


def test_a_memory_and_nested_dimensions_pass_the_options_on() -> None:
    batch = random_batch(2)
    whole, _ = with_ignored(batch)
    memories = [CrossBatchMemory(SupCon(), size=100, dim=4).double() for _ in range(2)]
    for _ in range(2):
        found = memories[0](*whole, ignore_label=-1, singletons="skip")
        torch.testing.assert_close(found, memories[1](*batch, singletons="skip"))
    assert torch.equal(memories[0].memory, memories[1].memory)
    nested = Matryoshka(SupCon(), dims=(2, 4))
    reference = {"reference": batch.embeddings, "reference_labels": batch.labels}
    found = nested(*whole, ignore_label=-1, **reference)
    first, second = (
        SupCon()(x[:, :dim], batch.labels, reference=x[:, :dim], reference_labels=batch.labels)
        for x, dim in ((batch.embeddings, 2), (batch.embeddings, 4))
    )
    torch.testing.assert_close(found, (first + second) / 2)


def test_a_virtual_point_weighs_as_its_sample() -> None:
    batch = random_batch(2)
    whole, places = with_ignored(batch)
    weights = torch.ones(len(whole.labels)).double().index_copy(0, places, WEIGHTS)
    criteria = [VirtualPoints(SupCon(), NUM_CLASSES, 4).double() for _ in range(2)]
    found = criteria[0](*whole, ignore_label=-1, weights=weights)
    torch.testing.assert_close(found, criteria[1](*batch, weights=WEIGHTS))
    centers = criteria[0].class_centers, criteria[1].class_centers
    assert torch.equal(centers[0].centers, centers[1].centers)
    terms = VirtualPoints(SupCon(reduction="none"), NUM_CLASSES, 4).double()
    both = terms(*batch, weights=WEIGHTS)
    torch.testing.assert_close(both.sum() / WEIGHTS.sum(), found)


# --- errors --------------------------------------------------------------------------------------

X, Y = random_batch(2)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"weights": WEIGHTS[:-1]}, r"^weights: expected a tensor of shape \(12,\).*got \(11,\)"),
    ({"weights": -WEIGHTS}, "^weights: expected 0 or more, got -3"),
    ({"weights": [1.0] * 12}, "^weights: expected a tensor .*got list"),
    ({"weights": {"auk": 1.0}}, "^weights: expected a whole number, got 'auk'"),
    ({"weights": {0: -1.0}}, "^weight of 0: expected at least 0, got -1.0"),
    ({"ignore_label": 0.5}, "^ignore_label: expected a whole number, got 0.5"),
    ({"ignore_label": "auk"}, "^ignore_label: expected a whole number, got 'auk'"),
    ({"singletons": "drop"}, "^singletons: expected one of 'count', 'skip', got 'drop'"),
    ({"labels": Y - 2, "ignore_label": -1}, "^labels: expected 0 or more, got -2"),
    ({"labels": Y.float(), "ignore_label": -1}, "^labels: expected integers, got torch.float32"),
    ({"labels": ["auk"] * 11}, r"^labels: expected shape \(12,\)"),
    ({"labels": ["auk"] * 11 + [3]}, "^labels: expected words, as the first is one, got 3"),
    ({"labels": torch.ones(12, 3).long() * 2}, r"^labels: expected 0 and 1 .*got 2\.\.2"),
    ({"labels": torch.ones(11, 3).long()}, r"^labels: expected \(12, classes\), .*got \(11, 3\)"),
    ({"labels": torch.rand(12, 5)}, r"^labels: expected similarities of shape \(12, 12\).*bool"),
    ({"labels": torch.rand(12, 12)}, "^labels: expected similarities that are symmetric"),
    ({"labels": 2 * torch.ones(12, 12)}, "^labels: expected similarities from 0 to 1"),
    (
        {"labels": torch.ones(12, 3).long(), "ignore_label": -1},
        "^ignore_label: expected one label a sample with it",
    ),
    (
        {"labels": torch.ones(12, 3).long(), "reference": X, "reference_labels": Y},
        "^reference_labels: expected a matrix like the labels",
    ),
    (
        {"labels": ["auk"] * 12, "reference": X, "reference_labels": Y},
        "^reference_labels: expected words like the labels, got numbers",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message[1:40] for _, message in WRONG])
@pytest.mark.parametrize("name", ["supcon_loss", "contrastive_loss"])
def test_wrong_options_are_named_with_what_came(
    name: str, wrong: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"embeddings": X, "labels": Y, **wrong}
    with pytest.raises(ValueError, match=message):
        getattr(kinspace.losses, name)(**given)


def test_a_loss_of_single_labels_names_a_matrix() -> None:
    with pytest.raises(ValueError, match=r"^labels: expected shape \(12,\).*got \(12, 3\)"):
        kinspace.losses.triplet_loss(X, torch.ones(12, 3).long())


def test_a_table_of_classes_has_no_words() -> None:
    with pytest.raises(ValueError, match=r"^labels: .* got list of words; number the classes"):
        LOSSES["proxy_anchor"](NUM_CLASSES, 4).double()(X, ["auk"] * 12)


CALLS: list[Callable[..., Any]] = [
    kinspace.losses.supcon_loss,
    SupCon(),
    LOSSES["center"](NUM_CLASSES, 4),
    miners.semi_hard,
]


@pytest.mark.parametrize("call", CALLS, ids=["function", "module", "module with state", "miner"])
def test_a_misspelled_option_is_an_error(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'ignore_labels'"):
        call(X.float(), Y, ignore_labels=3)
