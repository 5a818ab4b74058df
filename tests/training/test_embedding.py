"""The embeddings of a part of the data, by every backend for a CPU."""

import pytest
import torch

from kinspace.data import cache_in_memory, digits_dataset
from kinspace.data.transforms import TransformSettings
from kinspace.models import Embedder, make_embedder
from kinspace.training.data_parts import DataPart
from kinspace.training.embedding import embed_all

SETTINGS = TransformSettings(size=28, resize=32)


@pytest.fixture(scope="module")
def part() -> DataPart:
    dataset = digits_dataset().subset(range(150))
    cache = cache_in_memory(dataset, SETTINGS)
    return DataPart(dataset, SETTINGS, torch.device("cpu"), cache)


@pytest.fixture
def model() -> Embedder:
    backbone = {"name": "small", "options": {"width": 4, "size": 28}}
    return make_embedder({"backbone": backbone, "head": {"dim": 8}}).train()


@pytest.mark.parametrize("backend", ["fused", "onnxruntime"])
@pytest.mark.parametrize(
    ("what", "views"), [("test", 1), ("training", 1), ("features", 1), ("test", 3)]
)
def test_every_backend_gives_the_same_embeddings(
    part: DataPart,
    model: Embedder,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    what: str,
    views: int,
) -> None:
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")
    found = {}
    for name in ("pytorch", backend):
        monkeypatch.setenv("KINSPACE_INFERENCE", name)
        found[name] = embed_all(model, part, what=what, views=views)
        assert model.training
    assert found[backend].shape == found["pytorch"].shape
    torch.testing.assert_close(found[backend], found["pytorch"], atol=1e-5, rtol=1e-4)


def test_embeddings_can_be_the_inputs_of_a_training(
    part: DataPart, model: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINSPACE_INFERENCE", "fused")
    features = embed_all(model, part, what="features")
    layer = torch.nn.Linear(features.shape[1], 2)
    layer(features).square().sum().backward()
    assert layer.weight.grad is not None


def test_progress_counts_every_picture(part: DataPart, model: Embedder) -> None:
    seen: list[tuple[int, int]] = []
    embed_all(model, part, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (150, 150)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
