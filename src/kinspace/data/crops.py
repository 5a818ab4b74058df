"""Crop, mirror, enlarge and normalize whole batches of squares on their device.

These are the transforms of `kinspace.data.transforms` for decoded pictures. A crop
is four numbers, one row of a (4, batch) table each: the side the square is enlarged to, top and
left of the crop in it, and 1 where it is mirrored. They are drawn on
the CPU, so that a seed gives the same crops on every device.

For the same four numbers the result is that of torchvision's resize, crop and horizontal_flip: to
the bit where nothing is enlarged, else to the rounding of float32 (tests/data/test_transforms.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.data.transforms import TransformSettings

__all__ = [
    "augmented_views",
    "center_crops",
    "crop_batch",
    "random_crops",
    "to_device",
    "view_crops",
]


def random_crops(draws: NDArray[np.float64], settings: TransformSettings) -> Tensor:
    """Crops as of `train_transform`: side, top, left and mirrored, each uniform.

    draws: numbers in 0 .. 1, 1 not among them, four for each crop, (4, count).

    >>> random_crops(np.random.default_rng(0).random((4, 3)), TransformSettings(rescale=0.3))
    tensor([[305, 276, 259],
            [  1,  43,  32],
            [ 49,  38,  19],
            [  1,   1,   0]])
    """
    sides = settings.resize + _whole(draws[0], settings.largest_side - settings.resize + 1)
    room = sides - settings.size + 1
    tops, lefts = _whole(draws[1], room), _whole(draws[2], room)
    mirrored = _whole(draws[3], 2) if settings.mirror else np.zeros_like(sides)
    return torch.from_numpy(np.stack([sides, tops, lefts, mirrored]))  # (4, count)


def _whole(draws: NDArray[np.float64], below: int | NDArray[np.int64]) -> NDArray[np.int64]:
    return (draws * below).astype(np.int64)


def center_crops(count: int, settings: TransformSettings) -> Tensor:
    """The middle of each square; `eval_transform` takes it by `settings.at_test()`.

    >>> center_crops(1, TransformSettings()).flatten()
    tensor([256,  16,  16,   0])
    """
    edge = round((settings.resize - settings.size) / 2)
    crop = torch.tensor([settings.resize, edge, edge, 0])
    return crop[:, None].expand(4, count)


def crop_batch(
    squares: Tensor,
    places: Tensor,
    crops: Tensor,
    settings: TransformSettings,
    *,
    layout: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """The crops of the squares at `places`: normalized float32 (batch, 3, size, size).

    squares: uint8 (pictures, 3, resize, resize). All tensors are on one device.

    >>> settings = TransformSettings(size=2, resize=4, mean=(0, 0, 0), std=(1, 1, 1))
    >>> squares = 51 * torch.arange(4, dtype=torch.uint8).expand(1, 3, 4, 4)
    >>> mirrored = torch.tensor([[4], [0], [1], [1]])
    >>> crop_batch(squares, torch.tensor([0]), mirrored, settings)[0, 0]
    tensor([[0.4000, 0.2000],
            [0.4000, 0.2000]])
    """
    if settings.largest_side > settings.resize:
        images = _enlarged(squares[places], crops, settings.size)
    else:
        images = _unit(_cut(squares, places, crops, settings.size))
    mean, std = to_device(torch.tensor([settings.mean, settings.std]), images.device)  # (3,) each
    images = images.sub_(mean[:, None, None]).div_(std[:, None, None])
    return images.contiguous(
        memory_format=layout
    )  # last, because the steps before are faster in this layout on a CPU


def _unit(squares: Tensor) -> Tensor:
    return squares.to(torch.float32).mul_(1 / 255)  # torchvision multiplies too: the same bits


def _cut(squares: Tensor, places: Tensor, crops: Tensor, size: int) -> Tensor:
    """Crops of squares that are not enlarged, still 8 bit."""
    _, tops, lefts, mirrored = crops
    batch, (_, colors, resize, _) = len(places), squares.shape
    planes = places[:, None] * colors + torch.arange(colors, device=places.device)
    rows = planes[:, :, None] * resize + tops[:, None, None] + _steps(size, squares)
    first = (rows * resize + lefts[:, None, None]).flatten()  # (batch * 3 * size,)
    # Every run of `size` pixels there is, as a view: picking some is a copy of whole runs of bytes,
    # 20 times as fast on a CPU as picking single pixels.
    runs = squares.contiguous().view(-1).unfold(0, size, 1)  # (pixels - size + 1, size)
    images = runs.index_select(0, first).view(batch, colors, size, size)
    both = torch.cat([images, images.flip(-1)])
    return both.index_select(0, mirrored * batch + torch.arange(batch, device=places.device))


def _enlarged(squares: Tensor, crops: Tensor, size: int) -> Tensor:
    """Crops of enlarged squares in 0 .. 1; bilinear, only the pixels of the crop are computed."""
    sides, tops, lefts, mirrored = crops
    steps = _steps(size, squares)
    rows = tops[:, None] + steps  # (batch, size)
    columns = lefts[:, None] + torch.where(mirrored.bool()[:, None], size - 1 - steps, steps)
    # grid_sample counts from -1 at one border to 1 at the other, whatever the side
    across, down = (2 * (where + 0.5) / sides[:, None] - 1 for where in (columns, rows))
    grid = torch.stack(torch.broadcast_tensors(across[:, None, :], down[:, :, None]), dim=-1)
    return nn.functional.grid_sample(
        _unit(squares), grid, padding_mode="border", align_corners=False
    )


def _steps(size: int, like: Tensor) -> Tensor:
    return torch.arange(size, device=like.device)


def to_device(table: Tensor, device: torch.device) -> Tensor:
    """A small table on the device, copied without waiting for the device's work.

    >>> to_device(torch.tensor([1, 2]), torch.device("cpu"))
    tensor([1, 2])
    """
    if device.type == "cuda":
        table = table.pin_memory()  # from other memory a copy waits for all earlier work
    return table.to(device, non_blocking=True)


def view_crops(views: int, settings: TransformSettings, *, seed: int = 0) -> Tensor:
    """The crops of `augmented_views`, as `random_crops` has them.

    >>> view_crops(16, TransformSettings()).shape
    torch.Size([4, 16])
    """
    checks.integer("views", views, at_least=1)
    return random_crops(np.random.default_rng(seed).random((4, views)), settings)


def augmented_views(
    squares: Tensor, views: int, settings: TransformSettings, *, seed: int = 0
) -> Iterator[Tensor]:
    """Random training views of whole pictures, for the mean embedding over them at test.

    squares: uint8 (pictures, 3, resize, resize), as a cache has them. Each view is normalized
    float32 (pictures, 3, size, size). The crops are drawn once and are the same for all pictures:
    an embedding does not depend on what else is in the batch.

    >>> squares = torch.zeros(5, 3, 256, 256, dtype=torch.uint8)
    >>> magnet = TransformSettings(rescale=0.3)
    >>> embed = lambda images: images.mean((2, 3))
    >>> torch.stack([embed(view) for view in augmented_views(squares, 16, magnet)]).mean(0).shape
    torch.Size([5, 3])
    """
    everyone = torch.arange(len(squares), device=squares.device)
    crops = to_device(view_crops(views, settings, seed=seed), squares.device)
    for crop in crops.T:
        shared = crop[:, None].expand(4, len(squares))
        yield crop_batch(squares, everyone, shared, settings)
