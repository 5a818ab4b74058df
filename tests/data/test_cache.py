"""Decoded caches on real files, and the loaders over them."""

import json
import os
import pickle
from dataclasses import replace
from itertools import chain, islice
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, multiprocessing
from torch.utils.data import BatchSampler
from torchvision.transforms.v2 import functional as tv

from kinspace.data import cache as cache_module
from kinspace.data.archives import ArchivePictures
from kinspace.data.cache import PictureCache, cache_in_memory, cache_on_disk
from kinspace.data.crops import center_crops, crop_batch
from kinspace.data.dataloader import Batch, CachedLoader, PictureLoader, sequential_batches
from kinspace.data.dataset import Dataset, from_names
from kinspace.data.pictures import ArrayPictures, FilePictures, PictureSubset, fingerprint
from kinspace.data.splits import zero_shot
from kinspace.data.standard.picture_files import JoinedArchives
from kinspace.data.transforms import Square, TransformSettings, eval_transform, train_transform
from kinspace.data.unreadable import UnreadablePictures
from kinspace.data.validation import drop_unreadable
from kinspace.samplers import classes_by_samples

COUNT = 24
SETTINGS = TransformSettings(size=28, resize=32)
IN_ORDER = sequential_batches(COUNT, 10)


@pytest.fixture
def photos(tmp_path: Path) -> Dataset:
    """Pictures of several sizes in files, three classes."""
    random = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = [folder / f"photo {number:02}.png" for number in range(COUNT)]
    for number, path in enumerate(paths):
        shape = (20 + number, 60 - number, 3)
        Image.fromarray(random.integers(256, size=shape, dtype=np.uint8)).save(path)
    names = [("io", "luna", "polyphemus")[number % 3] for number in range(COUNT)]
    return from_names(FilePictures(paths, root=folder), names)


def path_of(photos: Dataset, index: int) -> Path:
    assert isinstance(photos.pictures, FilePictures)
    return photos.pictures.path(index)


@pytest.fixture
def cache(photos: Dataset) -> PictureCache:
    return cache_in_memory(photos, SETTINGS)


def squares_of(photos: Dataset, fit: str = "squash") -> Tensor:
    square = Square(32, fit)
    return torch.stack([tv.pil_to_tensor(square(photos.pictures.read(i))) for i in range(COUNT)])


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# the cache


@pytest.mark.parametrize("fit", ["squash", "short", "long"])
def test_the_cache_holds_the_square_of_each_picture(photos: Dataset, fit: str) -> None:
    cache = cache_in_memory(photos, TransformSettings(size=28, resize=32, fit=fit))
    assert torch.equal(cache.pictures, squares_of(photos, fit))
    assert torch.equal(cache.labels, photos.labels)
    assert (len(cache), cache.resize, cache.fit) == (COUNT, 32, fit)


def test_a_cache_on_disk_is_made_once_and_then_mapped(photos: Dataset, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def tell(*done: int) -> None:
        seen.append((done[0], done[1]))

    folder = tmp_path / "caches" / "moths"
    made = cache_on_disk(photos, folder, SETTINGS, progress=tell)
    opened = cache_on_disk(photos, folder, SETTINGS, progress=tell)
    assert seen == [(number + 1, COUNT) for number in range(COUNT)]
    assert torch.equal(made.pictures, squares_of(photos))
    assert torch.equal(opened.pictures, made.pictures)
    assert sorted(path.name for path in folder.iterdir()) == ["header.json", "pictures.npy"]
    assert [path.name for path in folder.parent.iterdir()] == ["moths"]


def test_writing_to_a_mapped_cache_leaves_the_file_alone(photos: Dataset, tmp_path: Path) -> None:
    first = cache_on_disk(photos, tmp_path / "moths", SETTINGS)
    first.pictures.zero_()
    assert torch.equal(
        cache_on_disk(photos, tmp_path / "moths", SETTINGS).pictures, squares_of(photos)
    )


def test_labels_are_the_data_sets_and_not_the_files(photos: Dataset, tmp_path: Path) -> None:
    cache_on_disk(photos, tmp_path / "moths", SETTINGS)
    renamed = from_names(photos.pictures, ["moth"] * COUNT)
    assert cache_on_disk(renamed, tmp_path / "moths", SETTINGS).labels.tolist() == [0] * COUNT


def changed(photos: Dataset) -> Dataset:
    path = path_of(photos, 3)
    Image.new("RGB", (5, 5)).save(path)
    os.utime(path, ns=(1, 1))
    return photos


@pytest.mark.parametrize(
    ("make_other", "settings", "message"),
    [
        (changed, SETTINGS, "fingerprint"),
        (lambda photos: photos.subset(list(range(5))), SETTINGS, r"pictures 24 \(expected 5\)"),
        (lambda photos: photos.subset(list(range(COUNT))[::-1]), SETTINGS, "fingerprint"),
        (lambda photos: photos, TransformSettings(size=28, resize=30), r"resize 32 \(expected 30"),
        (lambda photos: photos, TransformSettings(size=28, resize=32, fit="long"), "fit squash"),
    ],
)
def test_a_cache_of_other_pictures_or_settings_is_refused(
    photos: Dataset, tmp_path: Path, make_other: Any, settings: TransformSettings, message: str
) -> None:
    folder = tmp_path / "moths"
    cache_on_disk(photos, folder, SETTINGS)
    before = (folder / "pictures.npy").read_bytes()
    other = make_other(photos)
    with pytest.raises(ValueError, match=message) as caught:
        cache_on_disk(other, folder, settings)
    assert f"remove {folder}" in str(caught.value)
    assert (folder / "pictures.npy").read_bytes() == before


@pytest.mark.parametrize("damage", ["no header", "no pictures", "not json", "a number", "short"])
def test_a_damaged_cache_is_refused(photos: Dataset, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "moths"
    cache_on_disk(photos, folder, SETTINGS)
    if damage == "no header":
        (folder / "header.json").unlink()
    elif damage == "no pictures":
        (folder / "pictures.npy").unlink()
    elif damage == "not json":
        (folder / "header.json").write_text("hello")
    elif damage == "a number":
        (folder / "header.json").write_text("5")
    else:
        os.truncate(folder / "pictures.npy", 1000)
    with pytest.raises(ValueError, match=r"moths: .*; remove "):
        cache_on_disk(photos, folder, SETTINGS)


@pytest.mark.parametrize("workers", [1, 2])
def test_all_bad_pictures_are_listed_and_no_cache_is_left(
    photos: Dataset, tmp_path: Path, workers: int
) -> None:
    path_of(photos, 2).write_bytes(b"")
    path_of(photos, 7).write_text("hello")
    path_of(photos, 20).unlink()
    with pytest.raises(UnreadablePictures, match="3 of 24 pictures cannot be read") as caught:
        cache_on_disk(photos, tmp_path / "caches" / "moths", SETTINGS, workers=workers)
    assert list(caught.value.bad) == [2, 7, 20]
    for line in ("photo 02.png: empty file", "photo 07.png: not a picture", "photo 20.png: No"):
        assert line in str(caught.value)
    assert list((tmp_path / "caches").iterdir()) == []
    assert pickle.loads(pickle.dumps(caught.value)).bad.keys() == caught.value.bad.keys()
    with pytest.raises(UnreadablePictures):
        cache_in_memory(photos, SETTINGS)


def test_the_error_counts_what_it_does_not_list(photos: Dataset) -> None:
    for index in range(22):
        path_of(photos, index).write_bytes(b"")
    with pytest.raises(
        UnreadablePictures, match=r"photo 19\.png: empty file\n  and 2 more"
    ) as caught:
        cache_in_memory(photos, SETTINGS)
    assert len(caught.value.bad) == 22


def test_several_processes_fill_the_same_memory_and_the_same_file(
    photos: Dataset, tmp_path: Path
) -> None:
    seen: list[int] = []
    in_memory = cache_in_memory(
        photos, SETTINGS, workers=2, progress=lambda done, _: seen.append(done)
    )
    on_disk = cache_on_disk(photos, tmp_path / "moths", SETTINGS, workers=2)
    assert torch.equal(in_memory.pictures, squares_of(photos))
    assert torch.equal(on_disk.pictures, in_memory.pictures)
    assert seen == sorted(seen)
    assert seen[-1] == COUNT


def test_a_data_set_goes_on_without_the_pictures_its_cache_could_not_read(photos: Dataset) -> None:
    path_of(photos, 2).write_bytes(b"")
    path_of(photos, 7).write_text("hello")
    with pytest.raises(UnreadablePictures, match=r"go on without them: --skip-bad$") as caught:
        cache_in_memory(photos, SETTINGS)
    good = drop_unreadable(photos, caught.value)
    kept = [index for index in range(COUNT) if index not in (2, 7)]
    assert good.indices_in(photos).tolist() == kept
    assert torch.equal(cache_in_memory(good, SETTINGS).labels, photos.labels[kept])
    with pytest.raises(ValueError, match="for these 22 pictures of 'pictures', got one for 24"):
        drop_unreadable(good, caught.value)


# parts of a cache


def nested(photos: Dataset) -> Dataset:
    """A part of a part, without the first class: its labels are others than in the whole."""
    return zero_shot(photos.subset(list(range(COUNT))[::-1])).test.subset([4, 0, 3])


def test_a_part_has_the_squares_and_labels_that_its_own_cache_would_have(
    photos: Dataset, cache: PictureCache
) -> None:
    part = nested(photos)
    assert part.class_names == ("polyphemus",)
    of_whole, own = cache.part(part, photos), cache_in_memory(part, SETTINGS)
    assert len(of_whole) == len(part) == 3
    assert of_whole.pictures is cache.pictures
    assert torch.equal(of_whole.squares(range(3)), own.pictures)
    assert torch.equal(of_whole.squares([2, 2]), own.pictures[[2, 2]])
    for train in (True, False):
        batches = (
            CachedLoader(one, [[2, 0], [1]], SETTINGS, train=train) for one in (of_whole, own)
        )
        assert all(same(one, other) for one, other in zip(*batches, strict=True))


def test_parts_of_a_part_are_parts_of_the_whole(photos: Dataset, cache: PictureCache) -> None:
    half = photos.subset(list(range(1, COUNT, 2)))
    two = half.subset([5, 3])
    expected = squares_of(photos)[[11, 7]]
    assert torch.equal(cache.part(half, photos).part(two, half).squares([0, 1]), expected)
    assert torch.equal(cache.part(two, photos).squares([0, 1]), expected)


@pytest.mark.parametrize("home", ["memory", "disk"])
def test_a_part_crosses_to_other_processes(photos: Dataset, tmp_path: Path, home: str) -> None:
    if home == "memory":
        cache = cache_in_memory(photos, SETTINGS)
    else:
        cache = cache_on_disk(photos, tmp_path / "moths", SETTINGS)
    part = cache.part(nested(photos), photos)
    sent = bytes(ForkingPickler.dumps(part))
    assert len(sent) < cache.pictures.numel() / 10
    received = pickle.loads(sent)
    assert torch.equal(received.labels, part.labels)
    assert torch.equal(received.squares(range(3)), part.squares(range(3)))


def test_a_part_of_another_data_set_is_refused(photos: Dataset, cache: PictureCache) -> None:
    other = from_names(ArrayPictures(np.zeros((COUNT, 8, 8), np.uint8)), ["io"] * COUNT)
    with pytest.raises(ValueError, match="that these 2 pictures of 'pictures' were taken from"):
        cache.part(photos.subset([1, 2]), other)
    with pytest.raises(ValueError, match="expected the data set of this cache, 24 pictures, got 2"):
        cache.part(photos.subset([1]), photos.subset([1, 2]))


def blacken(cache: PictureCache) -> None:
    cache.pictures[5] = 0


def test_another_process_shares_the_memory(cache: PictureCache) -> None:
    assert cache.pictures.is_shared()
    assert cache.pictures[5].any()
    process = multiprocessing.get_context("forkserver").Process(target=blacken, args=(cache,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert not cache.pictures[5].any()


def test_a_mapped_cache_is_mapped_again_and_not_sent(photos: Dataset, tmp_path: Path) -> None:
    cache = cache_on_disk(photos, tmp_path / "moths", SETTINGS)
    sent = bytes(ForkingPickler.dumps(cache))
    assert len(sent) < cache.pictures.numel() / 10
    assert torch.equal(pickle.loads(sent).pictures, cache.pictures)


def test_too_little_shared_memory_is_an_error_before_any_work(
    photos: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def little(_: Path) -> Any:
        return type("Usage", (), {"free": 1_000_000})

    monkeypatch.setattr(cache_module.shutil, "disk_usage", little)
    with pytest.raises(ValueError, match=r"expected 4.72 GB of shared memory, got 0.00 GB free"):
        cache_in_memory(photos, TransformSettings(resize=8096))


def test_a_failing_progress_leaves_nothing_behind(photos: Dataset, tmp_path: Path) -> None:
    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache_on_disk(photos, tmp_path / "caches" / "moths", SETTINGS, progress=stop)
    assert list((tmp_path / "caches").iterdir()) == []


def test_the_header_says_what_the_cache_is_of(photos: Dataset, tmp_path: Path) -> None:
    cache_on_disk(photos, tmp_path / "moths", SETTINGS)
    header = json.loads((tmp_path / "moths" / "header.json").read_text())
    assert header == {
        "kinspace cache": 1,
        "pictures": COUNT,
        "resize": 32,
        "fit": "squash",
        "fingerprint": fingerprint(photos.pictures),
    }


def test_fingerprints_follow_the_content_of_arrays_archives_and_parts(
    photos: Dataset, tmp_path: Path
) -> None:
    array = np.zeros((3, 8, 8), np.uint8)
    before = fingerprint(ArrayPictures(array))
    assert fingerprint(ArrayPictures(array.copy())) == before
    array[2, 0, 0] = 1
    assert fingerprint(ArrayPictures(array)) != before
    assert fingerprint(PictureSubset(ArrayPictures(array), [0, 1, 2])) == fingerprint(
        ArrayPictures(array)
    )
    archive = tmp_path / "set.zip"
    archive.write_bytes(b"one")
    one = fingerprint(ArchivePictures(archive, ["a.jpg"]))
    assert fingerprint(ArchivePictures(archive, ["b.jpg"])) != one
    joined = JoinedArchives([ArchivePictures(archive, ["a.jpg"])], [(0, 0)])
    assert fingerprint(joined) == one
    archive.write_bytes(b"other")
    assert fingerprint(ArchivePictures(archive, ["a.jpg"])) != one
    assert fingerprint(joined) == one  # the archive was asked when it was opened, and not again
    whole = fingerprint(photos.pictures)
    os.utime(path_of(photos, 3), ns=(1, 1))
    assert fingerprint(photos.pictures) != whole


# the loaders


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
