"""Losses of pairs and triplets with a reference, and on chosen pairs and triplets."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kinspace.losses
import loops
import reference_loops
from batches import DEGENERATE_BATCHES, NUM_CLASSES, all_triplets, random_batch
from gradients import disagreement, evaluate
from kinspace import miners
from kinspace._core import vectors
from kinspace._core.class_index import ClassIndex
from kinspace.losses import (
    LOSSES,
    Contrastive,
    Margin,
    Triplet,
    contrastive_loss,
    margin_loss,
    triplet_loss,
)
from kinspace.recipes.sections import LossConfig
from reference_loops import Comparisons
from references import arguments, function_of

# Options to try each loss with; every loss that takes a reference has to be here.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "angular_loss": [{}, {"degrees": 30.0}],
    "bier_loss": [{}, {"groups": 2, "margin": 0.3}],
    "circle_loss": [{}, {"scale": 16.0, "margin": 0.4}],
    "contrastive_loss": [
        {},
        {"reduction": "sum", "margin": 3.0},
        {"reduction": "mean"},
        {"reduction": "mean_active", "squared": False},
    ],
    "fast_ap_loss": [{}, {"bins": 7}],
    "hdc_loss": [{}, {"groups": 2, "shares": (1.0, 0.3), "margin": 1.7}],
    "histogram_loss": [{}, {"bins": 11}],
    "lifted_structure_loss": [{}, {"margin": 0.3}],
    "multi_similarity_loss": [{}, {"beta": 10.0, "mining_margin": None}],
    "n_pair_loss": [{}, {"norm_weight": 0.1}],
    "nca_loss": [{}],
    "nra_loss": [{}, {"alpha": 1.0, "eps": 1e-2}, {"detach_range": True}, {"sharpness": 6.0}],
    "nt_xent_loss": [{}, {"temperature": 1.0}],
    "ranked_list_loss": [{}, {"balance": 0.2, "margin": 1.0, "temperature": 1.0}],
    "recall_surrogate_loss": [{}, {"ks": (1, 3), "temperature": 0.1}],
    "roadmap_loss": [{}, {"calibration": 0.2, "temperature": 0.1, "slope": 3.0}],
    "smooth_ap_loss": [{}, {"temperature": 0.1}],
    "supcon_loss": [{}, {"temperature": 1.0}],
    "tuplet_margin_loss": [{}, {"scale": 4.0, "slack": 0.5}],
    "triplet_loss": [
        {},
        {"reduction": "sum", "squared": False, "margin": 0.2},
        {"reduction": "mean_active"},
        {"mining": "semi_hard"},
        {"mining": "batch_hard", "squared": False},
    ],
}
CALLS = [
    pytest.param(name, options, id=f"{name}-{options}")
    for name, tried in OPTIONS.items()
    for options in tried
]
EVERY_LOSS = pytest.mark.parametrize("name", OPTIONS)


def loop_of(name: str, includes_batch: bool, options: dict[str, Any]) -> Callable[..., Tensor]:
    def call(*given: Tensor) -> Tensor:
        return getattr(reference_loops, name)(Comparisons(*given, includes_batch), **options)  # type: ignore[no-any-return]

    return call


BATCHES = {f"seed {seed}": random_batch(seed, per_class=2) for seed in range(4)}
BATCHES |= {
    name: batch
    for name, batch in DEGENERATE_BATCHES.items()
    if name not in ("tiny_scale", "huge_scale")
}


def test_every_loss_that_takes_a_reference_is_tried() -> None:
    public = vars(kinspace.losses)
    functions = [public[name] for name in kinspace.losses.__all__ if name.endswith("_loss")]
    taking = {
        function.__name__
        for function in functions
        if "reference_labels" in inspect.signature(function).parameters
    }
    assert taking == set(OPTIONS)


@pytest.mark.parametrize("includes_batch", [False, True], ids=["apart", "with the batch"])
@pytest.mark.parametrize(("name", "options"), CALLS)
def test_agrees_with_the_loop(name: str, options: dict[str, Any], includes_batch: bool) -> None:
    problems = []
    for seed, (kind, batch) in enumerate(BATCHES.items()):
        given = arguments(batch, seed, includes_batch=includes_batch)
        found = evaluate(function_of(name, includes_batch, options), given)
        expected = evaluate(loop_of(name, includes_batch, options), given)
        problem = disagreement(found, expected, gradient_floor=1e-11)
        if problem is not None:
            problems.append(f"{kind}: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("includes_batch", [False, True], ids=["apart", "with the batch"])
@EVERY_LOSS
def test_by_matrix_products_and_with_lists_as_long_as_the_reference_it_is_the_same(
    name: str, includes_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = random_batch(3, classes=6, per_class=4, dim=16)
    given = arguments(batch, 1, includes_batch=includes_batch)
    call = function_of(name, includes_batch, {})
    expected = evaluate(call, given)
    monkeypatch.setattr(vectors, "FEW_NUMBERS", 0)
    monkeypatch.setattr(ClassIndex, "_fixed", True)
    assert disagreement(evaluate(call, given), expected, gradient_floor=1e-9) is None


@EVERY_LOSS
def test_is_one_graph_for_torch_compile(name: str) -> None:
    torch._dynamo.reset()
    given = arguments(random_batch(2), 1, includes_batch=True)
    call = function_of(name, True, {})
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=False)
    problem = disagreement(evaluate(compiled, given), evaluate(call, given), gradient=1e-9)
    assert problem is None, problem


@EVERY_LOSS
def test_a_module_gives_what_its_function_gives(name: str) -> None:
    module = LOSSES[name.removesuffix("_loss")]()
    x, labels, reference, others = arguments(random_batch(2), 1, includes_batch=False).values()
    found = module(x, labels, reference=reference, reference_labels=others)
    assert torch.equal(found, function_of(name, False, {})(x, labels, reference, others))


@EVERY_LOSS
def test_half_precision_is_raised_to_float32(name: str) -> None:
    x, labels, reference, others = arguments(random_batch(2), 1, includes_batch=False).values()
    call = function_of(name, False, {})
    half = call(x.bfloat16(), labels, reference.bfloat16(), others)
    expected = call(x.bfloat16().float(), labels, reference.bfloat16().float(), others)
    assert torch.equal(half, expected)


@EVERY_LOSS
def test_wrong_references_are_named_with_what_came(name: str) -> None:
    function = getattr(kinspace.losses, name)
    x, y, reference, others = arguments(random_batch(2), 1, includes_batch=False).values()
    for wrong, expected in [
        ({"reference": reference}, "^reference_labels: expected the labels of the reference"),
        ({"reference_labels": others}, "^reference_labels: expected a reference with it"),
        ({"includes_batch": True}, "^includes_batch: expected a reference with it"),
        (
            {"reference": reference[:, :2], "reference_labels": others},
            r"^reference: expected 4 columns .*got shape \(1\d, 2\)",
        ),
        (
            {"reference": reference, "reference_labels": others[:-1]},
            r"^reference_labels: expected shape \(1\d,\), one for each row of reference",
        ),
        (
            {"reference": reference, "reference_labels": others, "includes_batch": True},
            "^includes_batch: expected a reference that begins with the 12 rows of the batch",
        ),
    ]:
        with pytest.raises(ValueError, match=expected):
            function(x, y, **wrong)


def test_first_anchors_and_disjoint_triplets_are_of_one_batch() -> None:
    x, y, reference, others = arguments(random_batch(2), 1, includes_batch=False).values()
    given = {"reference": reference, "reference_labels": others}
    with pytest.raises(ValueError, match=r"^anchors: expected 'all' with a reference"):
        kinspace.losses.n_pair_loss(x, y, anchors="first", **given)
    with pytest.raises(ValueError, match=r"^reference: expected none, disjoint"):
        triplet_loss(x, y, mining="disjoint", **given)


# --- chosen pairs and triplets -------------------------------------------------------------------


def all_pairs(labels: Tensor) -> Tensor:
    size = len(labels)
    return torch.tensor([(i, j) for i in range(size) for j in range(size) if i < j])


@pytest.mark.parametrize("reduction", ["mean_each", "mean_active", "mean", "sum"])
def test_contrastive_on_all_pairs_is_contrastive(reduction: str) -> None:
    for batch in (random_batch(1), random_batch(2, classes=8, per_class=6, dim=32)):
        given = {"embeddings": batch.embeddings}
        pairs = all_pairs(batch.labels)

        def call(x: Tensor, labels: Tensor = batch.labels, **options: Any) -> Tensor:
            return contrastive_loss(x, labels, margin=9.0, reduction=reduction, **options)

        found, expected = evaluate(call, given, {"pairs": pairs}), evaluate(call, given)
        assert disagreement(found, expected) is None


@pytest.mark.parametrize("reduction", ["mean", "mean_active", "sum"])
@pytest.mark.parametrize("squared", [True, False])
def test_triplet_loss_on_all_triplets_is_that_of_all(reduction: str, squared: bool) -> None:
    for batch in (random_batch(1), random_batch(2, classes=4, per_class=6, dim=32)):
        triplets = all_triplets(batch.labels)
        pairs = torch.cat([all_pairs(batch.labels), all_pairs(batch.labels).flip(1)])

        def call(x: Tensor, labels: Tensor = batch.labels, **options: Any) -> Tensor:
            return triplet_loss(x, labels, reduction=reduction, squared=squared, **options)

        given = {"embeddings": batch.embeddings}
        expected = evaluate(call, given)
        for chosen in ({"triplets": triplets}, {"pairs": pairs}):
            problem = disagreement(evaluate(call, given, chosen), expected)
            assert problem is None, problem


MASKED = ["circle", "multi_similarity", "nt_xent", "tuplet_margin"]


@pytest.mark.parametrize("name", MASKED)
def test_losses_of_anchors_take_chosen_pairs_and_triplets(name: str) -> None:
    """Each anchor with the rows it is compared to: by the loop with others left out."""
    options = {"mining_margin": None} if name == "multi_similarity" else {}
    for seed in range(3):
        x, labels, reference, others = arguments(
            random_batch(seed), seed, includes_batch=False
        ).values()
        given = {"reference": reference, "reference_labels": others}
        triplets = miners.triplet_margin(x, labels, margin=2.0, kind="all", **given)[::3]
        comparisons = Comparisons(x, labels, reference, others, False)
        for i in comparisons.anchors:
            own = triplets[triplets[:, 0] == i]
            comparisons.positives[i] = sorted(set(own[:, 1].tolist()))
            comparisons.negatives[i] = sorted(set(own[:, 2].tolist()))
        expected = getattr(reference_loops, f"{name}_loss")(comparisons, **options)
        criterion = LOSSES[name](**options)
        found = criterion(x, labels, triplets=triplets, **given)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        pairs = torch.cat([triplets[:, :2], triplets[:, ::2]])
        assert torch.equal(criterion(x, labels, pairs=pairs, **given), found)


@pytest.mark.parametrize("name", MASKED)
def test_all_pairs_chosen_are_the_batch(name: str) -> None:
    batch = random_batch(1)
    pairs = torch.cat([all_pairs(batch.labels), all_pairs(batch.labels).flip(1)])
    criterion = LOSSES[name]()
    torch.testing.assert_close(criterion(*batch, pairs=pairs), criterion(*batch))


def test_contrastive_on_triplets_is_that_on_their_pairs() -> None:
    x, labels = random_batch(1)
    triplets = miners.batch_hard(x, labels)
    pairs = torch.cat([triplets[:, [0, 1]], triplets[:, [0, 2]]])
    found = contrastive_loss(x, labels, triplets=triplets)
    assert torch.equal(found, contrastive_loss(x, labels, pairs=pairs))
    same = torch.stack([loops.squared_distance(x[a], x[p]) for a, p, _ in triplets]).mean()
    push = [loops.hinge(1 - loops.squared_distance(x[a], x[n])) for a, _, n in triplets]
    torch.testing.assert_close(found, same + torch.stack(push).mean())


@pytest.mark.parametrize("criterion", [Contrastive(), Triplet(), Margin(NUM_CLASSES).double()])
def test_chosen_triplets_may_point_into_a_reference(criterion: nn.Module) -> None:
    x, labels, reference, others = arguments(random_batch(4), 2, includes_batch=False).values()
    given = {"reference": reference, "reference_labels": others}
    triplets = miners.semi_hard(x, labels, **given)
    joined = triplets + torch.tensor([0, len(x), len(x)])
    found = criterion(x, labels, triplets=triplets, **given)
    whole = torch.cat([x, reference]), torch.cat([labels, others])
    torch.testing.assert_close(found, criterion(*whole, triplets=joined))


def test_margin_on_given_triplets_and_pairs_is_that_of_the_formula() -> None:
    x, labels = random_batch(4)
    module = Margin(NUM_CLASSES, margin=0.3).double()
    triplets = miners.semi_hard(x, labels)
    unit = torch.nn.functional.normalize(x)
    expected = margin_loss(unit, triplets, margin=0.3, boundary=module.boundary[0])
    torch.testing.assert_close(module(x, labels, triplets=triplets), expected)
    pairs = torch.cat([triplets[:, :2], triplets[:, ::2]])
    torch.testing.assert_close(module(x, labels, pairs=pairs), expected)


def test_triplet_loss_takes_a_miner_where_it_takes_a_name() -> None:
    for batch in (random_batch(4), random_batch(5, classes=8, per_class=5, dim=16)):
        for name in ("semi_hard", "batch_hard", "disjoint"):
            expected = triplet_loss(*batch, mining=name)
            torch.testing.assert_close(triplet_loss(*batch, mining=miners.MINERS[name]), expected)
    assert "semi_hard" in repr(Triplet(mining=miners.semi_hard))


@pytest.mark.parametrize("name", sorted(miners.MINERS))
def test_every_miner_may_be_given_to_triplet_loss_with_a_reference(name: str) -> None:
    x, labels, reference, others = arguments(random_batch(4), 2, includes_batch=True).values()
    given = {"reference": reference, "reference_labels": others, "includes_batch": True}
    if name == "disjoint":
        given = {}
    leaf = x.clone().requires_grad_()
    criterion = Triplet(mining=miners.MINERS[name], margin=5.0)
    loss = criterion(leaf, labels, **given)
    assert loss > 0
    loss.backward()
    assert leaf.grad is not None


def test_a_recipe_names_a_miner_by_its_word() -> None:
    assert LossConfig("triplet", {"mining": "semi_hard"}).options == {"mining": "semi_hard"}
    with pytest.raises(ValueError, match=r"mining: expected .*got 3"):
        LossConfig("triplet", {"mining": 3})


def test_a_miner_that_returns_pairs_makes_their_triplets() -> None:
    x, labels = random_batch(4)
    miner = partial(miners.pair_margin, positive_margin=0.0, negative_margin=1e9)
    found = triplet_loss(x, labels, mining=miner)
    torch.testing.assert_close(found, triplet_loss(x, labels))


def test_nothing_chosen_is_a_zero_connected_to_the_graph() -> None:
    x, labels = random_batch(4)
    none = torch.empty(0, 3, dtype=torch.long)
    for criterion in (Contrastive(), Triplet(), Margin(NUM_CLASSES).double()):
        for chosen in ({"triplets": none}, {"pairs": none[:, :2]}):
            leaf = x.clone().requires_grad_()
            value = criterion(leaf, labels, **chosen)
            value.backward()
            assert value == 0
            assert leaf.grad is not None
            assert not leaf.grad.any()


@pytest.mark.parametrize("criterion", [Contrastive(), Triplet(), Margin(NUM_CLASSES).double()])
def test_wrong_pairs_and_triplets_are_named_with_what_came(criterion: nn.Module) -> None:
    x, labels = random_batch(4)
    for chosen, message in [
        ({"pairs": torch.zeros(3)}, r"^pairs: expected a tensor of shape \(P, 2\), got \(3,\)"),
        ({"pairs": torch.zeros(3, 2)}, "^pairs: expected integers, got torch.float32"),
        ({"pairs": torch.tensor([[0, 12]])}, r"^pairs: expected indices in 0\.\.11, got 12"),
        ({"triplets": torch.tensor([[0, 1, -1]])}, r"^triplets: expected indices .*got -1"),
        (
            {"pairs": torch.tensor([[0, 1]]), "triplets": torch.tensor([[0, 1, 2]])},
            "expected pairs or triplets, got both",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            criterion(x, labels, **chosen)
    with pytest.raises(ValueError, match=r"^mining: expected one of 'all'"):
        Triplet(mining="semihard")
    with pytest.raises(ValueError, match=r"^mining: expected one of 'all'"):
        Triplet(mining=3)  # type: ignore[arg-type]
