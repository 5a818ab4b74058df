"""The canvas a moth is painted on: a picture at twice its size, with every pixel's place on it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from kinspace.data.moths.individual import Pose
from kinspace.data.moths.palette import Array

__all__ = ["FINER", "Canvas", "Stroke"]

FINER = 2  # pixels of the canvas along one pixel of the picture
Stroke = tuple[list[tuple[float, float]], float]  # points in the moth's frame, and a width


class Canvas:
    """Premultiplied color and cover, flat, and the moth's coordinates of every pixel.

    In the moth's frame the body lies along y with the head at negative y, x goes to its right
    in the picture, and a forewing is about 1 long.
    """

    def __init__(self, size: int, pose: Pose, bounds: tuple[float, float]) -> None:
        self.size = FINER * size
        self.to_picture = _projection(pose, bounds)
        scale = abs(np.linalg.det(self.to_picture[:2, :2])) ** 0.5
        self.step = float(2 / (self.size * scale))  # a pixel's width in the moth's frame
        ticks = (np.arange(self.size, dtype=np.float32) + 0.5) * (2 / self.size) - 1
        back = np.linalg.inv(self.to_picture).astype(np.float32)
        across, down = ticks[None, :], ticks[:, None]
        depth = back[2, 0] * across + back[2, 1] * down + back[2, 2]
        self.x: Array = ((back[0, 0] * across + back[0, 1] * down + back[0, 2]) / depth).ravel()
        self.y: Array = ((back[1, 0] * across + back[1, 1] * down + back[1, 2]) / depth).ravel()
        self.beside: Array = np.abs(self.x)  # distance from the body's axis
        self.color = np.zeros((3, self.size**2), np.float32)
        self.cover = np.zeros(self.size**2, np.float32)

    def paint(self, pixels: NDArray[np.intp], color: Array, cover: Array) -> None:
        """Lay a color (3, pixels) or (3, 1) over what is there."""
        rest = 1 - cover
        for channel, value in zip(self.color, color, strict=True):  # 1-d indexing is the fastest
            channel[pixels] = channel[pixels] * rest + value * cover
        self.cover[pixels] = self.cover[pixels] * rest + cover

    def draw(self, strokes: list[Stroke], color: Array) -> None:
        """Draw lines given in the moth's frame."""
        mask = Image.new("L", (self.size, self.size))
        pen = ImageDraw.Draw(mask)
        points = np.array([point for line, _ in strokes for point in line])
        places = points @ self.to_picture[:, :2].T + self.to_picture[:, 2]
        flat = ((places[:, :2] / places[:, 2:] + 1) * (self.size / 2)).ravel().tolist()
        start = 0
        for line, width in strokes:
            end = start + 2 * len(line)
            pen.line(flat[start:end], fill=255, width=max(1, round(width / self.step)))
            start = end
        pixels = np.flatnonzero(np.asarray(mask))
        self.paint(pixels, color, np.ones(len(pixels), np.float32))

    def layers(self) -> tuple[Array, Array]:
        """Premultiplied color (size, size, 3) and cover (size, size) of the picture."""
        return np.moveaxis(self._coarse(self.color), 0, 2), self._coarse(self.cover)

    def _coarse(self, values: Array) -> Array:
        fine = values.reshape(*values.shape[:-1], self.size, self.size)
        rows = fine[..., 0::2, :] + fine[..., 1::2, :]
        return (rows[..., 0::2] + rows[..., 1::2]) * (1 / FINER**2)


def _projection(pose: Pose, bounds: tuple[float, float]) -> NDArray[np.float64]:
    """The moth's frame to the picture's (-1 to 1); bounds: the moth's middle along y, radius."""
    middle, radius = bounds
    scale = 0.94 * pose.zoom / radius
    cos, sin = math.cos(pose.rotation) * scale, math.sin(pose.rotation) * scale
    turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    center = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -middle], [0.0, 0.0, 1.0]])
    tilt = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [pose.tilt[0], pose.tilt[1], 1.0]])
    move = np.array([[1.0, 0.0, pose.shift[0]], [0.0, 1.0, pose.shift[1]], [0.0, 0.0, 1.0]])
    projection: NDArray[np.float64] = move @ tilt @ turn @ center
    return projection
