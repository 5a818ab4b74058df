"""The bridge from pytorch-metric-learning: its values where it is installed, and plain formulas."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

import kinspace.losses as ours
from batches import Batch, random_batch
from kinspace.compat import pml

Call = Callable[..., Tensor]

pytestmark = [  # what newer releases of torch and NumPy say of the library's own code
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),
]


def balanced(seed: int) -> Batch:
    return random_batch(seed, classes=4, per_class=3, dim=6)


def test_triplet_loss_is_the_mean_over_active_triplets_of_unit_vectors() -> None:
    x, labels = balanced(0)
    unit, terms = normalize(x), []
    for a in range(12):
        for p in range(12):
            for n in range(12):
                if a != p and labels[a] == labels[p] and labels[a] != labels[n]:
                    hinge = (unit[a] - unit[p]).norm() - (unit[a] - unit[n]).norm() + 0.2
                    terms.append(hinge.clamp(min=0))
    active = torch.stack([term for term in terms if term > 0])
    found = pml.losses.TripletMarginLoss(margin=0.2)(x, labels)
    torch.testing.assert_close(found, active.mean())


def test_an_arcface_margin_is_in_degrees() -> None:
    criterion = pml.losses.ArcFaceLoss(4, 6, margin=180 / math.pi).double()
    assert criterion.loss.margin == pytest.approx(1.0)
    assert criterion(*balanced(0)).isfinite()


def test_miners_return_three_tensors_of_triplets_or_four_of_pairs() -> None:
    x, labels = balanced(0)
    for name in pml.miners.__all__:
        if name in ("Miner", "EmbeddingsAlreadyPackagedAsTriplets"):
            continue
        found = getattr(pml.miners, name)()(x, labels)
        assert len(found) == (4 if name in PAIRS else 3)
        first, positive, *rest = found
        assert len(first)
        assert labels[first].eq(labels[positive]).all()
        assert labels[rest[0] if len(rest) == 2 else first].ne(labels[rest[-1]]).all()


PAIRS = {"BatchEasyHardMiner", "HDCMiner", "MultiSimilarityMiner", "PairMarginMiner"}
TAKING = ["CircleLoss", "ContrastiveLoss", "MarginLoss", "MultiSimilarityLoss", "NTXentLoss"]
TAKING += ["TripletMarginLoss", "TupletMarginLoss"]


@pytest.mark.parametrize("miner", sorted(PAIRS | {"BatchHardMiner", "TripletMarginMiner"}))
@pytest.mark.parametrize("name", TAKING)
def test_a_loss_takes_what_a_miner_finds(name: str, miner: str) -> None:
    x, labels = balanced(0)
    other, other_labels = balanced(1)
    leaf = x.clone().requires_grad_()
    criterion, mine = getattr(pml.losses, name)(), getattr(pml.miners, miner)()
    value = criterion(leaf, labels, mine(leaf, labels))
    value.backward()
    assert value.isfinite()
    assert leaf.grad is not None
    found = mine(x, labels, other, other_labels)
    assert criterion(x, labels, found, other, other_labels).isfinite()


def test_a_loss_without_tuples_or_references_says_so() -> None:
    x, labels = balanced(0)
    triplets = pml.miners.BatchHardMiner()(x, labels)
    with pytest.raises(ValueError, match=r"^triplets: expected none, ProxyAnchor does not"):
        pml.losses.ProxyAnchorLoss(4, 6)(x.float(), labels, triplets)
    with pytest.raises(ValueError, match=r"^reference: expected none, SoftTriple does not"):
        pml.losses.SoftTripleLoss(4, 6)(x.float(), labels, None, x, labels)
    with pytest.raises(TypeError, match="swap"):
        pml.losses.TripletMarginLoss(swap=True)


def test_a_memory_keeps_what_it_has_seen() -> None:
    criterion = pml.losses.CrossBatchMemory(pml.losses.ContrastiveLoss(), 6, 30).double()
    plain = ours.CrossBatchMemory(
        ours.Contrastive(squared=False, reduction="mean_active"), 30, 6
    ).double()
    for seed in range(4):
        x, labels = balanced(seed)
        torch.testing.assert_close(criterion(x, labels), plain(normalize(x), labels))


def test_a_memory_takes_a_miner_and_pairs_of_the_batch() -> None:
    inner, miner = pml.losses.NTXentLoss(temperature=0.1), pml.miners.TripletMarginMiner(0.1)
    criterion = pml.losses.CrossBatchMemory(inner, 6, 12, miner=miner).double()
    for seed in range(3):  # a memory of one batch
        x, labels = balanced(seed)
        torch.testing.assert_close(criterion(x, labels), inner(x, labels, miner(x, labels)))
    outer = pml.miners.MultiSimilarityMiner()
    given = pml.losses.CrossBatchMemory(pml.losses.ContrastiveLoss(), 6, 12, miner=miner).double()
    x, labels = balanced(0)
    one, two = miner(x, labels), outer(x, labels)
    columns = (one[0], one[1], one[0], one[2])
    both = tuple(torch.cat(pair) for pair in zip(two, columns, strict=True))
    wanted = pml.losses.ContrastiveLoss()(x, labels, both)
    torch.testing.assert_close(given(x, labels, two), wanted)
    given.reset_queue()
    torch.testing.assert_close(given(x, labels, two), wanted)


def test_losses_add_up_by_name_each_with_its_miner() -> None:
    one, two, miner = (
        pml.losses.ContrastiveLoss(),
        pml.losses.TripletMarginLoss(0.1),
        pml.miners.MultiSimilarityMiner(),
    )
    x, labels = balanced(0)
    wanted = one(x, labels) + 0.25 * two(x, labels, miner(x, labels))
    by_name = pml.losses.MultipleLosses(
        {"one": one, "two": two}, miners={"two": miner}, weights={"one": 1, "two": 0.25}
    )
    in_order = pml.losses.MultipleLosses([one, two], miners=[None, miner], weights=[1, 0.25])
    for criterion in (by_name, in_order):
        torch.testing.assert_close(criterion(x, labels), wanted)
        with pytest.raises(ValueError, match=r"^indices_tuple: expected none beside miners"):
            criterion(x, labels, miner(x, labels))
    with pytest.raises(ValueError, match=r"^weights: expected one for each loss"):
        pml.losses.MultipleLosses([one, two], weights=[1])
    with pytest.raises(ValueError, match=r"^miners: expected names of losses"):
        pml.losses.MultipleLosses({"one": one}, miners={"three": miner})


def test_a_table_of_classes_is_there_as_it_is_there() -> None:
    x = balanced(0).embeddings
    loss = pml.losses.ArcFaceLoss(4, 6, scale=8).double()
    cosines = normalize(x) @ normalize(loss.W, dim=0)
    torch.testing.assert_close(loss.get_logits(x), 8 * cosines)
    sub_centers = pml.losses.SubCenterArcFaceLoss(4, 6, scale=8, sub_centers=3).double()
    nearest = (normalize(x) @ normalize(sub_centers.W, dim=0)).view(-1, 4, 3).amax(2)
    torch.testing.assert_close(sub_centers.get_logits(x), 8 * nearest)
    proxies = pml.losses.ProxyNCALoss(4, 6).double()
    table = torch.cdist(normalize(x), normalize(proxies.proxies)) ** 2
    torch.testing.assert_close(proxies.get_logits(x), table)
    assert len(pml.losses.MarginLoss(learn_beta=True).beta) == 1
    with pytest.raises(AttributeError, match="Triplet has no table of classes"):
        pml.losses.TripletMarginLoss().get_logits(x)


def test_a_distance_that_cannot_be_had_says_so() -> None:
    cosine, plain = pml.distances.CosineSimilarity(), pml.distances.LpDistance()
    for call in (
        lambda: pml.losses.MarginLoss(distance=cosine),  # type: ignore[arg-type]
        lambda: pml.miners.TripletMarginMiner(distance=cosine),  # type: ignore[arg-type]
        lambda: pml.miners.MultiSimilarityMiner(distance=plain),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"^distance: expected one that is "):
            call()
    with pytest.raises(ValueError, match=r"^pos_margin: expected 1, got 0"):
        pml.losses.ContrastiveLoss(distance=cosine)
    with pytest.raises(ValueError, match=r"^LpDistance: expected p=2 and power 1 or 2"):
        pml.distances.LpDistance(p=1)


def test_samplers_deal_out_m_of_a_class() -> None:
    labels = np.repeat(np.arange(6), 5)
    sampler = pml.samplers.MPerClassSampler(labels, m=4, batch_size=12)
    loader = DataLoader(labels, batch_size=12, sampler=sampler)  # type: ignore[arg-type]
    batches = list(loader)
    assert len(batches) == len(sampler) // 12
    assert all(
        batch.bincount(minlength=6).sort().values.tolist()[-3:] == [4] * 3 for batch in batches
    )
    table = np.stack([labels, labels // 2], 1)
    hierarchical = pml.samplers.HierarchicalSampler(
        table, batch_size=8, samples_per_class=2, batches_per_super_tuple=5
    )
    assert len(hierarchical) == 5 * math.comb(3, 2)
    for batch in hierarchical:
        assert len(set(table[batch, 1])) == 2
        assert len(batch) == 8


def test_accuracies_have_their_names() -> None:
    x, labels = random_batch(3, classes=5, per_class=6, separation=3.0)
    found = pml.AccuracyCalculator().get_accuracy(x, labels)
    distances = torch.cdist(x, x).fill_diagonal_(math.inf)
    first = labels[distances.argmin(1)].eq(labels).double().mean()
    assert found["precision_at_1"] == pytest.approx(first.item())
    assert set(found) == {
        "precision_at_1",
        "r_precision",
        "mean_average_precision_at_r",
        "mean_average_precision",
        "mean_reciprocal_rank",
        "NMI",
        "AMI",
    }
    assert list(pml.AccuracyCalculator(exclude=["NMI", "AMI"]).get_accuracy(x, labels)) == [
        "precision_at_1",
        "r_precision",
        "mean_average_precision_at_r",
        "mean_average_precision",
        "mean_reciprocal_rank",
    ]
    with pytest.raises(ValueError, match=r"^include: expected some of .*got 'recall'"):
        pml.AccuracyCalculator(include=["recall"])


def test_the_mean_of_the_means_of_classes() -> None:
    query = np.arange(10.0)[:, None]
    reference = query.copy()
    query[-1], reference[0] = 100, -100
    labels, others = np.array([0] * 9 + [1]), np.array([1] + [0] * 9)
    for whole, wanted in ((False, 0.9), (True, 0.5)):
        calculator = pml.AccuracyCalculator(exclude=["NMI", "AMI"], avg_of_avgs=whole)
        found = calculator.get_accuracy(query, labels, reference, others)
        assert found["precision_at_1"] == pytest.approx(wanted)
        assert found["mean_average_precision_at_r"] == pytest.approx(wanted)


# --- beside the library itself, where it is installed --------------------------------------------


@pytest.fixture(scope="module")
def theirs() -> Any:
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, miners
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    return SimpleNamespace(losses=losses, miners=miners, AccuracyCalculator=AccuracyCalculator)


EQUAL: dict[str, dict[str, Any]] = {
    "CircleLoss": {},
    "ContrastiveLoss": {},
    "FastAPLoss": {},
    "HistogramLoss": {"n_bins": 20},
    "LiftedStructureLoss": {},
    "MarginLoss": {},
    "MultiSimilarityLoss": {},
    "NCALoss": {"softmax_scale": 3},
    "NPairsLoss": {},
    "NTXentLoss": {},
    "SupConLoss": {},
    "TripletMarginLoss": {"margin": 0.2},
    "TupletMarginLoss": {},
}
REFERRING = sorted(
    set(EQUAL) - {"FastAPLoss", "HistogramLoss", "LiftedStructureLoss", "NPairsLoss"}
)
WITH_CLASSES: dict[str, tuple[str, str]] = {  # the parameter here and there
    "ArcFaceLoss": ("weight", "W"),
    "CosFaceLoss": ("weight", "W"),
    "NormalizedSoftmaxLoss": ("weight", "W"),
    "ProxyAnchorLoss": ("proxies", "proxies"),
    "ProxyNCALoss": ("proxies", "proxies"),
    "SphereFaceLoss": ("weight", "W"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_has_the_value_of_the_library(name: str, theirs: Any) -> None:
    for seed in range(3):
        x, labels = balanced(seed)
        first = getattr(pml.losses, name)(**EQUAL[name])(x, labels)
        second = getattr(theirs.losses, name)(**EQUAL[name])(x, labels)
        torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "options", "distance"),
    [
        ("TripletMarginLoss", {"margin": 0.2}, ("CosineSimilarity", {})),
        ("TripletMarginLoss", {"margin": 0.2}, ("DotProductSimilarity", {})),
        ("TripletMarginLoss", {}, ("LpDistance", {"p": 1, "normalize_embeddings": False})),
        ("ContrastiveLoss", {"pos_margin": 1, "neg_margin": 0.3}, ("CosineSimilarity", {})),
        ("ContrastiveLoss", {"neg_margin": 2.0}, ("LpDistance", {"power": 2})),
        ("MultiSimilarityLoss", {}, ("LpDistance", {})),
        ("MultiSimilarityLoss", {}, ("DotProductSimilarity", {"normalize_embeddings": False})),
        ("MarginLoss", {}, ("LpDistance", {"power": 2})),
        ("NCALoss", {}, ("CosineSimilarity", {})),
        ("NCALoss", {}, ("LpDistance", {})),
        ("NTXentLoss", {"temperature": 0.3}, ("LpDistance", {})),
        ("SupConLoss", {"temperature": 0.3}, ("LpDistance", {"power": 2})),
        ("SupConLoss", {}, ("DotProductSimilarity", {"normalize_embeddings": False})),
    ],
)
def test_has_the_value_of_the_library_with_a_distance(
    name: str, options: dict[str, Any], distance: tuple[str, dict[str, Any]], theirs: Any
) -> None:
    from pytorch_metric_learning import distances

    x, labels = balanced(1)
    word, given = distance
    first = getattr(pml.losses, name)(**options, distance=getattr(pml.distances, word)(**given))
    second = getattr(theirs.losses, name)(**options, distance=getattr(distances, word)(**given))
    torch.testing.assert_close(first(x, labels), second(x, labels), rtol=1e-6, atol=1e-8)
    table = getattr(pml.distances, word)(**given)(x)
    torch.testing.assert_close(table, getattr(distances, word)(**given)(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", REFERRING)
def test_has_the_value_of_the_library_with_a_reference(name: str, theirs: Any) -> None:
    for seed in range(3):
        (x, labels), (other, other_labels) = balanced(seed), balanced(seed + 5)
        given = (x, labels, None, other, other_labels)
        first = getattr(pml.losses, name)(**EQUAL[name])(*given)
        second = getattr(theirs.losses, name)(**EQUAL[name])(*given)
        torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", WITH_CLASSES)
def test_has_the_value_of_the_library_with_its_parameters(name: str, theirs: Any) -> None:
    x, labels = balanced(0)
    mine = getattr(pml.losses, name)(4, 6).double()
    other = getattr(theirs.losses, name)(4, 6).double()
    here, there = WITH_CLASSES[name]
    with torch.no_grad():
        value = getattr(mine.loss, here)
        getattr(other, there).copy_(value.T if there == "W" else value)
    torch.testing.assert_close(mine(x, labels), other(x, labels), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AngularMiner", {}),
        ("BatchHardMiner", {}),
        ("MultiSimilarityMiner", {}),
        ("PairMarginMiner", {}),
        ("TripletMarginMiner", {}),
        ("TripletMarginMiner", {"type_of_triplets": "semihard"}),
        ("TripletMarginMiner", {"type_of_triplets": "hard"}),
        ("TripletMarginMiner", {"type_of_triplets": "easy"}),
        ("BatchEasyHardMiner", {"pos_strategy": "easy", "neg_strategy": "hard"}),
        ("BatchEasyHardMiner", {}),
    ],
)
def test_mines_what_the_library_mines(name: str, options: dict[str, Any], theirs: Any) -> None:
    for seed in range(3):
        x, labels = normalize(balanced(seed).embeddings), balanced(seed).labels
        first = getattr(pml.miners, name)(**options)(x, labels)
        second = getattr(theirs.miners, name)(**options)(x, labels)
        assert len(first) == len(second)
        pairs = [(0, 1, 2)] if len(first) == 3 else [(0, 1), (2, 3)]
        for columns in pairs:
            one, other = (
                sorted(zip(*(found[c].tolist() for c in columns), strict=True))
                for found in (first, second)
            )
            assert one == other


def test_remembers_what_the_library_remembers(theirs: Any) -> None:
    mine = pml.losses.CrossBatchMemory(pml.losses.NTXentLoss(), 6, 36).double()
    other = theirs.losses.CrossBatchMemory(theirs.losses.NTXentLoss(), 6, 36)
    for seed in range(5):
        x, labels = balanced(seed)
        first, second = (x.clone().requires_grad_() for _ in range(2))
        value, wanted = mine(first, labels), other(second, labels)
        torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-8)
        value.backward()
        wanted.backward()
        torch.testing.assert_close(first.grad, second.grad, rtol=1e-5, atol=1e-8)


def test_queries_within_a_larger_reference_have_the_accuracies_of_the_library(
    theirs: Any,
) -> None:
    x, labels = random_batch(5, classes=6, per_class=5, separation=2.0)
    given = (x[:12], labels[:12], x, labels)
    names = ["precision_at_1", "r_precision", "mean_average_precision_at_r"]
    mine = pml.AccuracyCalculator(include=names).get_accuracy(*given, ref_includes_query=True)
    try:
        other = theirs.AccuracyCalculator(
            include=names, k="max_bin_count", device=torch.device("cpu")
        )
        wanted = other.get_accuracy(*given, ref_includes_query=True)
    except ImportError as error:  # faiss
        pytest.skip(str(error))
    assert mine == pytest.approx(wanted)


@pytest.mark.parametrize("symmetric", [True, False])
def test_compares_two_views_as_the_library(symmetric: bool, theirs: Any) -> None:
    (x, _), (other, _) = balanced(0), balanced(1)
    for name in ("NTXentLoss", "TripletMarginLoss"):
        mine, wanted = (
            losses.SelfSupervisedLoss(getattr(losses, name)(), symmetric=symmetric)(x, other)
            for losses in (pml.losses, theirs.losses)
        )
        torch.testing.assert_close(mine, wanted, rtol=1e-6, atol=1e-8)
    mine, wanted = (losses.VICRegLoss()(x, ref_emb=other) for losses in (pml.losses, theirs.losses))
    torch.testing.assert_close(mine, wanted, rtol=1e-6, atol=1e-8)


def test_adds_up_as_the_library(theirs: Any) -> None:
    x, labels = balanced(0)
    mine, wanted = (
        losses.MultipleLosses([losses.CircleLoss(), losses.NCALoss()], weights=[1.0, 0.5])
        for losses in (pml.losses, theirs.losses)
    )
    torch.testing.assert_close(mine(x, labels), wanted(x, labels), rtol=1e-6, atol=1e-8)


def test_measures_what_the_library_measures(theirs: Any) -> None:
    x, labels = random_batch(3, classes=5, per_class=6, separation=1.0)
    names = ["precision_at_1", "r_precision", "mean_average_precision_at_r"]
    try:
        other = theirs.AccuracyCalculator(
            include=names, device=torch.device("cpu"), k="max_bin_count"
        )
        expected = other.get_accuracy(x.float(), labels)
    except ImportError:
        pytest.skip("needs faiss")
    found = pml.AccuracyCalculator(include=names).get_accuracy(x, labels)
    assert found == pytest.approx({name: expected[name] for name in names})
