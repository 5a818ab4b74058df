"""Transforms: what torchvision makes of one picture, and the batch on the device beside it."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from kinspace.data.transforms import (
    FITS,
    NORMALIZATIONS,
    Square,
    TransformSettings,
    augmented_views,
    center_crops,
    crop_batch,
    eval_transform,
    random_crops,
    train_transform,
)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def photo(width: int, height: int) -> Image.Image:
    return Image.fromarray(noise(height, width, 3))


def squares(count: int, side: int) -> Tensor:
    return torch.from_numpy(noise(count, 3, side, side))


def by_torchvision(square: Tensor, crop: list[int], settings: TransformSettings) -> Tensor:
    """One crop by torchvision's own functions, in the order of the module's docstring."""
    side, top, left, mirrored = crop
    image = tv.to_dtype(square, torch.float32, scale=True)
    if side != settings.resize:
        image = tv.resize(image, [side, side], antialias=False)
    image = tv.crop(image, top, left, settings.size, settings.size)
    if mirrored:
        image = tv.horizontal_flip(image)
    return tv.normalize(image, list(settings.mean), list(settings.std))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [1, 27, 32])
def test_a_batch_has_exactly_the_crops_that_torchvision_makes(
    size: int, layout: torch.memory_format
) -> None:
    settings = TransformSettings(size=size, resize=32)
    pictures, places = squares(5, 32), torch.tensor([4, 0, 3, 3, 1, 2, 0, 4])
    crops = random_crops(np.random.default_rng(1).random((4, len(places))), settings)
    assert crops[3].unique().tolist() == [0, 1]
    batch = crop_batch(pictures, places, crops, settings, layout=layout)
    expected = [
        by_torchvision(pictures[place], crop, settings)
        for place, crop in zip(places.tolist(), crops.T.tolist(), strict=True)
    ]
    assert torch.equal(batch, torch.stack(expected))
    assert batch.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_an_enlarged_batch_has_the_crops_that_torchvision_makes(
    layout: torch.memory_format,
) -> None:
    settings = TransformSettings(size=28, resize=32, rescale=0.3, mean=(0, 0, 0), std=(1, 1, 1))
    pictures, places = squares(3, 32), torch.tensor([2, 0, 1, 2, 1, 0])
    crops = random_crops(np.random.default_rng(0).random((4, len(places))), settings)
    crops[0, 0], crops[1:3, 0] = 41, 13  # the far corner of the largest
    batch = crop_batch(pictures, places, crops, settings, layout=layout)
    expected = [
        by_torchvision(pictures[place], crop, settings)
        for place, crop in zip(places.tolist(), crops.T.tolist(), strict=True)
    ]
    # both round positions to float32, in another order
    torch.testing.assert_close(batch, torch.stack(expected), rtol=0, atol=1e-5)
    assert batch.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [28, 27])
def test_center_crops_are_those_of_the_eval_transform(fit: str, size: int) -> None:
    settings = TransformSettings(size=size, resize=32, fit=fit)
    picture = photo(50, 37)
    square = tv.pil_to_tensor(Square(32, fit)(picture))[None]
    batch = crop_batch(square, torch.tensor([0]), center_crops(1, settings), settings)
    assert torch.equal(batch[0], eval_transform(settings)(picture))


@pytest.mark.parametrize("rescale", [0.0, 0.3])
def test_at_test_the_crop_may_be_larger_than_in_training(rescale: float) -> None:
    picture = photo(50, 37)
    settings = TransformSettings(size=20, resize=32, rescale=rescale, test_size=30)
    expected = eval_transform(TransformSettings(size=30, resize=32))(picture)
    assert torch.equal(eval_transform(settings)(picture), expected)
    assert train_transform(settings)(picture).shape == (3, 20, 20)


def test_a_test_crop_larger_than_the_square_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"test_size: expected at most 32, .* got 33"):
        TransformSettings(size=20, resize=32, test_size=33)


@pytest.mark.parametrize("rescale", [0.0, 0.3])
def test_the_train_transform_takes_a_crop_that_the_batch_can_take_too(rescale: float) -> None:
    settings = TransformSettings(size=7, resize=8, rescale=rescale, mirror=True)
    picture = photo(20, 10)
    square = tv.pil_to_tensor(Square(8)(picture))
    crops = [
        [side, top, left, mirrored]
        for side in range(8, settings.largest_side + 1)
        for top in range(side - 6)
        for left in range(side - 6)
        for mirrored in (0, 1)
    ]
    every = torch.tensor(crops).T
    places = torch.zeros(len(crops), dtype=torch.int64)
    choices = crop_batch(square[None], places, every, settings)
    transform = train_transform(settings)
    found = set()
    for _ in range(300):
        distances = (choices - transform(picture)).abs().amax((1, 2, 3))
        assert distances.min() < 1e-4
        found.add(int(distances.argmin()))
    assert len(found) == len(crops) if rescale == 0 else len(found) > len(crops) / 2


@given(
    size=st.integers(1, 40),
    more=st.integers(0, 20),
    rescale=st.floats(0, 2),
    mirror=st.booleans(),
    seed=st.integers(0, 100),
)
def test_random_crops_lie_within_the_square(
    size: int, more: int, rescale: float, mirror: bool, seed: int
) -> None:
    settings = TransformSettings(size=size, resize=size + more, rescale=rescale, mirror=mirror)
    side, top, left, mirrored = random_crops(np.random.default_rng(seed).random((4, 50)), settings)
    assert (side >= settings.resize).all()
    assert (side <= settings.resize * (1 + rescale) + 1e-6).all()
    assert (torch.minimum(top, left) >= 0).all()
    assert (torch.maximum(top, left) + size <= side).all()
    assert set(mirrored.tolist()) <= ({0, 1} if mirror else {0})


def test_random_crops_reach_every_place_and_mirror_half() -> None:
    settings = TransformSettings(size=224, resize=228, rescale=0.01)
    side, top, left, mirrored = random_crops(np.random.default_rng(0).random((4, 4_000)), settings)
    assert side.unique().tolist() == [228, 229, 230]
    assert top.unique().tolist() == left.unique().tolist() == list(range(7))
    assert 0.45 < mirrored.double().mean() < 0.55


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("shape", [(50, 30), (30, 50), (32, 32), (1, 3000), (3000, 1), (1, 1)])
def test_every_picture_becomes_a_square(fit: str, shape: tuple[int, int]) -> None:
    assert Square(32, fit)(photo(*shape)).size == (32, 32)


@pytest.mark.parametrize("shape", [(7, 40), (41, 12), (33, 33), (32, 32), (100, 75)])
def test_squares_are_those_of_torchvision(shape: tuple[int, int]) -> None:
    picture = photo(*shape)
    squash, short, long = (tv.pil_to_tensor(Square(32, fit)(picture)) for fit in FITS)
    assert torch.equal(squash, tv.pil_to_tensor(tv.resize(picture, [32, 32])))
    cut = tv.center_crop(picture, [min(shape), min(shape)])
    assert torch.equal(short, tv.pil_to_tensor(tv.resize(cut, [32, 32])))
    width, height = (max(1, round(edge * 32 / max(picture.size))) for edge in picture.size)
    left, top = (32 - width) // 2, (32 - height) // 2
    around = [left, top, 32 - width - left, 32 - height - top]
    padded = tv.pad(tv.resize(picture, [height, width]), around, fill=[124, 116, 104])
    assert torch.equal(long, tv.pil_to_tensor(padded))


def test_squash_shows_all_short_cuts_the_ends_and_long_puts_gray_beside_it() -> None:
    stripes = np.zeros((30, 90, 3), np.uint8)
    stripes[:, :30, 0] = stripes[:, 30:60, 1] = stripes[:, 60:, 2] = 255
    picture = Image.fromarray(stripes)
    middle = (15, 15)
    squash, short, long = (Square(30, fit)(picture) for fit in FITS)
    assert [squash.getpixel((x, 15)) for x in (3, 15, 26)] == [
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
    ]
    assert short.getcolors() == [(900, (0, 255, 0))]
    assert long.getpixel(middle) == (0, 255, 0)
    assert long.getpixel((15, 2)) == long.getpixel((15, 27)) == (124, 116, 104)


def test_the_views_do_not_depend_on_the_other_pictures_and_repeat_with_the_seed() -> None:
    settings = TransformSettings(size=28, resize=32, rescale=0.3)
    pictures = squares(6, 32)
    views = torch.stack(list(augmented_views(pictures, 16, settings)))
    assert views.shape == (16, 6, 3, 28, 28)
    alone = torch.stack(list(augmented_views(pictures[4:5], 16, settings)))
    assert torch.equal(views[:, 4:5], alone)
    other = torch.stack(list(augmented_views(pictures, 16, settings, seed=1)))
    assert not torch.equal(views, other)
    assert len({view.double().sum().item() for view in alone}) == 16


def test_views_are_what_the_training_crops_would_be() -> None:
    settings = TransformSettings(size=28, resize=32)
    pictures = squares(1, 32)
    crops = random_crops(np.random.default_rng(7).random((4, 4)), settings)
    views = torch.cat(list(augmented_views(pictures, 4, settings, seed=7)))
    expected = [by_torchvision(pictures[0], crop, settings) for crop in crops.T.tolist()]
    assert torch.equal(views, torch.stack(expected))


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_a_picture_of_the_mean_color_becomes_zero(name: str) -> None:
    mean, std = NORMALIZATIONS[name]
    settings = TransformSettings(size=4, resize=8, mean=mean, std=std)
    color = tuple(round(255 * value) for value in mean)
    assert eval_transform(settings)(Image.new("RGB", (9, 9), color)).abs().max() < 0.01


def test_settings_come_back_from_json() -> None:
    mean, std = NORMALIZATIONS["caffe_googlenet"]
    settings = TransformSettings(227, 256, "long", False, 0.3, mean, std)
    again = TransformSettings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again == settings
    assert hash(again) == hash(settings)


def test_settings_name_what_they_do_not_know() -> None:
    with pytest.raises(ValueError, match="unknown 'crop'; choose from: size, resize, fit, mirror"):
        TransformSettings.from_dict({"crop": 224})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 257}, "size: expected at most 256"),
        ({"size": 0}, "size: expected at least 1"),
        ({"resize": 256.0}, "resize: expected a whole number"),
        ({"fit": "stretch"}, "fit: expected one of 'squash', 'short', 'long'"),
        ({"rescale": -0.1}, "rescale: expected at least 0"),
        ({"mean": (0.5,)}, "mean: expected 3 numbers"),
        ({"std": (0.2, 0.0, 0.2)}, "std: expected a number above 0"),
    ],
)
def test_settings_say_what_is_wrong(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformSettings.from_dict(values)


def test_no_views_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="views: expected at least 1, got 0"):
        next(augmented_views(squares(1, 32), 0, TransformSettings(size=28, resize=32)))
