"""Decoded caches of real files."""

import json
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import multiprocessing

from kinspace.data import cache as cache_module
from kinspace.data.cache import PictureCache, cache_in_memory, cache_on_disk
from kinspace.data.dataloader import Batch, CachedLoader
from kinspace.data.dataset import Dataset, from_names
from kinspace.data.pictures import ArrayPictures, UnreadablePictures, fingerprint
from kinspace.data.splits import zero_shot
from kinspace.data.transforms import TransformSettings
from kinspace.data.validation import drop_unreadable
from photo_set import COUNT, SETTINGS, path_of, squares_of


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


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


def test_threads_read_few_files_to_the_same_squares(
    photos: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "cpu_count", lambda: 3)
    monkeypatch.setattr(cache_module, "process_map", None)  # no process is started
    done: list[int] = []
    found = cache_in_memory(photos, SETTINGS, progress=lambda count, _: done.append(count))
    assert torch.equal(found.pictures, cache_in_memory(photos, SETTINGS, workers=1).pictures)
    assert done == list(range(1, len(photos) + 1))


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
