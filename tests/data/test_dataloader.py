"""Loaders over a cache and over real files."""

import json
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler

from kinspace.data.cache import PictureCache, cache_in_memory, cache_on_disk
from kinspace.data.dataloader import Batch, CachedLoader, PictureLoader, sequential_batches
from kinspace.data.dataset import Dataset
from kinspace.data.transforms import (
    TransformSettings,
    center_crops,
    crop_batch,
    eval_transform,
    train_transform,
)
from kinspace.samplers import classes_by_samples
from photo_set import COUNT, SETTINGS, path_of

IN_ORDER = sequential_batches(COUNT, 10)


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_evaluation_batches_are_those_of_the_eval_transform(
    photos: Dataset, cache: PictureCache
) -> None:
    cached = list(CachedLoader(cache, IN_ORDER, SETTINGS, train=False))
    read = list(PictureLoader(photos, IN_ORDER, eval_transform(SETTINGS)))
    assert len(cached) == len(read) == 3
    assert all(same(one, other) for one, other in zip(cached, read, strict=True))
    assert torch.cat([batch.indices for batch in cached]).tolist() == list(range(COUNT))
    assert torch.equal(torch.cat([batch.labels for batch in cached]), photos.labels)


def test_the_disk_gives_the_batches_that_memory_gives(
    photos: Dataset, cache: PictureCache, tmp_path: Path
) -> None:
    mapped = cache_on_disk(photos, tmp_path / "moths", SETTINGS)
    for one, other in zip(
        CachedLoader(cache, IN_ORDER, SETTINGS, seed=3),
        CachedLoader(mapped, IN_ORDER, SETTINGS, seed=3),
        strict=True,
    ):
        assert same(one, other)


def test_channels_last_changes_the_layout_alone(cache: PictureCache) -> None:
    plain = next(iter(CachedLoader(cache, IN_ORDER, SETTINGS)))
    last = next(iter(CachedLoader(cache, IN_ORDER, SETTINGS, channels_last=True)))
    assert same(plain, last)
    assert last.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("rescale", [0.0, 0.3])
def test_crops_repeat_with_the_seed_and_change_with_the_epoch(
    cache: PictureCache, rescale: float
) -> None:
    settings = TransformSettings(size=28, resize=32, rescale=rescale)
    loader = CachedLoader(cache, IN_ORDER, settings, seed=1)
    first, second = list(loader), list(loader)
    again = CachedLoader(cache, IN_ORDER, settings, seed=1)
    assert all(
        same(one, other) for one, other in zip(first + second, [*again, *again], strict=True)
    )
    assert not torch.equal(first[0].images, second[0].images)
    other = next(iter(CachedLoader(cache, IN_ORDER, settings, seed=2)))
    assert not torch.equal(first[0].images, other.images)


def test_a_sample_that_comes_up_twice_has_two_crops(cache: PictureCache) -> None:
    images = next(iter(CachedLoader(cache, [[5] * 8], SETTINGS))).images
    assert len({image.double().sum().item() for image in images}) > 4


def make_loader(kind: str, photos: Dataset, sampler: Any) -> CachedLoader | PictureLoader:
    if kind == "cached":
        return CachedLoader(cache_in_memory(photos, SETTINGS), sampler, SETTINGS, seed=4)
    workers = int(kind.split()[1])
    return PictureLoader(photos, sampler, train_transform(SETTINGS), workers=workers, seed=4)


@pytest.mark.parametrize("kind", ["cached", "workers 0", "workers 2"])
def test_a_resumed_run_goes_on_with_the_same_crops(photos: Dataset, kind: str) -> None:
    def run() -> tuple[classes_by_samples, CachedLoader | PictureLoader]:
        sampler = classes_by_samples(photos.labels, classes=2, samples=2, seed=9)
        return sampler, make_loader(kind, photos, sampler)

    sampler, loader = run()
    state, rest = {}, []
    for step, batch in enumerate(loader):
        sampler.advance()
        if step == 1:
            state = json.loads(json.dumps([sampler.state_dict(), loader.state_dict()]))
        elif step > 1:
            rest.append(batch)
    rest += list(islice(loader, 2))
    sampler, loader = run()
    sampler.load_state_dict(state[0])
    loader.load_state_dict(state[1])
    resumed = list(loader)
    resumed += list(islice(loader, 2))
    assert len(rest) == len(resumed) > 4
    assert all(same(one, other) for one, other in zip(rest, resumed, strict=True))


def test_the_number_of_workers_does_not_change_a_batch(photos: Dataset) -> None:
    transform = train_transform(TransformSettings(size=28, resize=32, rescale=0.3))
    none, two = (
        list(PictureLoader(photos, IN_ORDER, transform, workers=workers, seed=5))
        for workers in (0, 2)
    )
    assert all(same(one, other) for one, other in zip(none, two, strict=True))


def test_loading_leaves_the_global_generator_alone(photos: Dataset, cache: PictureCache) -> None:
    before = torch.random.get_rng_state()
    list(PictureLoader(photos, IN_ORDER, train_transform(SETTINGS)))
    list(CachedLoader(cache, IN_ORDER, SETTINGS))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_bad_picture_stops_the_workers_with_its_name(photos: Dataset) -> None:
    path_of(photos, 12).write_bytes(b"")
    loader = PictureLoader(photos, IN_ORDER, eval_transform(SETTINGS))
    with pytest.raises(ValueError, match=r"photo 12\.png: empty file"):
        list(loader)


@pytest.mark.parametrize(
    ("count", "batch_size", "sizes"), [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (2, 5, [2]), (0, 5, [])]
)
def test_in_order_gives_every_sample_once(count: int, batch_size: int, sizes: list[int]) -> None:
    batches = sequential_batches(count, batch_size)
    assert [len(batch) for batch in batches] == sizes
    assert list(chain(*batches)) == list(range(count))
    shares = [sequential_batches(count, batch_size, rank=rank, world_size=3) for rank in range(3)]
    assert list(chain(*chain(*shares))) == list(range(count))
    amounts = [sum(map(len, share)) for share in shares]
    assert max(amounts) - min(amounts) <= 1


def test_the_samplers_of_torch_serve_too(cache: PictureCache) -> None:
    loader = CachedLoader(cache, BatchSampler(range(COUNT), 10, False), SETTINGS)
    assert [len(batch.labels) for batch in loader] == [10, 10, 4]
    assert len(loader) == 3


def test_settings_that_are_not_the_caches_are_refused(cache: PictureCache) -> None:
    with pytest.raises(ValueError, match="expected resize 32 and fit 'squash', those of the cache"):
        CachedLoader(cache, IN_ORDER, TransformSettings(size=28, resize=40))


def test_a_state_of_something_else_is_refused(cache: PictureCache) -> None:
    with pytest.raises(ValueError, match="expected the keys seed and batches, got epoch"):
        CachedLoader(cache, IN_ORDER, SETTINGS).load_state_dict({"epoch": 1})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("rescale", [0.0, 0.3])
@pytest.mark.parametrize("home", ["cpu", "cuda"])
@pytest.mark.parametrize("part", [False, True])
def test_the_gpu_makes_the_batches_that_the_cpu_makes(
    photos: Dataset, cache: PictureCache, part: bool, home: str, rescale: float
) -> None:
    settings = TransformSettings(size=28, resize=32, rescale=rescale)
    if part:
        cache = cache.part(photos.subset(list(range(COUNT))[::-2]), photos)
    batches = sequential_batches(len(cache), 10) * 5
    there = CachedLoader(cache.to(home), batches, settings, device="cuda", seed=1)
    here = CachedLoader(cache, batches, settings, seed=1)
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one.images.cpu(), other.images, rtol=0, atol=1e-4)
        assert one.indices.tolist() == other.indices.tolist()
        assert one.labels.tolist() == other.labels.tolist()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_do_not_pile_up_before_a_busy_gpu() -> None:
    pictures = torch.zeros(64, 3, 64, 64, dtype=torch.uint8)
    cache = PictureCache(pictures, torch.zeros(64, dtype=torch.int64), "squash")
    settings = TransformSettings(size=64, resize=64)
    size = 4 * pictures.numel()  # bytes of a batch of all of them as floats
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, kept = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(3):  # validations: each a loader of its own
        for _batch in CachedLoader(cache, [list(range(64))] * 40, settings, device="cuda"):
            torch.cuda._sleep(10_000_000)  # some milliseconds
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 12 * size
    assert torch.cuda.memory_reserved() - kept < 24 * size + 2**22


def test_a_batch_is_what_its_crops_say(cache: PictureCache) -> None:
    batch = next(iter(CachedLoader(cache, [[3, 1]], SETTINGS, train=False)))
    expected = crop_batch(cache.pictures, torch.tensor([3, 1]), center_crops(2, SETTINGS), SETTINGS)
    assert torch.equal(batch.images, expected)


def test_a_test_batch_has_the_crops_of_the_test(cache: PictureCache) -> None:
    settings = replace(SETTINGS, test_size=32, rescale=0.3)
    tested = next(iter(CachedLoader(cache, [[3, 1]], settings, train=False)))
    whole = replace(SETTINGS, size=32)
    expected = crop_batch(cache.pictures, torch.tensor([3, 1]), center_crops(2, whole), whole)
    assert torch.equal(tested.images, expected)
    assert next(iter(CachedLoader(cache, [[3, 1]], settings))).images.shape[-1] == SETTINGS.size
