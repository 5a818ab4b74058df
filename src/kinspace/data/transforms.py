"""From a picture to the network's input, as in the papers.

A picture is first made a square of `resize` pixels, in one of three ways (`fit`), none random:

- squash: both sides to `resize`, without keeping the proportions. ALMN: "processed into 256x256".
- short: the square in the middle, as large as fits, to `resize`. The usual ImageNet test.
- long: the longer side to `resize`, gray beside the rest. NRA: 256 pixels at the larger dimension,
  which can leave less than a crop on the other side; hence the gray.

In training it is enlarged by a random factor of up to 1 + `rescale`, cropped to `size` at a random
place, and mirrored with probability 1/2. At test the crop is the middle of the square, of
`test_size` pixels: with `test_size = resize` the whole square. Random crops and enlargement show
objects larger in training than at test; a larger test picture corrects that (Touvron et al.,
Fixing the train-test resolution discrepancy, 2019).
Pixels in 0 .. 1 are then normalized by mean and standard deviation of each color.

Magnet says "random input rescaling of up to 30 %, followed by jittering back to the original input
size": `TransformSettings(size=224, resize=224, rescale=0.3)`. We enlarge only, since a smaller
picture has no crop of the original size. `augmented_views` gives the random views over which it
averages the embedding at test.

The random crops of short and long stay in the square, so that a decoded cache of the squares
(`kinspace.data.cache`) gives the same pictures as the files do.

`crop_batch` and its neighbors do the same to whole batches of decoded squares on their device:
crop, mirror, enlarge, normalize. A crop is four numbers, one row of a (4, batch) table each: the
side the square is enlarged to, top and left of the crop in it, and 1 where it is mirrored. They are
drawn on the CPU, so that a seed gives the same crops on every device. For the same four numbers the
result is that of torchvision's resize, crop and horizontal_flip: to the bit where nothing is
enlarged, else to the rounding of float32 (tests/data/test_transforms.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.picture import Square

if TYPE_CHECKING:
    from torchvision.transforms import v2

__all__ = [
    "FITS",
    "NORMALIZATIONS",
    "Normalization",
    "Square",
    "TransformSettings",
    "augmented_views",
    "center_crops",
    "crop_batch",
    "eval_transform",
    "random_crops",
    "square_transform",
    "to_device",
    "train_transform",
    "view_crops",
]

FITS = ("squash", "short", "long")


class Normalization(NamedTuple):
    """Mean and standard deviation of red, green and blue in 0 .. 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


NORMALIZATIONS: dict[str, Normalization] = {
    "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    # the BGR order and the range 0 .. 255 of Caffe are folded into our first convolution
    "caffe_googlenet": Normalization((0.48235, 0.45882, 0.40784), (0.229, 0.224, 0.225)),
}


@dataclass(frozen=True)
class TransformSettings:
    """How a picture becomes an input: saved with a run, and restored from it.

    >>> almn = TransformSettings(size=227, mean=NORMALIZATIONS["caffe_googlenet"].mean)
    >>> TransformSettings.from_dict(almn.to_dict()) == almn
    True
    >>> TransformSettings(size=299)
    Traceback (most recent call last):
    ValueError: size: expected at most 256, the side of the square (resize), got 299
    """

    size: int = 224
    resize: int = 256
    fit: str = "squash"
    mirror: bool = True
    rescale: float = 0.0
    mean: tuple[float, ...] = NORMALIZATIONS["imagenet"].mean
    std: tuple[float, ...] = NORMALIZATIONS["imagenet"].std
    test_size: int | None = None  # None: size

    def __post_init__(self) -> None:
        checks.integer("resize", self.resize, at_least=1)
        for name in ("size", "test_size"):
            side = getattr(self, name)
            if side is not None and checks.integer(name, side, at_least=1) > self.resize:
                raise ValueError(
                    f"{name}: expected at most {self.resize}, the side of the square (resize), "
                    f"got {side}"
                )
        checks.choice("fit", self.fit, FITS)
        checks.number("rescale", self.rescale, at_least=0)
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) != 3:
                raise ValueError(f"{name}: expected 3 numbers, red, green and blue, got {values!r}")
            for value in values:
                (checks.positive if name == "std" else checks.number)(name, value)
            object.__setattr__(self, name, tuple(values))  # JSON and TOML have lists

    @property
    def largest_side(self) -> int:
        """The side of the square after the largest random enlargement."""
        return int(self.resize * (1 + self.rescale) + 1e-9)

    def at_test(self) -> TransformSettings:
        """The settings at test, without random steps: `size` is that of the test's crop.

        >>> TransformSettings(size=224, rescale=0.3, test_size=256).at_test().size
        256
        """
        side = self.test_size or self.size
        return replace(self, size=side, test_size=None, mirror=False, rescale=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON and `from_dict`."""
        return {**asdict(self), "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformSettings:
        """Settings from `to_dict`; missing keys have their defaults, unknown ones are errors."""
        known = [field.name for field in fields(cls)]
        if unknown := [key for key in values if key not in known]:
            raise ValueError(
                f"transform settings: unknown {', '.join(map(repr, unknown))}; "
                f"choose from: {', '.join(known)}"
            )
        return cls(**values)


def train_transform(settings: TransformSettings | None = None) -> v2.Compose:
    """Square, random rescale, random crop, random mirror, normalize: a (3, size, size) tensor.

    Random numbers are from torch's global generator, as in torchvision; `PictureLoader` of
    `kinspace.data.dataloader` seeds it for each picture.

    >>> from PIL import Image
    >>> train_transform(TransformSettings(size=227))(Image.new("RGB", (640, 480))).shape
    torch.Size([3, 227, 227])
    """
    from torchvision.transforms import v2

    settings = settings or TransformSettings()
    steps: list[Any] = [Square(settings.resize, settings.fit), v2.ToImage()]
    to_float = v2.ToDtype(torch.float32, scale=True)
    if settings.largest_side > settings.resize:
        # enlarged as floats: rounded to 8 bits it would differ from the batches of a cache
        steps += [
            to_float,
            v2.RandomResize(settings.resize, settings.largest_side + 1, antialias=False),
        ]
    steps.append(v2.RandomCrop(settings.size))
    if settings.mirror:
        steps.append(v2.RandomHorizontalFlip())
    return v2.Compose([*steps, to_float, *_normalized(settings)])


def eval_transform(settings: TransformSettings | None = None) -> v2.Compose:
    """Square, center crop, normalize: a (3, side, side) tensor, not random.

    The side is `test_size`, or else `size`.

    >>> from PIL import Image
    >>> eval_transform()(Image.new("RGB", (640, 480))).shape
    torch.Size([3, 224, 224])
    """
    from torchvision.transforms import v2

    settings = (settings or TransformSettings()).at_test()
    return v2.Compose(
        [
            Square(settings.resize, settings.fit),
            v2.ToImage(),
            v2.CenterCrop(settings.size),
            v2.ToDtype(torch.float32, scale=True),
            *_normalized(settings),
        ]
    )


def square_transform(settings: TransformSettings | None = None) -> v2.Compose:
    """The whole square, not cropped: a uint8 (3, resize, resize) tensor, as a cache keeps it.

    `kinspace.data.augmented_views` makes the views of a picture out of it.

    >>> from PIL import Image
    >>> square_transform()(Image.new("RGB", (640, 480))).shape
    torch.Size([3, 256, 256])
    """
    from torchvision.transforms import v2

    settings = settings or TransformSettings()
    return v2.Compose([Square(settings.resize, settings.fit), v2.ToImage(), v2.ToPureTensor()])


def _normalized(settings: TransformSettings) -> list[Any]:
    from torchvision.transforms import v2

    return [v2.Normalize(list(settings.mean), list(settings.std)), v2.ToPureTensor()]


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
